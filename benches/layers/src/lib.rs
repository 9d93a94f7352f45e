//! What the queue costs, and what the harness around it costs: the same job in the same process, carried
//! by four things in turn.
//!
//! | layer | what carries the messages |
//! |---|---|
//! | [`Layer::RawSdk`] | a plain loop over the AWS SDK: data objects, and small index objects that name them |
//! | [`Layer::Raw`] | the same loop over `object_store`, the client that the queue uses |
//! | [`Layer::Queue`] | the same loop over the queue's append and tail: Parquet, Delta commits |
//! | [`Layer::Service`] | the producer and the consumer role: pacing, stages, ledger, histograms |
//!
//! **What is the same.** One process, one tokio runtime and one [`Store`] (so one configuration of the HTTP
//! clients); the payload's code and the messages of a batch; how many batches may be on their way to the
//! store, and how many may be fetched ahead; the polling interval and the timer it sleeps by; when the window
//! opens (the first batch is in the reader's hands) and closes (the last message was read). Writer and
//! reader run together in this process and the store outside of it, so that processor time is the clients'
//! alone, both ends together.
//!
//! **Pipelining is not the layer.** A raw loop that waited for each of its PUTs would be slower than the
//! queue and would prove nothing. So the raw writer has as many data PUTs in flight as the queue's producer
//! (its default), puts index objects in order, one at a time, and lets what was stored meanwhile share the
//! next one, as the queue's commits do. The raw reader fetches the data of later index objects while earlier
//! ones are read, bounded as the queue's permits bound it.
//!
//! **Two jobs.** *Flood*: batches of a fixed number of messages, as fast as they are taken; messages a second.
//! Raw and queue loops count the messages and their bytes, the service does all that it always does. *Paced*:
//! message i is due at `start + i / rate` and batches are closed on a grid of the commit interval; latency
//! from due to read. Processor time is taken in both.
//!
//! **Rounds.** Layers take turns, each round beginning with another one. A trial finds the fastest layer's
//! speed and sizes the flood, so that each run lasts long enough; when one still doesn't, the job grows and
//! the flood begins again. A run that lost something is an error, not a figure.

mod clients;
mod feed;
mod figures;
mod own_store;
mod page;
mod queue_loop;
mod raw_loop;
mod reading;
mod report;
mod rounds;
mod service;
mod task;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use s3mq::CancellationToken;
use s3mq::consumer::ConsumerError;
use s3mq::producer::{Padding, Payload};
use s3mq::units::{Rate, Seconds};
use s3mq_queue::storage::{Prefix, PrefixLock, StorageError, Store};
use s3mq_queue::{ConsumerOptions, DataEncoding, ProducerOptions, QueueError};

pub use figures::{Figures, Metric};
pub use own_store::OwnStore;
pub use page::{Page, tables};
pub use report::{Build, Comparison, JobInfo, Report, RoundTripRow, Row, When};

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// A plain loop over the AWS SDK.
    RawSdk,
    /// The same over `object_store`.
    Raw,
    /// The queue's append and tail.
    Queue,
    /// The roles.
    Service,
}

impl Layer {
    /// All of them, from the lowest up.
    pub const ALL: [Self; 4] = [Self::RawSdk, Self::Raw, Self::Queue, Self::Service];

    /// Its name in results and prefixes.
    pub fn name(self) -> &'static str {
        match self {
            Self::RawSdk => "raw_sdk",
            Self::Raw => "raw",
            Self::Queue => "queue",
            Self::Service => "service",
        }
    }
}

/// What is measured. Validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// Objects are written below this, and deleted again.
    pub prefix: Prefix,
    /// Rate of the paced job.
    pub rate: Rate,
    /// How often the paced job's batches are closed.
    pub commit_interval: Duration,
    /// Messages a batch of the flood.
    pub batch_messages: u64,
    /// Bytes a message; `None` is the stamp alone.
    pub message_size: Option<usize>,
    /// What fills a message up.
    pub padding: Padding,
    /// Encoding of the queue's column `data`.
    pub data_encoding: DataEncoding,
    /// The least that a measured run lasts.
    pub seconds: Seconds,
    /// How many rounds.
    pub rounds: usize,
    /// The readers' pause after asking for something that isn't there yet.
    pub poll_interval: Duration,
    /// The most that the store may hold, in bytes, where that is known.
    pub max_bytes: Option<u64>,
}

