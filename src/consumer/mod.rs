//! The consumer role: receives what the queue delivers, measures how late each message came, and keeps account of what
//! was lost, doubled or reordered. It keeps no message and no latency: its memory doesn't grow with the run.

mod batch_stages;
mod recovery;
mod stamp;
mod tally;

use std::io;
use std::ops::Range;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::events::{ConsumerSummary, Ended, Event};
use crate::measure::{PercentileRow, Percentiles, Sample};
use s3mq_clock::monotonic_ns;
use s3mq_queue::{Consumer, ConsumerOptions, Lake, QueueError, Received};
pub use stamp::due_us;
use tally::Tally;

/// What a consumer does. Validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it follows the queue, and the clock that received times are made of.
    pub queue: ConsumerOptions,
    /// End after this many messages, whoever ended a stream.
    pub expected_messages: Option<u64>,
    /// Otherwise, end when this many producers ended their streams.
    pub producers: usize,
    /// Messages between two rows.
    pub log_frequency: u64,
    /// What was due within this after the first message is in no figure.
    pub warmup: Duration,
    /// What was due this long after the warm-up, and later, is in no figure either; `None` is for ever.
    pub measured: Option<Duration>,
    /// Give up when the first message, or the first that is lost, hasn't come for this long. Time in which the
    /// store doesn't answer is not counted, here and in `drain_timeout`.
    pub wait_timeout: Duration,
    /// After that: give up when nothing came for this long.
    pub drain_timeout: Duration,
    /// How often producers commit; ten of these without an answer of the store are a stall.
    pub commit_interval: Duration,
    /// Length of the timeline's intervals.
    pub interval: Duration,
    /// Percentiles for the summary.
    pub percentiles: Percentiles,
}

impl Config {
    /// What is measured, in microseconds after the first message was due.
    fn window_us(&self) -> Range<i64> {
        let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let start_us = us(self.warmup);
        start_us..self.measured.map_or(i64::MAX, |measured| start_us.saturating_add(us(measured)))
    }
}

/// Where a run's events, rows and raw values go. An error of a sink ends the run.
pub trait Sink {
    /// Something happened.
    fn report(&mut self, event: Event);

    /// A row of percentiles is due.
    fn row(&mut self, row: &PercentileRow) -> io::Result<()>;

    /// A message was received: its due and received times, in Unix microseconds.
    fn message(&mut self, due_us: i64, received_us: i64) -> io::Result<()>;

    /// An interval of the timeline is over: when it began, in Unix microseconds, how long it was, and what was
    /// measured in it, the warm-up left out.
    fn interval(&mut self, start_us: i64, length_us: i64, sample: &Sample) -> io::Result<()>;
}

/// What ended a consumer before its end.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The queue failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The results can't be kept.
    #[error("cannot write results: {0}")]
    Sink(#[from] io::Error),
}

/// Runs a consumer to its end.
///
/// # Errors
/// What ended the queue, or that the sink can't keep the results.
pub async fn run(
    config: Config,
    lake: &Lake,
    stop: CancellationToken,
    sink: &mut impl Sink,
) -> Result<ConsumerSummary, ConsumerError> {
    let started_ns = monotonic_ns();
    let mut queue = Consumer::open(lake, config.queue.clone()).await?;
    if let Some(missing) = queue.missing_history() {
        tracing::warn!(
            "versions {}-{} are no longer in the log; what they held is not delivered",
            missing.start(),
            missing.end()
        );
    }
    let opening = lake.store().requests();
    sink.report(Event::Ready);

    let mut tally = Tally::new(&config, started_ns);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut idle = lake.store().available_time();
    let (mut idle_timeout, mut given_up) = (config.wait_timeout, Ended::WaitTimeout);
    // Once it has been idle for long enough: whether the log has nothing more, before the producers are blamed.
    let mut is_asking = false;
    let ended = loop {
        tokio::select! {
            received = queue.next_or_nothing() => {
                let received = match received? {
                    Some(received) => received,
                    None if is_asking => break given_up,
                    None => continue,
                };
                let holds_messages = !matches!(received, Received::End(_));
                match received {
                    Received::Batch(batch) => tally.take(&batch, lake, sink)?,
                    Received::End(end) => tally.end(&end),
                    Received::Lost(lost) => {
                        tracing::error!("{lost}");
                        tally.lose(&lost);
                    }
                }
                if holds_messages {
                    is_asking = false;
                    idle = lake.store().available_time();
                    (idle_timeout, given_up) = (config.drain_timeout, Ended::DrainTimeout);
                }
                match config.expected_messages {
                    Some(expected) if tally.accounted_for() >= expected => break Ended::Expected,
                    None if tally.ledger.ended() >= config.producers => break Ended::EndOfStream,
                    _ => {}
                }
            }
            () = stop.cancelled() => break Ended::Interrupted,
            () = idle.until(idle_timeout), if !is_asking => {
                queue.ask();
                is_asking = true;
            }
            _ = tick.tick() => {
                tally.advance(tally.anchor.now_us(), sink)?;
                let unanswered_seconds = lake.store().availability().unanswered().as_secs_f64();
                sink.report(Event::Progress { messages: tally.received, unanswered_seconds });
            }
        }
    };
    tally.last_row(sink)?;
    tally.end_interval(sink)?;
    Ok(tally.into_summary(ended, &queue, lake, &opening))
}
