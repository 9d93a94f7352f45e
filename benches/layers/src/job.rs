//! What a run of a layer carries, and what it comes to.

use std::fmt::Display;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::RemoteHandle;
use serde::{Deserialize, Serialize};

use super::Args;
use s3mq::cli::Failure;
use s3mq::exit::Exit;
use s3mq::measure::LatencySummary;
use s3mq_clock::Anchor;
use s3mq_queue::{ConsumerOptions, Poll, ProducerOptions};

/// What carries the messages, from the lowest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Layer {
    /// A plain loop over the AWS SDK.
    RawSdk,
    /// The same over `object_store`, the client that the queue uses.
    Raw,
    /// The same loop over the queue's append and tail.
    Queue,
    /// The producer and the consumer role.
    Service,
}

impl Layer {
    pub(super) const ALL: [Self; 4] = [Self::RawSdk, Self::Raw, Self::Queue, Self::Service];

    /// Its name in results and prefixes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RawSdk => "raw_sdk",
            Self::Raw => "raw",
            Self::Queue => "queue",
            Self::Service => "service",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) args: Arc<Args>,
    /// Whether messages are due at the rate, rather than sent as fast as they are taken.
    pub(super) is_paced: bool,
    /// How many messages in all.
    pub(super) messages: u64,
    pub(super) anchor: Anchor,
}

impl Job {
    pub(super) fn message_bytes(&self) -> usize {
        self.args.message.bytes()
    }

    /// Messages of a full batch.
    pub(super) fn batch_messages(&self) -> u64 {
        if !self.is_paced {
            return self.args.batch_messages;
        }
        let due = self.args.rate.per_second() * self.args.commit_interval().as_secs_f64();
        (due.round() as u64).max(1)
    }

    /// Bytes of messages in a full batch.
    pub(super) fn batch_bytes(&self) -> usize {
        self.batch_messages() as usize * self.message_bytes()
    }

    /// Batches on their way to the store at once: as many as in the queue.
    pub(super) fn max_inflight(&self) -> usize {
        ProducerOptions::default().max_inflight_batches
    }

    /// Batches that may be fetched and not read yet: what the queue's bounds leave room for.
    pub(super) fn max_ahead(&self) -> usize {
        let options = ConsumerOptions::default();
        let by_messages = options.max_inflight_messages / self.batch_messages() as usize;
        let by_bytes = options.max_inflight_bytes / self.batch_bytes().max(1);
        by_messages.min(by_bytes).clamp(1, 256)
    }

    pub(super) fn consumer_options(&self) -> ConsumerOptions {
        ConsumerOptions {
            poll: Poll::Fixed { interval: self.args.poll_interval() },
            anchor: self.anchor.clone(),
            ..ConsumerOptions::default()
        }
    }
}

/// What a run of a layer came to, from the first delivery to the last message read. The first batch, which opened the
/// window, is not counted.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) messages_per_second: f64,
    /// Processor time.
    pub(super) cpu_us_per_message: f64,
    /// From due to read; paced jobs only.
    pub(super) latency: Option<LatencySummary>,
}

/// Not everything arrived, so that there is no figure.
pub(super) fn not_whole(detail: impl Display) -> Failure {
    Failure { exit: Exit::Lossy, message: format!("it did not deliver what was sent: {detail}") }
}

/// A task that is cancelled when its handle is dropped.
pub(super) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> RemoteHandle<T> {
    let (task, handle) = work.remote_handle();
    tokio::spawn(task);
    handle
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A job with these arguments, of as many messages, for all tests.
    pub(crate) fn job(is_paced: bool, messages: u64, arguments: &str) -> Job {
        let arguments = ["s3mq-layers"].into_iter().chain(arguments.split_whitespace());
        let args = Arc::new(clap::Parser::parse_from(arguments));
        Job { args, is_paced, messages, anchor: Anchor::now() }
    }

    #[test]
    fn raw_readers_fetch_ahead_as_the_queues_bounds_let_it() {
        for (batch_messages, message_size, ahead) in [
            // By messages.
            (100_000, 17, 20),
            // By bytes.
            (1_000, 1 << 20, 1),
            (64, 1 << 10, 256),
            (1_024, 1 << 10, 64),
            // A batch above either bound is fetched alone.
            (3_000_000, 17, 1),
        ] {
            let arguments = format!("--batch-messages {batch_messages} --message-size {message_size}");
            assert_eq!(job(false, 1, &arguments).max_ahead(), ahead, "{arguments}");
        }
    }

    #[test]
    fn a_paced_batch_is_what_is_due_in_an_interval() {
        let paced =
            |rate| job(true, 1, &format!("--autocommit-duration-ms 20 --rate {rate}")).batch_messages();
        assert_eq!((paced("10000"), paced("0.1")), (200, 1));
    }
}
