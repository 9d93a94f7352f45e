//! Everything that is counted while a consumer runs: histograms and ranges, never a message.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::batch_stages::BatchStages;
use super::recovery::Recovery;
use super::{Config, Sink, stamp};
use crate::events::{ConsumerSummary, Ended, Event, OpenStream, ReceivedInterval, Requests, StoreStalls};
use crate::machine::{ResourceUsage, rss_bytes};
use crate::measure::{Ledger, Meter};
use s3mq_clock::{Anchor, monotonic_ns};
use s3mq_queue::{Consumer, EndOfStream, Lake, LostFile, ProducerEpoch, ReceivedBatch, Start};

/// The clock is read at least once for this many messages of a batch.
const MESSAGES_A_CLOCK_READ: u64 = 1_000;

/// Everything that is counted during a run.
pub(super) struct Tally<'a> {
    config: &'a Config,
    pub(super) anchor: &'a Anchor,
    started_ns: u64,
    interval_us: i64,
    interval_index: i64,
    interval_messages: u64,
    /// When the message that was delivered last had been due.
    last_due_us: Option<i64>,
    meter: Meter,
    pub(super) ledger: Ledger<ProducerEpoch>,
    pub(super) received: u64,
    /// Messages until the next row.
    until_row: u64,
    unreadable: u64,
    unstamped: u64,
    retractions: u64,
    lost_files: u64,
    /// Messages that their data files are said to have held.
    lost_rows: u64,
    /// Those among them that belong to no stream.
    lost_untracked: u64,
    /// The first and the last commit of messages of each producer epoch that has not ended, in Unix microseconds of the
    /// producers' clocks.
    commits: BTreeMap<ProducerEpoch, (i64, i64)>,
    /// The first commit of those that ended, and the last end.
    ended: Option<(i64, i64)>,
    last_version: Option<u64>,
    first_delivery_ns: Option<u64>,
    last_delivery_ns: u64,
    recovery: Recovery,
}

impl<'a> Tally<'a> {
    pub(super) fn new(config: &'a Config, started_ns: u64) -> Self {
        let interval_us = (config.interval.as_micros() as i64).max(1);
        Self {
            config,
            anchor: &config.queue.anchor,
            started_ns,
            until_row: config.log_frequency.max(1),
            interval_us,
            interval_index: config
                .queue
                .anchor
                .since_us(config.queue.anchor.now_us())
                .div_euclid(interval_us),
            interval_messages: 0,
            last_due_us: None,
            meter: Meter::new(config.window_us()),
            ledger: Ledger::new(config.queue.start != Start::Earliest),
            received: 0,
            unreadable: 0,
            unstamped: 0,
            retractions: 0,
            lost_files: 0,
            lost_rows: 0,
            lost_untracked: 0,
            commits: BTreeMap::new(),
            ended: None,
            last_version: None,
            first_delivery_ns: None,
            last_delivery_ns: started_ns,
            recovery: Recovery::new(StoreStalls::threshold(config.commit_interval)),
        }
    }

    pub(super) fn take(
        &mut self,
        batch: &ReceivedBatch,
        lake: &Lake,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        self.last_version = Some(batch.version);
        let unreadable = self.unreadable;
        self.retractions += batch.retractions;
        self.unreadable += batch.nulls;
        let mut stages = batch.stamps.as_ref().map(BatchStages::new);
        let mut messages = batch.messages();
        let (mut index, count) = (0, batch.len() as u64);
        while index < count {
            let now_ns = monotonic_ns();
            self.first_delivery_ns.get_or_insert(now_ns);
            if let Some(stages) = &mut stages {
                stages.settle(&mut self.meter);
            }
            let received_us = self.anchor.at_us(now_ns);
            self.advance(received_us, sink)?;
            let some = MESSAGES_A_CLOCK_READ.min(count - index).min(self.until_row);
            self.take_some(index, messages.by_ref().take(some as usize), received_us, &mut stages, sink)?;
            index += some;
            self.until_row -= some;
            if self.until_row == 0 {
                self.until_row = self.config.log_frequency.max(1);
                self.row(sink)?;
            }
        }
        if let Some(stages) = &mut stages {
            stages.settle(&mut self.meter);
        }
        self.last_delivery_ns = monotonic_ns();
        self.recovery.delivered(lake, self.anchor, self.last_due_us, self.last_delivery_ns);
        if batch.origin.is_none() {
            // Of another writer, whose messages need no stamp.
            self.unstamped += std::mem::replace(&mut self.unreadable, unreadable) - unreadable;
        }
        if let Some(origin) = batch.origin {
            if let Some(stamps) = &batch.stamps {
                let at_us = stamps.commit_sent_us;
                self.commits.entry(origin.by).or_insert((at_us, at_us)).1 = at_us;
            }
            for (first, length) in batch.sequences().flat_map(runs) {
                self.ledger.record(&origin.by, first..first + length);
            }
        }
        Ok(())
    }

    /// A producer epoch ended.
    pub(super) fn end(&mut self, end: &EndOfStream) {
        self.ledger.end(&end.by, end.count);
        let commits = self.commits.remove(&end.by);
        let Some(ended_us) = end.committed_us else { return };
        let began_us = commits.map_or(ended_us, |(first_us, _)| first_us);
        let (first_us, last_us) = self.ended.unwrap_or((began_us, ended_us));
        self.ended = Some((first_us.min(began_us), last_us.max(ended_us)));
    }

