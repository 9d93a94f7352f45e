//! A histogram of latencies that drops nothing: three significant digits, in microseconds, growing to fit. Negative
//! latencies (a clock ran back, or two hosts disagree) are counted apart and never clamped to zero.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::percentiles::is_supported;

/// Latencies in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_us: u128,
    max_us: u64,
    min_us: u64,
    negative: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histogram: empty_histogram(), sum_us: 0, max_us: 0, min_us: u64::MAX, negative: 0 }
    }
}

#[expect(clippy::expect_used, reason = "three significant digits are within the crate's bounds")]
fn empty_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram of three significant digits")
}

impl Latencies {
    /// Records `count` latencies of `latency_us` each.
    pub fn record(&mut self, latency_us: i64, count: u64) {
        if count == 0 {
            return;
        }
        let Ok(value_us) = u64::try_from(latency_us) else {
            self.negative += count;
            return;
        };
        // It grows to hold any value up to 2^63 and this one is at most that, so this can't fail.
        let _ = self.histogram.record_n(value_us, count);
        self.sum_us += u128::from(value_us) * u128::from(count);
        self.max_us = self.max_us.max(value_us);
        self.min_us = self.min_us.min(value_us);
    }

    /// Forgets all values and keeps the room for them.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.sum_us, self.max_us, self.min_us, self.negative) = (0, 0, u64::MAX, 0);
    }

    /// Adds another's values to these.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same precision and grow to fit, so this can't fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum_us += other.sum_us;
        self.max_us = self.max_us.max(other.max_us);
        self.min_us = self.min_us.min(other.min_us);
        self.negative += other.negative;
    }

    /// The histogram itself, for a log.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Adds the values of a histogram that was read from a log. Extremes are then known to within 0.1 % only.
    ///
    /// # Errors
    /// When its values don't fit.
    pub fn add_histogram(&mut self, histogram: &Histogram<u64>) -> Result<(), hdrhistogram::AdditionError> {
        self.histogram.add(histogram)?;
        if !histogram.is_empty() {
            self.sum_us += (histogram.mean() * histogram.len() as f64).round() as u128;
            self.max_us = self.max_us.max(histogram.max());
            self.min_us = self.min_us.min(histogram.min());
        }
        Ok(())
    }

    /// How many values are in the histogram; negative ones are not.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// How many negative values were recorded.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    /// The nearest-rank percentile in microseconds, to within 0.1 % above and never more than the largest recorded;
    /// `None` where nothing was recorded.
    pub fn percentile_us(&self, percentile: f64) -> Option<u64> {
        (self.count() > 0)
            .then(|| self.histogram.value_at_quantile(percentile / 100.0).clamp(self.min_us, self.max_us))
    }

    /// The figures of a summary; `None` where nothing was recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        let at = |percentile| self.percentile_us(percentile);
        Some(LatencySummary {
            count: self.count(),
            min_us: self.min_us,
            mean_us: self.sum_us as f64 / self.count() as f64,
            p50_us: at(50.0)?,
            p75_us: at(75.0)?,
            p85_us: at(85.0)?,
            p95_us: at(95.0)?,
            p99_us: at(99.0)?,
            max_us: self.max_us,
            unsupported_percentiles: unsupported_percentiles(self.count(), &[50, 75, 85, 95, 99]),
        })
    }
}

/// Those of the percentiles that `count` values don't support.
pub(super) fn unsupported_percentiles(count: u64, percentiles: &[u8]) -> Vec<u8> {
    percentiles.iter().copied().filter(|&percentile| !is_supported(f64::from(percentile), count)).collect()
}

