//! What rounds come to, and what can be told from them. Pure numbers.

use serde::{Deserialize, Serialize};

/// A figure of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Messages a second of the flood.
    MessagesPerSecond,
    /// Processor time a message of the flood, in microseconds.
    CpuUsPerMessage,
    /// Median latency of the paced job, in microseconds.
    LatencyP50Us,
    /// The same less half the commit interval, which a message waits on average whatever carries it.
    LatencyP50BeyondHalfIntervalUs,
    /// 99th percentile of the latency, in microseconds.
    LatencyP99Us,
    /// Processor time a message of the paced job, in microseconds.
    PacedCpuUsPerMessage,
}

impl Metric {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::MessagesPerSecond,
        Self::CpuUsPerMessage,
        Self::LatencyP50BeyondHalfIntervalUs,
        Self::LatencyP50Us,
        Self::LatencyP99Us,
        Self::PacedCpuUsPerMessage,
    ];

    fn is_better_when_higher(self) -> bool {
        self == Self::MessagesPerSecond
    }
}

/// A metric's values, a round each, and the three that speak for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The best round.
    pub best: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The worst round.
    pub worst: f64,
    /// All of them, in order.
    pub rounds: Vec<f64>,
}

impl Figures {
    /// Those of `rounds`, of which there is at least one.
    pub(super) fn of(metric: Metric, rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        let (best, worst) = if metric.is_better_when_higher() { (high, low) } else { (low, high) };
        Self { best, median, worst, rounds }
    }

    /// From the best round to the worst; `None` where a single one tells nothing about it.
    fn spread(&self) -> Option<f64> {
        (self.rounds.len() > 1).then(|| (self.best - self.worst).abs())
    }
}

/// Whether the rounds tell two layers apart: their medians differ by at least as much as the rounds of either
/// differ among themselves, and there was more than one round.
pub(super) fn are_told_apart(upper: &Figures, lower: &Figures) -> bool {
    let spread = upper.spread().zip(lower.spread()).map(|(upper, lower)| upper.max(lower));
    spread.is_some_and(|spread| (upper.median - lower.median).abs() >= spread)
}

/// The upper layer's median as a multiple of the lower one's. `None` where the two can't be told apart, and of
/// figures that have no multiple: nothing, or a latency below half the interval.
pub(super) fn ratio(upper: &Figures, lower: &Figures) -> Option<f64> {
    let has_multiple = lower.median > 0.0 && upper.median > 0.0;
    (has_multiple && are_told_apart(upper, lower)).then(|| upper.median / lower.median)
}

/// A row in which the store's own round trips take this share of the time says more about the store than
/// about who asks it.
const STORE_BOUND: f64 = 0.5;

/// Whether `share`, that of the store's round trips in the time, makes the store what is measured.
pub(super) fn is_store_bound(share: f64) -> bool {
    share >= STORE_BOUND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rounds: &[f64]) -> Figures {
        Figures::of(Metric::LatencyP50Us, rounds.to_vec())
    }

    #[test]
    fn the_best_is_the_lowest_time_and_the_highest_rate() {
        let figures = times(&[3.0, 1.0, 2.0]);
        assert_eq!((figures.best, figures.median, figures.worst), (1.0, 2.0, 3.0));
        assert_eq!(figures.rounds, [3.0, 1.0, 2.0]);
        let figures = Figures::of(Metric::MessagesPerSecond, vec![3.0, 1.0, 2.0]);
        assert_eq!((figures.best, figures.median, figures.worst), (3.0, 2.0, 1.0));
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_two_in_the_middle() {
        assert_eq!(times(&[4.0, 1.0, 2.0, 9.0]).median, 3.0);
        assert_eq!(times(&[5.0]).median, 5.0);
    }

    #[test]
    fn what_differs_by_more_than_its_rounds_has_a_ratio() {
        assert_eq!(ratio(&times(&[3.0, 3.1, 2.9]), &times(&[1.5, 1.4, 1.6])), Some(2.0));
    }

    #[test]
    fn what_differs_by_less_than_the_rounds_of_either_is_indistinguishable() {
        let (steady, restless) = (times(&[10.0, 10.1, 9.9]), times(&[11.0, 9.0, 14.0]));
        assert_eq!(ratio(&steady, &restless), None);
        assert_eq!(ratio(&restless, &steady), None);
    }

    #[test]
    fn a_difference_as_large_as_the_spread_is_one() {
        assert_eq!(ratio(&times(&[3.0, 4.0, 5.0]), &times(&[2.0, 2.0, 2.0])), Some(2.0));
        // Rounds without any spread differ by nothing.
        assert_eq!(ratio(&times(&[2.0, 2.0]), &times(&[2.0, 2.0])), Some(1.0));
    }

    #[test]
    fn a_single_round_tells_nothing_apart() {
        assert_eq!(ratio(&times(&[100.0]), &times(&[1.0, 1.0])), None);
        assert_eq!(ratio(&times(&[1.0, 1.0]), &times(&[100.0])), None);
    }

    #[test]
    fn there_is_no_multiple_of_nothing() {
        // A latency that is below half the interval.
        assert_eq!(ratio(&times(&[5.0, 5.0]), &times(&[-1.0, -1.0])), None);
        assert!(are_told_apart(&times(&[5.0, 5.0]), &times(&[-1.0, -1.0])));
        assert_eq!(ratio(&times(&[-5.0, -5.0]), &times(&[1.0, 1.0])), None);
        assert_eq!(ratio(&times(&[5.0, 5.0]), &times(&[0.0, 0.0])), None);
    }

    #[test]
    fn half_of_the_time_is_the_stores() {
        assert!(is_store_bound(0.5) && is_store_bound(3.0) && !is_store_bound(0.499));
    }
}