    /// The producer epochs that had not ended when the last end came.
    fn open_streams(&self) -> Vec<OpenStream> {
        let Some((began_us, ended_us)) = self.ended else { return Vec::new() };
        let open = self.commits.iter().map(|(by, (_, committed_us))| OpenStream {
            by: *by,
            seconds_before_end: ended_us.saturating_sub(*committed_us) as f64 / 1e6,
            at_the_same_time: *committed_us >= began_us,
        });
        open.collect()
    }

    /// A committed data file can't be delivered.
    pub(super) fn lose(&mut self, lost: &LostFile) {
        let rows = lost.rows.unwrap_or(0);
        self.lost_files += 1;
        self.lost_rows = self.lost_rows.saturating_add(rows);
        match lost.origin {
            Some(origin) => {
                let end = origin.first_seq.saturating_add(origin.rows);
                self.ledger.committed(&origin.by, origin.first_seq..end);
            }
            None => self.lost_untracked = self.lost_untracked.saturating_add(rows),
        }
    }

    /// Messages that were committed and need not be waited for any more: they came, or are lost.
    pub(super) fn accounted_for(&self) -> u64 {
        self.received.saturating_add(self.lost_rows)
    }

    /// Takes the messages from `index` of the batch on, all received at the same time.
    fn take_some<'b>(
        &mut self,
        mut index: u64,
        messages: impl Iterator<Item = &'b [u8]>,
        received_us: i64,
        stages: &mut Option<BatchStages<'_>>,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        let (mut due_us, mut from) = (None, index);
        let begin = index;
        for message in messages {
            let this_due_us = stamp::due_us(message);
            if this_due_us != due_us {
                self.measure(from..index, due_us, received_us, stages);
                (due_us, from) = (this_due_us, index);
            }
            if let Some(due_us) = this_due_us {
                sink.message(due_us, received_us)?;
            }
            index += 1;
        }
        self.measure(from..index, due_us, received_us, stages);
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
        stages: &mut Option<BatchStages<'_>>,
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
            && let Some(stages) = stages
        {
            stages.record(&mut self.meter, indices, due_us, received_us);
        }
    }

    fn row(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        let seconds = (monotonic_ns() - self.started_ns) as f64 / 1e9;
        self.meter.row(seconds).map_or(Ok(()), |row| sink.row(&row))
    }

    /// It is `now_us`: an interval of the timeline may be over.
    pub(super) fn advance(&mut self, now_us: i64, sink: &mut impl Sink) -> io::Result<()> {
        let index = self.anchor.since_us(now_us).div_euclid(self.interval_us);
        if index != self.interval_index {
            self.end_interval(sink)?;
            self.interval_index = index;
        }
        Ok(())
    }

    pub(super) fn end_interval(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        let start_us = self.anchor.origin_us() + self.interval_index * self.interval_us;
        let end_us = start_us + self.interval_us;
        let sample = self.meter.end_interval();
        sink.report(Event::Received(ReceivedInterval {
            index: self.interval_index,
            messages: std::mem::take(&mut self.interval_messages),
            latency: sample.latencies.summary(),
            percentiles_us: self
                .config
                .percentiles
                .of(&sample.latencies)
                .iter()
                .map(|chosen| chosen.us)
                .collect(),
            lag_us: self.last_due_us.map(|due_us| end_us - due_us),
            rss_bytes: rss_bytes(),
        }));
        sink.interval(start_us, self.interval_us, &sample)
    }

    /// The final values, unless the last message already had a row.
    pub(super) fn last_row(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        if self.until_row == self.config.log_frequency.max(1) { Ok(()) } else { self.row(sink) }
    }

    pub(super) fn into_summary(
        self,
        ended: Ended,
        queue: &Consumer,
        lake: &Lake,
        opening: &Requests,
    ) -> ConsumerSummary {
        let (warmup, beyond_window) = (self.meter.warmup_messages(), self.meter.messages_beyond_window());
        let open_streams = if ended == Ended::EndOfStream { self.open_streams() } else { Vec::new() };
        let total = self.meter.into_total();
        let receiving_ns = self.last_delivery_ns - self.first_delivery_ns.unwrap_or(self.last_delivery_ns);
        ConsumerSummary {
            ended,
            received: self.received,
            warmup,
            beyond_window,
            latency: total.latencies.summary(),
            percentiles: self.config.percentiles.of(&total.latencies),
            latency_since_handed_over: total.since_handed_over.summary(),
            stages: total.stages.summary(),
            negative_latencies: total.latencies.negative(),
            unreadable: self.unreadable,
            unstamped: self.unstamped,
            lost_untracked: self.lost_untracked,
            lost_files: self.lost_files,
            retractions: self.retractions,
            open_streams,
            integrity: self.ledger.integrity(),
            cold_open_seconds: queue.cold_open().map(|took| took.as_secs_f64()),
            first_version: queue.first_version(),
            last_version: self.last_version,
            receiving_seconds: receiving_ns as f64 / 1e9,
            wall_clock_step_us: self.anchor.wall_clock_step_us(),
            store_clock: lake.store().clock(),
            store_stalls: lake.store().availability().stalls(self.recovery.threshold),
            recovery_seconds: self.recovery.longest_seconds(),
            resources: ResourceUsage::so_far(),
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
