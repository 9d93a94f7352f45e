//! The consumer role: receives what the queue delivers, tells how late each message came, and keeps
//! account of what was lost, doubled or reordered.
//!
//! It keeps no message and no latency: histograms and ranges only, so that its memory doesn't grow
//! with the run. Files are not its business either; rows and raw values go to a [`Sink`].

pub(crate) mod hot;
mod stamp;
mod way;

use std::io;
use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{Anchor, monotonic_ns};
use crate::events::{ConsumerSummary, Ended, Event, Requests};
use crate::machine::Effort;
use crate::measure::{Ledger, Meter, PercentileRow, Percentiles, Sample};
use crate::queue::{Consumer, ConsumerOptions, Lake, ProducerEpoch, QueueError, Received, ReceivedBatch};
use crate::stop::Stop;
pub(crate) use stamp::due_us;
use way::Way;

/// What a consumer does. Validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it follows the queue.
    pub queue: ConsumerOptions,
    /// End after this many messages, whoever ended a stream.
    pub expected_messages: Option<u64>,
    /// Otherwise, end when this many producers ended their streams.
    pub producers: usize,
    /// Messages between two rows.
    pub log_frequency: u64,
    /// What was due within this after the first message is in no figure.
    pub warmup: Duration,
    /// After the first message, or the first that is lost: give up when nothing came for this long.
    pub drain_timeout: Duration,
    /// Length of the timeline's intervals.
    pub interval: Duration,
    /// Percentiles for the summary.
    pub percentiles: Percentiles,
    /// The clock that received times are made of.
    pub anchor: Anchor,
}

/// Where rows and raw values go.
pub trait Sink {
    /// A row of percentiles is due.
    ///
    /// # Errors
    /// When it can't be kept; the run ends.
    fn row(&mut self, row: &PercentileRow) -> io::Result<()>;

    /// A message was received: its due and received times, in Unix microseconds.
    ///
    /// # Errors
    /// When it can't be kept; the run ends.
    fn message(&mut self, due_us: i64, received_us: i64) -> io::Result<()>;

    /// An interval of the timeline is over.
    ///
    /// # Errors
    /// When it can't be kept; the run ends.
    fn interval(&mut self, interval: &Interval) -> io::Result<()>;
}

/// One interval of the timeline.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Which: whole intervals since the clock anchor.
    pub index: i64,
    /// When it began, in Unix microseconds.
    pub start_us: i64,
    /// How long it was, in microseconds.
    pub length_us: i64,
    /// Messages delivered in it.
    pub messages: u64,
    /// At its end: how long ago the last message that was delivered had been due, in microseconds. `None`
    /// before the first.
    pub lag_us: Option<i64>,
    /// What was measured in it; the warm-up is left out.
    pub sample: Sample,
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

/// The clock is read at least once for this many messages of a batch.
const MESSAGES_A_CLOCK_READ: u64 = 1_000;

