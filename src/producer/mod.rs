//! The producer role: an open loop that sends messages when they are due, whatever the store does.
//!
//! A pacer thread hands messages over on an absolute schedule and cuts them into batches; the [queue](s3mq_queue) commits
//! them. When the store is slower than the schedule, batches grow (up to [`Config::max_batch_bytes`]) and messages are
//! handed over late, with the stamps of the schedule: a consumer sees the wait as latency.

mod arrivals;
mod cutter;
pub(crate) mod hot;
mod notices;
mod pacer;
mod payload;
mod timeline;

use std::time::Duration;

use tokio::sync::mpsc::{self, Sender, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::events::{Event, ProducerSummary, SentInterval, StoreStalls};
use crate::machine::ResourceUsage;
use crate::units::{Rate, Seconds};
use s3mq_queue::storage::Purpose;
use s3mq_queue::{Batch, Lake, Producer, ProducerOptions, QueueError};

pub use arrivals::Arrival;
pub use cutter::MAX_BATCH_BYTES;
use notices::Notices;
use pacer::Pacer;
pub use payload::{Padding, Payload, STAMP_BYTES};
use timeline::Timeline;

/// How fast, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Exactly `messages`, each due by a schedule of its own.
    Paced {
        /// How fast.
        rate: Rate,
        /// How many.
        messages: u64,
        /// How they are spread over time.
        arrival: Arrival,
        /// The same seed gives the same times, where they are drawn.
        seed: u64,
    },
    /// `messages`, as fast as the queue takes them, each stamped when it is handed over.
    Flood {
        /// How many.
        messages: u64,
    },
    /// As many as the queue takes in this time, each stamped when it is handed over.
    FloodFor(Seconds),
}

/// What a producer does. Validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it appends to the queue.
    pub queue: ProducerOptions,
    /// How fast, and for how long.
    pub schedule: Schedule,
    /// How long after its schedule's end a producer that fell behind goes on to hand over.
    pub grace: Duration,
    /// How often what was handed over is committed.
    pub commit_interval: Duration,
    /// The most bytes of messages that a batch grows to; see [`MAX_BATCH_BYTES`].
    pub max_batch_bytes: usize,
    /// Bytes a message; `None` is the stamp alone.
    pub message_size: Option<usize>,
    /// What fills a message up.
    pub padding: Padding,
    /// Length of the timeline's intervals.
    pub interval: Duration,
}

impl Config {
    /// A pacer whose schedule starts now.
    fn pacer(
        &self,
        stop: CancellationToken,
        batches: Sender<Batch>,
        ended: UnboundedSender<SentInterval>,
    ) -> Pacer {
        Pacer {
            schedule: self.schedule,
            start_ns: s3mq_clock::monotonic_ns(),
            grace_ns: self.grace.as_nanos() as u64,
            interval_ns: self.commit_interval.as_nanos() as u64,
            max_batch_bytes: self.max_batch_bytes,
            timeline: Timeline::new(&self.queue.anchor, self.interval, ended),
            payload: Payload::new(self.message_size, self.padding, rand::random()),
            anchor: self.queue.anchor.clone(),
            stop,
            batches,
        }
    }
}

/// Runs a producer until all is sent, or `stop` is cancelled, and what was handed over is committed.
///
/// # Errors
/// What ended the queue.
pub async fn run(
    config: Config,
    lake: &Lake,
    stop: CancellationToken,
    mut report: impl FnMut(Event),
) -> Result<ProducerSummary, QueueError> {
    let (notice, received) = mpsc::unbounded_channel();
    let mut notices = Notices::new(received);
    let options = ProducerOptions { notices: Some(notice), ..config.queue.clone() };
    // The table exists and the connections are warm before the schedule starts.
    let mut queue = Producer::open(lake, options).await?;
    let (by, cold_open, opening) = (queue.epoch(), queue.cold_open(), lake.store().requests());
    report(Event::Ready);

    let (sender, mut batches) = mpsc::channel(1);
    let (intervals, mut ended) = mpsc::unbounded_channel();
    let pacer = config.pacer(stop.clone(), sender, intervals);
    let pacer = tokio::task::spawn_blocking(move || pacer.run());

    let mut messages = 0;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            batch = batches.recv() => match batch {
                Some(batch) => {
                    messages += batch.len() as u64;
                    queue.append(batch).await?;
                }
                None => break,
            },
            Some(interval) = ended.recv() => report(Event::Sent(interval)),
            _ = tick.tick() => {
                notices.take(&mut report);
                let unanswered_seconds = lake.store().availability().unanswered().as_secs_f64();
                report(Event::Progress { messages, unanswered_seconds });
            }
        }
    }
    let paced = pacer.await.map_err(|error| QueueError::TaskEnded(error.to_string()))?;
    while let Ok(interval) = ended.try_recv() {
        report(Event::Sent(interval));
    }
    let appended = queue.finish().await?;
    notices.take(&mut report);
    let requests = lake.store().requests().since(&opening);
    let planned = match config.schedule {
        Schedule::Paced { messages, .. } | Schedule::Flood { messages } => messages,
        Schedule::FloodFor(_) => paced.handed_over,
    };
    // The schedule of n messages is n / rate long, though the last is due a little earlier.
    let scheduled_seconds = match config.schedule {
        Schedule::Paced { rate, messages, .. } if paced.handed_over == messages => {
            messages as f64 / rate.per_second()
        }
        _ => 0.0,
    };
    let sending_seconds = scheduled_seconds.max(paced.elapsed_ns as f64 / 1e9);
    let stalls_from = StoreStalls::threshold(config.commit_interval);
    Ok(ProducerSummary {
        by,
        planned,
        committed: appended.messages,
        sending_seconds,
        achieved_rate: (sending_seconds > 0.0).then(|| paced.handed_over as f64 / sending_seconds),
        send_delay: paced.send_delay,
        held_up_seconds: paced.held_up_ns as f64 / 1e9,
        files: appended.files,
        file_bytes: appended.file_bytes,
        commits: appended.commits,
        commit_retries: appended.commit_retries,
        conflicts: appended.conflicts,
        wasted_data_puts: requests.attempts(Purpose::DataPut).saturating_sub(appended.files),
        wasted_commit_puts: requests.attempts(Purpose::CommitPut).saturating_sub(appended.commits),
        commit_time: notices.commit_times.summary(),
        cold_open_seconds: cold_open.as_secs_f64(),
        checkpoints: notices.checkpoints,
        checkpoint_requests: notices.checkpoint_requests,
        resources: ResourceUsage::so_far(),
        interrupted: stop.is_cancelled() && paced.handed_over < planned,
        store_server: lake.store().server(),
        wall_clock_step_us: config.queue.anchor.wall_clock_step_us(),
        store_clock: lake.store().clock(),
        store_stalls: lake.store().availability().stalls(stalls_from),
        running_requests: requests,
        requests: lake.store().requests(),
    })
}
