//! What rounds come to, and how layers compare. Pure numbers; `schemas/layers.schema.json` says what each field is.

use serde::{Deserialize, Serialize};

use super::job::{Layer, Outcome};

/// A figure of a layer, in the order of the tables. The first two are of the flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Metric {
    MessagesPerSecond,
    /// Processor time a message.
    CpuUsPerMessage,
    /// Half the commit interval is waited on average whatever carries a message.
    LatencyP50BeyondHalfIntervalUs,
    LatencyP50Us,
    LatencyP99Us,
    PacedCpuUsPerMessage,
}

impl Metric {
    pub(super) const ALL: [Self; 6] = [
        Self::MessagesPerSecond,
        Self::CpuUsPerMessage,
        Self::LatencyP50BeyondHalfIntervalUs,
        Self::LatencyP50Us,
        Self::LatencyP99Us,
        Self::PacedCpuUsPerMessage,
    ];

    pub(super) fn is_of_flood(self) -> bool {
        matches!(self, Self::MessagesPerSecond | Self::CpuUsPerMessage)
    }

    /// Its value in a run of its job.
    pub(super) fn of(self, run: &Outcome, half_interval_us: f64) -> f64 {
        let latency = run.latency.as_ref();
        let (p50_us, p99_us) = latency.map_or((0, 0), |latency| (latency.p50_us, latency.p99_us));
        match self {
            Self::MessagesPerSecond => run.messages_per_second,
            Self::CpuUsPerMessage | Self::PacedCpuUsPerMessage => run.cpu_us_per_message,
            Self::LatencyP50BeyondHalfIntervalUs => p50_us as f64 - half_interval_us,
            Self::LatencyP50Us => p50_us as f64,
            Self::LatencyP99Us => p99_us as f64,
        }
    }
}

/// A metric of a layer: its values, a round each, the best of them, the worst, and the middle one or the mean of the two in the middle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) layer: Layer,
    pub(super) metric: Metric,
    pub(super) best: f64,
    pub(super) median: f64,
    pub(super) worst: f64,
    rounds: Vec<f64>,
    store_share: Option<f64>,
    pub(super) store_bound: bool,
}

impl Row {
    /// That of `rounds`, of which there is at least one. `store_share` is the time that the store's own round trips of a
    /// batch take, as a share of the time that a figure stands for; `None` for processor time, which the store takes none of.
    pub(super) fn of(
        layer: Layer,
        metric: Metric,
        rounds: Vec<f64>,
        store_share: impl Fn(f64) -> Option<f64>,
    ) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let median = (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0;
        let (best, worst) = match metric {
            Metric::MessagesPerSecond => (sorted[last], sorted[0]),
            _ => (sorted[0], sorted[last]),
        };
        let store_share = store_share(median);
        let store_bound = store_share.is_some_and(|share| share >= 0.5);
        Self { layer, metric, best, median, worst, rounds, store_share, store_bound }
    }

    fn spread(&self) -> f64 {
        (self.best - self.worst).abs()
    }
}

/// A metric of two layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Comparison {
    pub(super) upper: Layer,
    pub(super) lower: Layer,
    pub(super) metric: Metric,
    pub(super) ratio: Option<f64>,
    pub(super) indistinguishable: bool,
    /// Whether both are.
    pub(super) store_bound: bool,
}

impl Comparison {
    /// Two layers are indistinguishable where there was one round only, or their medians differ by less than the rounds of
    /// either differ among themselves. There is no ratio then, nor to nothing or to a latency below half the interval.
    pub(super) fn of(upper: &Row, lower: &Row) -> Self {
        let difference = (upper.median - lower.median).abs();
        let one_round = upper.rounds.len().min(lower.rounds.len()) < 2;
        let indistinguishable = one_round || difference < upper.spread().max(lower.spread());
        let has_ratio = !indistinguishable && lower.median > 0.0 && upper.median > 0.0;
        Self {
            upper: upper.layer,
            lower: lower.layer,
            metric: upper.metric,
            ratio: has_ratio.then(|| upper.median / lower.median),
            indistinguishable,
            store_bound: upper.store_bound && lower.store_bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: Metric, rounds: &[f64], share: f64) -> Row {
        Row::of(Layer::Raw, metric, rounds.to_vec(), |_| Some(share))
    }

    fn times(rounds: &[f64]) -> Row {
        row(Metric::LatencyP50Us, rounds, 1.0)
    }

    fn ratio(upper: &Row, lower: &Row) -> Option<f64> {
        Comparison::of(upper, lower).ratio
    }

    #[test]
    fn the_best_is_the_lowest_time_and_the_highest_rate() {
        let figures = times(&[3.0, 1.0, 2.0]);
        assert_eq!((figures.best, figures.median, figures.worst), (1.0, 2.0, 3.0));
        assert_eq!(figures.rounds, [3.0, 1.0, 2.0]);
        let figures = row(Metric::MessagesPerSecond, &[3.0, 1.0, 2.0], 1.0);
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
        assert!(!Comparison::of(&times(&[5.0, 5.0]), &times(&[-1.0, -1.0])).indistinguishable);
        assert_eq!(ratio(&times(&[-5.0, -5.0]), &times(&[1.0, 1.0])), None);
        assert_eq!(ratio(&times(&[5.0, 5.0]), &times(&[0.0, 0.0])), None);
    }

    #[test]
    fn half_of_the_time_is_the_stores() {
        let is_store_bound = |share| row(Metric::LatencyP50Us, &[1.0], share).store_bound;
        assert!(is_store_bound(0.5) && is_store_bound(3.0) && !is_store_bound(0.499));
    }

    #[test]
    fn a_comparison_has_a_ratio_or_says_that_there_is_none() {
        let row = |layer, rounds: &[f64], share| {
            Row::of(layer, Metric::LatencyP50Us, rounds.to_vec(), |_| Some(share))
        };
        let raw = row(Layer::Raw, &[10.0, 11.0], 1.0);
        let queue = row(Layer::Queue, &[20.0, 22.0], 0.1);
        let service = row(Layer::Service, &[19.0, 25.0], 1.0);
        let queue_to_raw = Comparison::of(&queue, &raw);
        assert_eq!((queue_to_raw.ratio, queue_to_raw.indistinguishable), (Some(2.0), false));
        assert!(!queue_to_raw.store_bound);
        let service_to_queue = Comparison::of(&service, &queue);
        assert_eq!((service_to_queue.ratio, service_to_queue.indistinguishable), (None, true));
        assert!(Comparison::of(&service, &raw).store_bound);
    }
}