/// Runs a consumer to its end. Tells of progress, and that it is ready.
///
/// # Errors
/// What ended the queue, or that the sink can't keep the results.
pub async fn run(
    config: Config,
    lake: &Lake,
    mut stop: Stop,
    sink: &mut impl Sink,
    mut tell: impl FnMut(Event),
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
    tell(Event::Ready);

    let mut tally = Tally::new(&config, started_ns);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut last_delivery: Option<Instant> = None;
    let ended = loop {
        let give_up_at = last_delivery.map(|at| at + config.drain_timeout);
        tokio::select! {
            received = queue.next() => {
                match received? {
                    Received::Batch(batch) => {
                        tally.take(&batch, sink)?;
                        last_delivery = Some(Instant::now());
                    }
                    Received::End(end) => tally.ledger.end(&end.by, end.count),
                    Received::Lost(lost) => {
                        tracing::error!(
                            "data file {} of version {} is lost ({}): {} messages",
                            lost.path, lost.version, lost.reason,
                            lost.rows.map_or("an unknown number of".to_owned(), |rows| rows.to_string()),
                        );
                        last_delivery = Some(Instant::now());
                        tally.lost_files += 1;
                        if lost.origin.is_none() {
                            tally.lost_untracked += lost.rows.unwrap_or(0);
                        }
                    }
                }
                match config.expected_messages {
                    Some(expected) if tally.received >= expected => break Ended::Expected,
                    None if tally.ledger.ended() >= config.producers => break Ended::EndOfStream,
                    _ => {}
                }
            }
            () = stop.wait() => break Ended::Interrupted,
            () = until(give_up_at) => break Ended::DrainTimeout,
            _ = tick.tick() => {
                tally.advance(tally.anchor.now_us(), sink)?;
                tell(Event::Progress { messages: tally.received });
            }
        }
    };
    tally.last_row(sink)?;
    tally.end_interval(sink)?;
    Ok(tally.into_summary(&config.percentiles, ended, &queue, lake, &opening))
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Everything that is counted during a run.
struct Tally {
    anchor: Anchor,
    started_ns: u64,
    log_frequency: u64,
    interval_us: i64,
    interval_index: i64,
    interval_messages: u64,
    /// When the message that was delivered last had been due.
    last_due_us: Option<i64>,
    meter: Meter,
    ledger: Ledger<ProducerEpoch>,
    received: u64,
    /// Messages until the next row.
    until_row: u64,
    unreadable: u64,
    retractions: u64,
    lost_files: u64,
    lost_untracked: u64,
    last_version: Option<u64>,
    first_delivery_ns: Option<u64>,
    last_delivery_ns: u64,
}

impl Tally {
    fn new(config: &Config, started_ns: u64) -> Self {
        let interval_us = (config.interval.as_micros() as i64).max(1);
        Self {
            anchor: config.anchor.clone(),
            started_ns,
            log_frequency: config.log_frequency.max(1),
            until_row: config.log_frequency.max(1),
            interval_us,
            interval_index: config.anchor.since_us(config.anchor.now_us()).div_euclid(interval_us),
            interval_messages: 0,
            last_due_us: None,
            meter: Meter::new(config.warmup.as_micros() as i64),
            ledger: Ledger::default(),
            received: 0,
            unreadable: 0,
            retractions: 0,
            lost_files: 0,
            lost_untracked: 0,
            last_version: None,
            first_delivery_ns: None,
            last_delivery_ns: started_ns,
        }
    }

    fn take(&mut self, batch: &ReceivedBatch, sink: &mut impl Sink) -> io::Result<()> {
        self.last_version = Some(batch.version);
        self.retractions += batch.retractions;
        self.unreadable += batch.nulls;
        let mut way = batch.stamps.as_ref().map(Way::new);
        let mut messages = batch.messages();
        let (mut index, count) = (0, batch.len() as u64);
        while index < count {
            let now_ns = monotonic_ns();
            self.first_delivery_ns.get_or_insert(now_ns);
            if let Some(way) = &mut way {
                way.settle(&mut self.meter);
            }
            let received_us = self.anchor.at_us(now_ns);
            self.advance(received_us, sink)?;
            let some = MESSAGES_A_CLOCK_READ.min(count - index).min(self.until_row);
            self.take_some(index, messages.by_ref().take(some as usize), received_us, &mut way, sink)?;
            index += some;
            self.until_row -= some;
            if self.until_row == 0 {
                self.until_row = self.log_frequency;
                self.row(sink)?;
            }
        }
        if let Some(way) = &mut way {
            way.settle(&mut self.meter);
        }
        self.last_delivery_ns = monotonic_ns();
        if let Some(origin) = batch.origin {
            for (first, length) in batch.sequences().flat_map(runs) {
                self.ledger.record(&origin.by, first..first + length);
            }
        }
        Ok(())
    }

    /// Takes the messages from `index` of the batch on, all received at the same time.
    fn take_some<'b>(
        &mut self,
        mut index: u64,
        messages: impl Iterator<Item = &'b [u8]>,
        received_us: i64,
        way: &mut Option<Way<'_>>,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        let (mut due_us, mut from) = (None, index);
        let begin = index;
        for message in messages {
            let this_due_us = stamp::due_us(message);
            if this_due_us != due_us {
                self.measure(from..index, due_us, received_us, way);
                (due_us, from) = (this_due_us, index);
            }
            if let Some(due_us) = this_due_us {
                sink.message(due_us, received_us)?;
            }
            index += 1;
        }
        self.measure(from..index, due_us, received_us, way);
        self.received += index - begin;
        self.interval_messages += index - begin;
        Ok(())
    }

    /// Takes messages of a batch that were due at the same time; `None` where they don't say when.
    fn measure(
        &mut self,
        indices: Range<u64>,
        due_us: Option<i64>,
        received_us: i64,
        way: &mut Option<Way<'_>>,
    ) {
        let count = indices.end - indices.start;
        let Some(due_us) = due_us else {
            self.unreadable += count;
            return;
        };
        if count == 0 {
            return;
        }
        self.last_due_us = Some(due_us);
        if self.meter.record(due_us, received_us, count)
            && let Some(way) = way
        {
            way.record(&mut self.meter, indices, due_us, received_us);
        }
    }

    fn row(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        let seconds = (monotonic_ns() - self.started_ns) as f64 / 1e9;
        match self.meter.row(seconds) {
            Some(row) => sink.row(&row),
            None => Ok(()),
        }
    }

    /// It is `now_us`: an interval of the timeline may be over.
    fn advance(&mut self, now_us: i64, sink: &mut impl Sink) -> io::Result<()> {
        let index = self.anchor.since_us(now_us).div_euclid(self.interval_us);
        if index != self.interval_index {
            self.end_interval(sink)?;
            self.interval_index = index;
        }
        Ok(())
    }

    fn end_interval(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        let start_us = self.anchor.origin_us() + self.interval_index * self.interval_us;
        let end_us = start_us + self.interval_us;
        sink.interval(&Interval {
            index: self.interval_index,
            start_us,
            length_us: self.interval_us,
            messages: std::mem::take(&mut self.interval_messages),
            lag_us: self.last_due_us.map(|due_us| end_us - due_us),
            sample: self.meter.end_interval(),
        })
    }

    /// The final values, unless the last message already had a row.
    fn last_row(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        if self.until_row == self.log_frequency { Ok(()) } else { self.row(sink) }
    }

    fn into_summary(
        self,
        percentiles: &Percentiles,
        ended: Ended,
        queue: &Consumer,
        lake: &Lake,
        opening: &Requests,
    ) -> ConsumerSummary {
        let warmup = self.meter.warmup_messages();
        let total = self.meter.into_total();
        let receiving_ns = self.last_delivery_ns - self.first_delivery_ns.unwrap_or(self.last_delivery_ns);
        ConsumerSummary {
            ended,
            received: self.received,
            warmup,
            latency: total.latencies.summary(),
            percentiles: percentiles.of(&total.latencies),
            latency_since_handed_over: total.since_handed_over.summary(),
            stages: total.stages.summary(),
            negative_latencies: total.latencies.negative(),
            unreadable: self.unreadable,
            lost_untracked: self.lost_untracked,
            lost_files: self.lost_files,
            retractions: self.retractions,
            integrity: self.ledger.integrity(),
            cold_open_seconds: queue.cold_open().map(|took| took.as_secs_f64()),
            first_version: queue.first_version(),
            last_version: self.last_version,
            receiving_seconds: receiving_ns as f64 / 1e9,
            wall_clock_step_us: self.anchor.wall_clock_step_us(),
            store_clock: lake.store().clock(),
            effort: Effort::so_far(),
            running_requests: lake.store().requests().since(opening),
            requests: lake.store().requests(),
        }
    }
}

/// Splits sequence numbers into runs of consecutive ones: (first, length). A whole file of ours is one.
fn runs(numbers: &[i64]) -> impl Iterator<Item = (u64, u64)> {
    numbers
        .chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .filter_map(|run| Some((u64::try_from(*run.first()?).ok()?, run.len() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_split_where_they_break() {
        assert_eq!(runs(&[5, 6, 7]).collect::<Vec<_>>(), [(5, 3)]);
        assert_eq!(runs(&[5, 6, 6, 9]).collect::<Vec<_>>(), [(5, 2), (6, 1), (9, 1)]);
        assert_eq!(runs(&[]).count(), 0);
    }
}
