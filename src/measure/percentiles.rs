//! Which percentiles a report shows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use super::meter::REPORTED_PERCENTILES;

/// A choice of percentiles: above 0, at most 100, ascending, each once.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles(Vec<f64>);

impl Percentiles {
    /// The most that are taken.
    pub const MAX: usize = 20;

    /// The percentiles.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    /// Their names as columns: `p50`, `p99.9`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.iter().map(|percentile| format!("p{percentile}"))
    }

    /// Their values; empty where nothing was recorded.
    pub fn of(&self, latencies: &Latencies) -> Vec<ChosenPercentile> {
        self.iter()
            .filter_map(|percentile| {
                let us = latencies.percentile_us(percentile)?;
                let supported = is_supported(percentile, latencies.count());
                Some(ChosenPercentile { percentile, us, supported })
            })
            .collect()
    }
}

impl Default for Percentiles {
    fn default() -> Self {
        Self(REPORTED_PERCENTILES.into())
    }
}

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut percentiles = text
            .split(',')
            .map(|part| match part.trim().parse::<f64>() {
                Ok(percentile) if percentile > 0.0 && percentile <= 100.0 => Ok(percentile),
                _ => Err(format!("`{part}` is not a percentile above 0 and at most 100")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        percentiles.sort_by(f64::total_cmp);
        percentiles.dedup();
        if percentiles.len() > Self::MAX {
            return Err(format!("more than {} percentiles", Self::MAX));
        }
        Ok(Self(percentiles))
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.iter().map(|percentile| percentile.to_string()).collect();
        f.write_str(&texts.join(","))
    }
}

/// Whether `count` values support a percentile: ten of them are expected beyond it. With fewer, another run
/// may well give quite another figure. The 99th needs a thousand values, the median twenty.
pub(super) fn is_supported(percentile: f64, count: u64) -> bool {
    const MIN_BEYOND: f64 = 10.0;
    // A hair's breadth for the float: 99.9 % of 10,000 leave 10.000000000000009.
    count as f64 * (100.0 - percentile) / 100.0 > MIN_BEYOND - 1e-6
}

/// A percentile that was chosen, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChosenPercentile {
    /// Which, above 0 and at most 100.
    pub percentile: f64,
    /// Its value, in microseconds; nearest-rank, within 0.1 %.
    pub us: u64,
    /// Whether at least ten values are expected beyond it; otherwise it says little.
    pub supported: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_sorted_and_survives_its_text_form() {
        let percentiles: Percentiles = "99.9, 50,75,50".parse().unwrap();
        assert_eq!(percentiles.to_string(), "50,75,99.9");
        assert_eq!(percentiles.to_string().parse(), Ok(percentiles.clone()));
        assert_eq!(percentiles.names().collect::<Vec<_>>(), ["p50", "p75", "p99.9"]);
        assert_eq!(Percentiles::default().to_string(), "50,75,85,95,99");
    }

    #[test]
    fn what_is_no_percentile_is_refused() {
        let many: Vec<_> = (1..=21).map(|percentile| percentile.to_string()).collect();
        for text in ["", "0", "-1", "101", "x", "50,", "nan", "inf", &many.join(",")] {
            assert!(text.parse::<Percentiles>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentile_needs_ten_values_beyond_it() {
        for (percentile, count, supported) in [
            (50.0, 20, true),
            (50.0, 19, false),
            (99.0, 1_000, true),
            (99.0, 999, false),
            (99.9, 10_000, true),
            (99.9, 9_999, false),
            (100.0, u64::MAX, false),
        ] {
            assert_eq!(is_supported(percentile, count), supported, "{percentile} of {count}");
        }
    }
}
