//! The latencies of one run as they come: warm-up left out, cumulative percentiles at any moment.

use super::latency::{Latencies, LatencySummary};

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

/// Takes each message's due and received time.
#[derive(Clone, Debug)]
pub struct Meter {
    warmup_us: i64,
    /// When the warm-up ends: counted from the first due stamp that was seen.
    warm_from_us: Option<i64>,
    latencies: Latencies,
    warmup_messages: u64,
}

impl Meter {
    /// Leaves messages out that were due within `warmup_us` after the first.
    pub fn new(warmup_us: i64) -> Self {
        Self { warmup_us, warm_from_us: None, latencies: Latencies::default(), warmup_messages: 0 }
    }

    /// A message due at `due_us` was received at `received_us`, both Unix microseconds. Whether it is in
    /// the warm-up is decided by when it was *due*: one that was due within it is left out however late it
    /// came.
    pub fn record(&mut self, due_us: i64, received_us: i64) {
        let warm_from_us = *self.warm_from_us.get_or_insert(due_us.saturating_add(self.warmup_us));
        if due_us < warm_from_us {
            self.warmup_messages += 1;
        } else {
            self.latencies.record(received_us.saturating_sub(due_us), 1);
        }
    }

    /// Messages left out as warm-up.
    pub fn warmup_messages(&self) -> u64 {
        self.warmup_messages
    }

    /// The latencies after the warm-up.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The figures after the warm-up; `None` where there are none.
    pub fn summary(&self) -> Option<LatencySummary> {
        self.latencies.summary()
    }

    /// The row as of now; `None` while nothing was measured.
    pub fn row(&self, time_from_start_seconds: f64) -> Option<PercentileRow> {
        let mut percentiles_seconds = [0.0; 5];
        for (value, percentile) in percentiles_seconds.iter_mut().zip(REPORTED_PERCENTILES) {
            *value = self.latencies.percentile_us(percentile)? as f64 / 1e6;
        }
        Some(PercentileRow { time_from_start_seconds, percentiles_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_decided_by_when_a_message_was_due() {
        let mut meter = Meter::new(1_000);
        meter.record(10_000, 99_000); // first: the warm-up ends at 11,000
        meter.record(10_999, 99_000); // due within it, came long after: left out
        assert!(meter.row(0.0).is_none());
        meter.record(11_000, 11_500); // due at its end: counts
        meter.record(12_000, 11_900); // a clock ran back: counted apart
        assert_eq!(meter.warmup_messages(), 2);
        assert_eq!(meter.latencies().count(), 1);
        assert_eq!(meter.latencies().negative(), 1);
        assert_eq!(meter.row(2.5).unwrap().percentiles_seconds, [0.0005; 5]);
    }

    #[test]
    fn without_a_warm_up_the_first_message_counts() {
        let mut meter = Meter::new(0);
        meter.record(10_000, 10_400);
        assert_eq!(meter.summary().unwrap().p50_us, 400);
    }
}