/// What ended the measuring.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The queue failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The consumer role failed.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// A request of a raw loop failed.
    #[error("{request} failed: {detail}")]
    Request {
        /// Which.
        request: String,
        /// What the client says.
        detail: String,
    },
    /// Not everything arrived, so that there is no figure.
    #[error("the layer {layer} did not deliver what was sent: {detail}")]
    NotWhole {
        /// Which.
        layer: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The embedded store did not start.
    #[error("the embedded store did not start: {0}")]
    OwnStore(String),
    /// A task ended before its work was done.
    #[error("a task ended early: {0}")]
    TaskEnded(String),
    /// Runs stayed shorter than they should be, however large they were made: the store's speed changes too much.
    #[error(
        "a run lasted {shortest:.2} s where {least} s were asked for, however large it was made: the store gets faster \
         meanwhile; try again when it is at rest"
    )]
    TooShort {
        /// What the shortest run lasted, in seconds.
        shortest: f64,
        /// What each should last at least, in seconds.
        least: f64,
    },
    /// The flood would not fit.
    #[error("{0}")]
    TooLarge(String),
}

/// Measures all layers on `store`, which has passed its preflight; `tell` gets a line for each run. Objects are
/// deleted again, except where it is interrupted.
///
/// # Errors
/// What ended it.
pub async fn run(
    config: &Config,
    store: &Store,
    build: Build,
    stop: CancellationToken,
    mut tell: impl FnMut(&str),
) -> Result<Report, LayersError> {
    let holder = format!("s3mq layers, process {}", std::process::id());
    let lock = PrefixLock::acquire(store, &config.prefix, &holder).await?;
    let measured = tokio::select! {
        measured = rounds::measure(config, store, &mut tell) => measured,
        () = stop.cancelled() => Err(LayersError::Interrupted),
    };
    // A store that has died must not keep an interrupted run.
    let _ = tokio::time::timeout(Duration::from_secs(2), lock.release()).await;
    Ok(Report::of(config, store, build, &measured?))
}

/// What a run of a layer has to carry.
#[derive(Clone, Debug)]
struct Job {
    kind: JobKind,
    /// How many messages in all.
    messages: u64,
    message_size: Option<usize>,
    padding: Padding,
    data_encoding: DataEncoding,
    poll_interval: Duration,
}

/// How messages come.
#[derive(Clone, Copy, Debug)]
enum JobKind {
    /// As fast as they are taken.
    Flood {
        /// In batches of so many.
        batch_messages: u64,
        /// Messages that half a second has, roughly.
        half_a_second: u64,
    },
    /// When they are due.
    Paced {
        rate: Rate,
        commit_interval: Duration,
        /// What was due this long after the first message is in no latency.
        warmup: Duration,
    },
}

impl Job {
    /// Writes its messages.
    fn payload(&self) -> Payload {
        Payload::new(self.message_size, self.padding, 1)
    }

    /// Messages of a full batch.
    fn batch_messages(&self) -> u64 {
        match self.kind {
            JobKind::Flood { batch_messages, .. } => batch_messages,
            JobKind::Paced { rate, commit_interval, .. } => {
                ((rate.per_second() * commit_interval.as_secs_f64()).round() as u64).max(1)
            }
        }
    }

    /// Bytes of messages in a full batch.
    fn batch_bytes(&self) -> usize {
        self.batch_messages() as usize * self.payload().message_bytes()
    }

    /// Batches on their way to the store at once.
    fn inflight(&self) -> usize {
        ProducerOptions::default().max_inflight_batches
    }

    /// Batches that may be fetched and not read yet: what the queue's permits leave room for.
    fn ahead(&self) -> usize {
        let options = ConsumerOptions::default();
        let by_messages = options.max_inflight_messages / self.batch_messages() as usize;
        let by_bytes = options.max_inflight_bytes / self.batch_bytes().max(1);
        by_messages.min(by_bytes).clamp(1, 256)
    }
}

/// What a run of a layer came to.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// From the first delivery to the last message read.
    seconds: f64,
    /// Messages that came after the first batch, which opened the window.
    messages: u64,
    /// Processor time within the window.
    cpu_seconds: f64,
    /// p50 and p99 from due to read; paced jobs only.
    latency_us: Option<(u64, u64)>,
}

impl Outcome {
    fn messages_per_second(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    fn cpu_us_per_message(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.messages as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flood(batch_messages: u64, message_size: usize) -> Job {
        Job {
            kind: JobKind::Flood { batch_messages, half_a_second: 1 },
            messages: batch_messages,
            message_size: Some(message_size),
            padding: Padding::Text,
            data_encoding: DataEncoding::Plain,
            poll_interval: Duration::from_millis(1),
        }
    }

    #[test]
    fn raw_readers_fetch_ahead_as_the_queues_permits_let_it() {
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
            assert_eq!(flood(batch_messages, message_size).ahead(), ahead, "{batch_messages} {message_size}");
        }
    }

    #[test]
    fn a_paced_batch_is_what_is_due_in_an_interval() {
        let paced = |rate: &str, interval_ms| {
            let commit_interval = Duration::from_millis(interval_ms);
            let kind =
                JobKind::Paced { rate: rate.parse().unwrap(), commit_interval, warmup: Duration::ZERO };
            Job { kind, ..flood(1, 17) }.batch_messages()
        };
        assert_eq!((paced("10000", 20), paced("0.1", 20)), (200, 1));
    }
}