/// Figures of a set of latencies, in microseconds. Percentiles are nearest-rank, within 0.1 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many values.
    pub count: u64,
    /// Smallest, exact.
    pub min_us: u64,
    /// Mean, exact.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 75th percentile.
    pub p75_us: u64,
    /// 85th percentile.
    pub p85_us: u64,
    /// 95th percentile.
    pub p95_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Largest, exact.
    pub max_us: u64,
    /// Which of the percentiles (`[95, 99]`) have fewer than ten values beyond them and say little.
    pub unsupported_percentiles: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nearest_rank(sorted: &[u64], percentile: f64) -> u64 {
        let rank = (percentile / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank - 1]
    }

    proptest! {
        #[test]
        fn percentiles_are_nearest_rank_within_a_thousandth(
            values in proptest::collection::vec(0u64..200_000_000, 1..400),
        ) {
            let mut latencies = Latencies::default();
            for &value in &values {
                latencies.record(value as i64, 1);
            }
            let mut sorted = values;
            sorted.sort_unstable();
            for percentile in [50.0, 75.0, 85.0, 95.0, 99.0, 99.9, 100.0] {
                let exact = nearest_rank(&sorted, percentile);
                let got = latencies.percentile_us(percentile).unwrap();
                prop_assert!(got >= exact && got as f64 <= exact as f64 * 1.001, "{} {} {}", percentile, got, exact);
                prop_assert!(got <= sorted[sorted.len() - 1]);
            }
        }

        #[test]
        fn merging_is_recording_everything_in_one(
            a in proptest::collection::vec(-1000i64..1_000_000_000, 0..100),
            b in proptest::collection::vec(-1000i64..1_000_000_000, 0..100),
        ) {
            let of = |values: &[i64]| {
                let mut latencies = Latencies::default();
                values.iter().for_each(|&value| latencies.record(value, 1));
                latencies
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let whole = of(&[a, b].concat());
            prop_assert_eq!(merged.summary(), whole.summary());
            prop_assert_eq!(merged.negative(), whole.negative());
        }
    }

    #[test]
    fn what_is_cleared_is_as_good_as_new() {
        let mut latencies = Latencies::default();
        for us in [-5, 3_000_000, 7] {
            latencies.record(us, 2);
        }
        latencies.clear();
        assert!(latencies.summary().is_none() && latencies.negative() == 0);
        latencies.record(1_000, 1);
        let mut new = Latencies::default();
        new.record(1_000, 1);
        assert_eq!(latencies.summary(), new.summary());
    }

    #[test]
    fn few_values_have_percentiles_among_them() {
        for n in 1..=3 {
            let mut latencies = Latencies::default();
            (1..=n).for_each(|i| latencies.record(i * 1_000_003, 1));
            let summary = latencies.summary().unwrap();
            assert_eq!(summary.max_us, n as u64 * 1_000_003);
            assert!(summary.p99_us <= summary.max_us && summary.p50_us >= summary.min_us);
        }
    }

    #[test]
    fn percentiles_with_fewer_than_ten_values_beyond_them_are_marked() {
        for (count, unsupported) in [
            (1, &[50, 75, 85, 95, 99][..]),
            (19, &[50, 75, 85, 95, 99]),
            (20, &[75, 85, 95, 99]),
            (199, &[95, 99]),
            (200, &[99]),
            (999, &[99]),
            (1_000, &[]),
        ] {
            let mut latencies = Latencies::default();
            latencies.record(5, count);
            assert_eq!(latencies.summary().unwrap().unsupported_percentiles, unsupported, "{count}");
        }
    }

    #[test]
    fn nothing_recorded_has_no_percentiles() {
        assert_eq!(Latencies::default().summary(), None);
        let mut negative = Latencies::default();
        negative.record(-5, 2);
        assert_eq!((negative.summary(), negative.negative()), (None, 2));
    }

    #[test]
    fn values_beyond_any_range_are_kept() {
        let mut latencies = Latencies::default();
        latencies.record(i64::MAX, 1);
        latencies.record(1, 1);
        assert_eq!(latencies.count(), 2);
        assert_eq!(latencies.summary().unwrap().max_us, i64::MAX as u64);
    }
}
