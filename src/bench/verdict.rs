//! What a rate's figures say of the store: does it carry this rate?
//!
//! | verdict | when |
//! |---|---|
//! | `sustained` | achieved at least 99 % of the target; the backlog grows by at most 1 % of the rate (Theil-Sen slope); lag at the end of sending at most three commit intervals plus p99 |
//! | `degrading` | it drained, but one of these fails |
//! | `collapsed` | the drain deadline passed with versions unread |
//! | `lossy` | committed messages were lost, unreadable, doubled or reordered |
//!
//! A failing verdict is marked `harness-bound` where it may be our own fault: a role used more than
//! 90 % of a core, or the pacer was late without the queue holding it up. Then the store isn't proven
//! slow.

use std::time::Duration;

use crate::events::{ConsumerSummary, ProducerSummary};
use crate::measure::theil_sen_slope;
use crate::report::{Outcome, TimelineRow, Verdict};
use crate::units::Rate;

/// What a verdict is found from.
pub(super) struct Evidence<'a> {
    pub rate: Rate,
    pub commit_interval: Duration,
    pub interval_seconds: f64,
    pub warmup_seconds: f64,
    pub collapsed: bool,
    pub producer: &'a ProducerSummary,
    pub consumer: &'a ConsumerSummary,
    pub timeline: &'a [TimelineRow],
}

const LEAST_ACHIEVED: f64 = 0.99;
const MOST_BACKLOG_GROWTH: f64 = 0.01;
const MOST_LAG_INTERVALS: f64 = 3.0;
const BUSY_CORE: f64 = 0.9;
/// A pacer whose 99th percentile is later than this is late; it wakes every millisecond.
const LATE_PACER_US: u64 = 20_000;

/// The verdict, with what speaks against `sustained`.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Verdict {
    let mut reasons = Vec::new();
    if !evidence.consumer.is_whole() && !evidence.collapsed {
        reasons.push("committed messages did not come through whole".to_owned());
        return Verdict { outcome: Outcome::Lossy, harness_bound: false, reasons };
    }
    reasons.extend(evidence.shortfall());
    reasons.extend(evidence.growth());
    reasons.extend(evidence.lag());
    let outcome = if evidence.collapsed {
        reasons.push("the consumer had not caught up when the drain deadline passed".to_owned());
        Outcome::Collapsed
    } else if reasons.is_empty() {
        Outcome::Sustained
    } else {
        Outcome::Degrading
    };
    let bounds = if outcome == Outcome::Sustained { Vec::new() } else { evidence.harness_bounds() };
    let harness_bound = !bounds.is_empty();
    reasons.extend(bounds);
    Verdict { outcome, harness_bound, reasons }
}

impl Evidence<'_> {
    fn shortfall(&self) -> Option<String> {
        let (achieved, target) = (self.producer.achieved_rate?, self.rate.per_second());
        (achieved < LEAST_ACHIEVED * target).then(|| {
            format!("achieved {achieved:.1} a second, {:.1} % of the target", 100.0 * achieved / target)
        })
    }

    /// The timeline while messages were due, the warm-up and the last, partial interval left out.
    fn sending(&self) -> impl Iterator<Item = &TimelineRow> {
        let last = self.timeline.iter().rposition(|row| row.sent > 0).unwrap_or(0);
        self.timeline[..last]
            .iter()
            .filter(|row| row.time_from_start_seconds - self.interval_seconds >= self.warmup_seconds)
    }

    fn growth(&self) -> Option<String> {
        let points: Vec<_> =
            self.sending().map(|row| (row.time_from_start_seconds, row.backlog as f64)).collect();
        let (slope, rate) = (theil_sen_slope(&points)?, self.rate.per_second());
        // The backlog goes up and down with the commits; two intervals of a short run are no trend.
        (points.len() >= 5 && slope > MOST_BACKLOG_GROWTH * rate).then(|| {
            format!(
                "the backlog grows by {slope:.1} messages a second, {:.1} % of the rate",
                100.0 * slope / rate
            )
        })
    }

    fn lag(&self) -> Option<String> {
        let at_end = self.timeline.iter().rfind(|row| row.sent > 0)?;
        let lag_seconds = at_end.lag_us? as f64 / 1e6;
        let p99_seconds = self.consumer.latency.map_or(0.0, |latency| latency.p99_us as f64 / 1e6);
        // The row is of the end of its interval, up to one interval after the last message was due.
        let most_seconds =
            MOST_LAG_INTERVALS * self.commit_interval.as_secs_f64() + p99_seconds + self.interval_seconds;
        (lag_seconds > most_seconds)
            .then(|| format!("at the end of sending the consumer was {lag_seconds:.2} s behind, more than {most_seconds:.2} s"))
    }

    fn harness_bounds(&self) -> Vec<String> {
        let (producer, consumer) = (self.producer, self.consumer);
        let mut bounds = Vec::new();
        for (role, cpu_seconds, seconds) in [
            ("producer", producer.effort.cpu_seconds, producer.sending_seconds),
            ("consumer", consumer.effort.cpu_seconds, consumer.receiving_seconds),
        ] {
            let share = cpu_seconds / seconds.max(1e-9);
            if share > BUSY_CORE && seconds > 1.0 {
                bounds.push(format!("the {role} used {:.0} % of a core", 100.0 * share));
            }
        }
        let late_us = producer.send_delay.map_or(0, |delay| delay.p99_us);
        if late_us > LATE_PACER_US && producer.held_up_seconds < 0.01 * producer.sending_seconds {
            bounds
                .push(format!("the pacer was {:.1} ms late (p99) on its own account", late_us as f64 / 1e3));
        }
        bounds
    }
}
