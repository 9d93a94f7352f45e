//! The latencies of one run, warm-up left out: cumulative percentiles at any moment, and those of each interval.

use std::ops::Range;

use super::latency::Latencies;
use super::run::Run;
use super::stages::{Stage, Waterfall};

/// The percentiles of a `{rate}.csv`, in its order.
pub const REPORTED_PERCENTILES: [f64; 5] = [50.0, 75.0, 85.0, 95.0, 99.0];

/// One row of a `{rate}.csv`: cumulative since the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentileRow {
    /// Seconds since the consumer started.
    pub time_from_start_seconds: f64,
    /// [`REPORTED_PERCENTILES`], in seconds.
    pub percentiles_seconds: [f64; 5],
}

/// Latencies and stages of the same messages.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// From due to delivered.
    pub latencies: Latencies,
    /// The same, by stage.
    pub stages: Waterfall,
    /// From handed over to delivered, for messages with a known hand-over.
    pub since_handed_over: Latencies,
}

impl Sample {
    /// Adds another's messages to these.
    pub fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.stages.merge(&other.stages);
        self.since_handed_over.merge(&other.since_handed_over);
    }
}

/// Takes each message's due and received time, and where it spent the time between.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// What is measured, in microseconds after the first due stamp that was seen.
    window: Range<i64>,
    first_due_us: Option<i64>,
    warmup_messages: u64,
    messages_beyond_window: u64,
    /// The intervals that have ended.
    ended: Sample,
    interval: Sample,
    latency: Run,
    /// What a row is read from; kept for its room.
    so_far: Latencies,
}

impl Meter {
    /// Measures messages that were due within `window`, in microseconds after the first.
    pub fn new(window: Range<i64>) -> Self {
        Self { window, ..Self::default() }
    }

    /// `count` messages due at `due_us` were received at `received_us`, both Unix microseconds; gives whether
    /// they are measured. What counts is when they were *due*, however late they came.
    pub fn record(&mut self, due_us: i64, received_us: i64, count: u64) -> bool {
        let since_first_us = due_us.saturating_sub(*self.first_due_us.get_or_insert(due_us));
        // Without a warm-up, what was due before the first that came is measured too.
        if since_first_us < self.window.start && self.window.start > 0 {
            self.warmup_messages += count;
            return false;
        }
        if since_first_us >= self.window.end {
            self.messages_beyond_window += count;
            return false;
        }
        let ended = self.latency.add(received_us.saturating_sub(due_us), count);
        self.keep(ended);
        true
    }

    /// `count` measured messages spent `us` in a stage.
    pub fn record_stage(&mut self, stage: Stage, us: i64, count: u64) {
        self.interval.stages.record(stage, us, count);
    }

    /// `count` measured messages took `us` from being handed over to being delivered.
    pub fn record_since_handed_over(&mut self, us: i64, count: u64) {
        self.interval.since_handed_over.record(us, count);
    }

    fn keep(&mut self, run: Option<(i64, u64)>) {
        if let Some((latency_us, count)) = run {
            self.interval.latencies.record(latency_us, count);
        }
    }

    /// Ends an interval of the timeline and gives what was measured in it.
    pub fn end_interval(&mut self) -> Sample {
        let last = self.latency.end();
        self.keep(last);
        let interval = std::mem::take(&mut self.interval);
        self.ended.merge(&interval);
        interval
    }

    /// Messages left out as warm-up.
    pub fn warmup_messages(&self) -> u64 {
        self.warmup_messages
    }

    /// Messages left out because they were due after the window.
    pub fn messages_beyond_window(&self) -> u64 {
        self.messages_beyond_window
    }

    /// The row as of now; `None` while nothing was measured.
    pub fn row(&mut self, time_from_start_seconds: f64) -> Option<PercentileRow> {
        let last = self.latency.end();
        self.keep(last);
        // A histogram is added up here, some times a second, and not with every message.
        let latencies = &mut self.so_far;
        latencies.clear();
        latencies.merge(&self.ended.latencies);
        latencies.merge(&self.interval.latencies);
        let mut percentiles_seconds = [0.0; 5];
        for (value, percentile) in percentiles_seconds.iter_mut().zip(REPORTED_PERCENTILES) {
            *value = latencies.percentile_us(percentile)? as f64 / 1e6;
        }
        Some(PercentileRow { time_from_start_seconds, percentiles_seconds })
    }

    /// Everything that was measured.
    pub fn into_total(mut self) -> Sample {
        self.end_interval();
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_decided_by_when_a_message_was_due() {
        let mut meter = Meter::new(1_000..3_000);
        assert!(!meter.record(10_000, 99_000, 1)); // first: the warm-up ends at 11,000
        assert!(!meter.record(10_999, 99_000, 1)); // due within it, came long after: left out
        assert!(meter.row(0.0).is_none());
        assert!(meter.record(11_000, 11_500, 1)); // due at its end: counts
        assert!(meter.record(12_000, 11_900, 1)); // a clock ran back: counted apart
        assert!(!meter.record(13_000, 13_001, 1)); // due at the end of the window: left out
        assert_eq!((meter.warmup_messages(), meter.messages_beyond_window()), (2, 1));
        assert_eq!(meter.row(2.5).unwrap().percentiles_seconds, [0.0005; 5]);
        let total = meter.into_total().latencies;
        assert_eq!((total.count(), total.negative()), (1, 1));
    }

    #[test]
    fn without_a_warm_up_every_message_counts() {
        let mut meter = Meter::new(0..i64::MAX);
        meter.record(10_000, 10_400, 1);
        assert!(meter.record(9_000, 9_400, 1)); // another producer's, due before the first that came
        assert_eq!(meter.warmup_messages(), 0);
        assert_eq!(meter.into_total().latencies.summary().unwrap().p50_us, 400);
    }

    #[test]
    fn the_intervals_add_up_to_the_total() {
        let mut meter = Meter::new(0..i64::MAX);
        let mut sum = Sample::default();
        for interval in 0..4 {
            for message in 0..1_000 {
                let (due_us, latency_us) = (interval * 1_000 + message, 100 + message / 7 * interval);
                assert!(meter.record(due_us, due_us + latency_us, 1));
                meter.record_stage(Stage::Sealed, latency_us - 40, 1);
                meter.record_stage(Stage::Delivered, 40, 1);
            }
            sum.merge(&meter.end_interval());
        }
        let total = meter.into_total();
        assert_eq!(total.latencies.summary(), sum.latencies.summary());
        assert_eq!(total.stages.summary(), sum.stages.summary());
        let stages: f64 = total.stages.summary().iter().map(|stage| stage.mean_us).sum();
        assert!((stages - total.latencies.summary().unwrap().mean_us).abs() < 1e-6);
    }
}
