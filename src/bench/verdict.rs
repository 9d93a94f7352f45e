//! What a rate's figures say of the store: does it carry this rate? README.md explains the verdicts.

use std::time::Duration;

use crate::events::{ConsumerSummary, ProducerSummary};
use crate::measure::theil_sen_slope;
use crate::report::{Outcome, TimelineRow, Verdict};
use crate::units::Rate;

/// What a verdict is found from.
pub(super) struct Evidence<'a> {
    pub(crate) rate: Rate,
    pub(crate) commit_interval: Duration,
    pub(crate) interval_seconds: f64,
    pub(crate) warmup_seconds: f64,
    pub(crate) collapsed: bool,
    /// The longest that the bench stood still, and an embedded store with it.
    pub(crate) bench_pause_seconds: f64,
    pub(crate) producer: &'a ProducerSummary,
    pub(crate) consumer: &'a ConsumerSummary,
    pub(crate) timeline: &'a [TimelineRow],
}

const MIN_ACHIEVED: f64 = 0.99;
const MAX_BACKLOG_GROWTH: f64 = 0.01;
const MAX_LAG_INTERVALS: f64 = 3.0;
const BUSY_CORE: f64 = 0.9;
/// A busy machine takes a role's processors away for less.
const LONG_PAUSE_SECONDS: f64 = 0.5;
/// A start alone may use a small quota up.
const MAX_THROTTLED_SHARE: f64 = 0.05;
/// A pacer whose 99th percentile is later than this is late; it wakes every millisecond.
const LATE_PACER_US: u64 = 20_000;

/// The verdict, with what speaks against `sustained`.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Verdict {
    let is_whole = evidence.consumer.is_whole();
    let mut reasons: Vec<_> = if is_whole {
        [evidence.shortfall(), evidence.growth(), evidence.lag()].into_iter().flatten().collect()
    } else {
        // What a consumer that had not caught up didn't get to counts as unread, not as lost.
        vec!["committed messages did not come through whole".to_owned()]
    };
    if evidence.collapsed {
        reasons.push("the consumer had not caught up when the drain deadline passed".to_owned());
    }
    let outcome = match (is_whole, evidence.collapsed) {
        (false, _) => Outcome::Lossy,
        (true, true) => Outcome::Collapsed,
        (true, false) if reasons.is_empty() => Outcome::Sustained,
        (true, false) => Outcome::Degrading,
    };
    let mut bounds = match outcome {
        Outcome::Degrading | Outcome::Collapsed => evidence.harness_bounds(),
        Outcome::Sustained | Outcome::Lossy => Vec::new(),
    };
    // A quota makes latencies of its own, at rates that are carried too.
    bounds.extend(evidence.throttled());
    let harness_bound = !bounds.is_empty();
    reasons.extend(bounds);
    Verdict { outcome, harness_bound, reasons }
}

impl Evidence<'_> {
    fn shortfall(&self) -> Option<String> {
        let (achieved, target) = (self.producer.achieved_rate?, self.rate.per_second());
        (achieved < MIN_ACHIEVED * target).then(|| {
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
        (points.len() >= 5 && slope > MAX_BACKLOG_GROWTH * rate && !self.has_caught_up(&points)).then(|| {
            format!(
                "the backlog grows by {slope:.1} messages a second, {:.1} % of the rate",
                100.0 * slope / rate
            )
        })
    }

    /// Whether the store stood still, and what had piled up meanwhile was gone again before the end of the sending.
    /// Without a stall, the sawtooth of the commits could hide a slow growth of the same kind.
    fn has_caught_up(&self, points: &[(f64, f64)]) -> bool {
        const SOME: usize = 3;
        let at_first = points.iter().take(SOME).map(|point| point.1).fold(0.0, f64::max);
        let at_last = points.iter().rev().take(SOME).map(|point| point.1).fold(f64::INFINITY, f64::min);
        self.consumer.store_stalls.count > 0 && at_last <= at_first
    }

    fn lag(&self) -> Option<String> {
        let at_end = self.timeline.iter().rfind(|row| row.sent > 0)?;
        let lag_seconds = at_end.lag_us? as f64 / 1e6;
        let p99_seconds = self.consumer.latency.as_ref().map_or(0.0, |latency| latency.p99_us as f64 / 1e6);
        // The row is of the end of its interval, up to one interval after the last message was due.
        let max_seconds =
            MAX_LAG_INTERVALS * self.commit_interval.as_secs_f64() + p99_seconds + self.interval_seconds;
        (lag_seconds > max_seconds)
            .then(|| format!("at the end of sending the consumer was {lag_seconds:.2} s behind, more than {max_seconds:.2} s"))
    }

    fn throttled(&self) -> impl Iterator<Item = String> {
        let roles = [("producer", self.producer.resources), ("consumer", self.consumer.resources)];
        roles.into_iter().filter_map(|(role, resources)| {
            let (quota, share) = resources.cpu_quota.zip(resources.throttled_share)?;
            (share > MAX_THROTTLED_SHARE).then(|| {
                let percent = 100.0 * share;
                format!("the {role} was throttled in {percent:.0} % of the periods of its quota of {quota:.2} processors")
            })
        })
    }

    fn harness_bounds(&self) -> Vec<String> {
        let (producer, consumer) = (self.producer, self.consumer);
        let mut bounds = Vec::new();
        if self.bench_pause_seconds >= LONG_PAUSE_SECONDS {
            bounds.push(format!(
                "the bench itself stood still for {:.1} s, and an embedded store with it",
                self.bench_pause_seconds
            ));
        }
        for (role, resources, seconds) in [
            ("producer", &producer.resources, producer.sending_seconds),
            ("consumer", &consumer.resources, consumer.receiving_seconds),
        ] {
            if resources.longest_pause_seconds >= LONG_PAUSE_SECONDS {
                bounds.push(format!("the {role} stood still for {:.1} s", resources.longest_pause_seconds));
            }
            let share = resources.cpu_seconds / seconds.max(1e-9);
            if share > BUSY_CORE && seconds > 1.0 {
                bounds.push(format!("the {role} used {:.0} % of a core", 100.0 * share));
            }
        }
        let late_us = producer.send_delay.as_ref().map_or(0, |delay| delay.p99_us);
        if late_us > LATE_PACER_US && producer.held_up_seconds < 0.01 * producer.sending_seconds {
            let late_ms = late_us as f64 / 1e3;
            bounds.push(format!("the pacer was {late_ms:.1} ms late (p99) on its own account"));
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn latency(p99_us: u64) -> Value {
        json!({ "count": 1000, "min_us": 1, "mean_us": 50.0, "p50_us": 50, "p75_us": 75, "p85_us": 85, "p95_us": 95,
                "p99_us": p99_us, "max_us": p99_us, "unsupported_percentiles": [] })
    }

    /// A run of 20 s at 1,000 a second, all well; tests change one thing.
    struct Run {
        producer: Value,
        consumer: Value,
        timeline: Vec<TimelineRow>,
        collapsed: bool,
        bench_pause_seconds: f64,
    }

    impl Run {
        fn well() -> Self {
            let by = json!({ "producer": 0, "epoch": "67e55044-10b1-426f-9247-bb680e5fe0c8" });
            let stream = json!({ "stream": by, "received": 20_000, "ended_with": 20_000, "lost": 0, "first_lost": [],
                                 "duplicated": 0, "out_of_order": 0, "beyond_end": 0 });
            let resources = json!({ "cpu_seconds": 2.0, "peak_rss_bytes": 30_000_000, "longest_pause_seconds": 0.01, "cpu_quota": null, "throttled_share": null });
            let row = |second: u32| TimelineRow {
                time_from_start_seconds: f64::from(second),
                sent: if second <= 20 { 1_000 } else { 0 },
                received: 1_000,
                backlog: 500 + u64::from(second % 3),
                lag_us: Some(150_000),
                ..TimelineRow::default()
            };
            Self {
                producer: json!({
                    "producer": 0, "epoch": "67e55044-10b1-426f-9247-bb680e5fe0c8", "planned": 20_000,
                    "committed": 20_000, "sending_seconds": 20.0, "achieved_rate": 999.9, "send_delay": latency(900),
                    "held_up_seconds": 0.0, "files": 200, "file_bytes": 400_000, "commits": 201, "commit_retries": 0,
                    "conflicts": 0, "wasted_data_puts": 0, "wasted_commit_puts": 0, "commit_time": null, "cold_open_seconds": 0.02,
                    "checkpoints": { "made": 0, "failed": 0, "skipped": 0, "abandoned": 0 }, "checkpoint_requests": [], "resources": resources, "interrupted": false, "store_server": null, "wall_clock_step_us": 0, "store_clock": null,
                    "store_stalls": { "count": 0, "longest_seconds": 0.0, "total_seconds": 0.0 }, "requests": [],
                    "running_requests": [],
                }),
                consumer: json!({
                    "ended": "end_of_stream", "received": 20_000, "warmup": 2_000, "beyond_window": 0, "latency": latency(110_000),
                    "percentiles": [], "latency_since_handed_over": null, "stages": [], "negative_latencies": 0, "unreadable": 0, "unstamped": 0, "open_streams": [], "lost_untracked": 0, "lost_files": 0,
                    "retractions": 0, "integrity": { "streams": [stream] }, "cold_open_seconds": null, "first_version": 0, "last_version": 200,
                    "receiving_seconds": 20.0, "wall_clock_step_us": 0, "store_clock": null,
                    "store_stalls": { "count": 0, "longest_seconds": 0.0, "total_seconds": 0.0 }, "recovery_seconds": null, "resources": resources, "requests": [],
                    "running_requests": [],
                }),
                timeline: (1..=21).map(row).collect(),
                collapsed: false,
                bench_pause_seconds: 0.0,
            }
        }

        fn verdict(&self) -> Verdict {
            let producer = serde_json::from_value(self.producer.clone()).unwrap();
            let consumer = serde_json::from_value(self.consumer.clone()).unwrap();
            verdict(&Evidence {
                rate: "1000".parse().unwrap(),
                commit_interval: Duration::from_millis(100),
                interval_seconds: 1.0,
                warmup_seconds: 2.0,
                collapsed: self.collapsed,
                bench_pause_seconds: self.bench_pause_seconds,
                producer: &producer,
                consumer: &consumer,
                timeline: &self.timeline,
            })
        }
    }

    #[test]
    fn a_rate_that_is_carried_is_sustained() {
        let verdict = Run::well().verdict();
        assert_eq!((verdict.outcome, verdict.reasons.as_slice()), (Outcome::Sustained, [].as_slice()));
        assert_eq!(verdict.to_string(), "sustained");
    }

    #[test]
    fn a_rate_that_is_not_reached_degrades() {
        let mut run = Run::well();
        run.producer["achieved_rate"] = json!(989.0);
        let verdict = run.verdict();
        assert_eq!(verdict.to_string(), "degrading");
        assert!(verdict.reasons[0].contains("98.9 % of the target"), "{verdict:?}");
    }

    #[test]
    fn a_growing_backlog_degrades_and_one_that_goes_up_and_down_does_not() {
        let mut run = Run::well();
        for (second, row) in run.timeline.iter_mut().enumerate() {
            row.backlog = 500 + 11 * second as u64;
        }
        assert!(run.verdict().reasons[0].contains("the backlog grows by 11.0"), "{:?}", run.verdict());
        for (second, row) in run.timeline.iter_mut().enumerate() {
            row.backlog = if second % 2 == 0 { 100 } else { 900 };
        }
        assert_eq!(run.verdict().outcome, Outcome::Sustained);
    }

    #[test]
    fn a_backlog_of_a_stall_that_is_caught_up_with_is_no_growth() {
        let mut run = Run::well();
        run.consumer["store_stalls"] = json!({ "count": 1, "longest_seconds": 10.0, "total_seconds": 10.0 });
        for (second, row) in run.timeline.iter_mut().enumerate() {
            let stalled = (5..17).contains(&second).then_some(1_000 * (second as u64 - 4));
            row.backlog = 500 + stalled.unwrap_or(0);
        }
        assert_eq!(run.verdict().outcome, Outcome::Sustained, "{:?}", run.verdict());
        // Without a stall of the store, it is the trend that counts.
        run.consumer["store_stalls"]["count"] = json!(0);
        assert!(run.verdict().reasons[0].contains("the backlog grows"), "{:?}", run.verdict());
        // So it does where the backlog stays.
        run.consumer["store_stalls"]["count"] = json!(1);
        run.timeline[16..].iter_mut().for_each(|row| row.backlog = 12_500);
        assert!(run.verdict().reasons[0].contains("the backlog grows"), "{:?}", run.verdict());
    }

    #[test]
    fn a_consumer_far_behind_at_the_end_degrades() {
        let mut run = Run::well();
        run.timeline[19].lag_us = Some(1_500_000);
        let verdict = run.verdict();
        assert_eq!(verdict.outcome, Outcome::Degrading);
        assert!(verdict.reasons[0].contains("1.50 s behind"), "{verdict:?}");
    }

    #[test]
    fn an_undrained_rate_collapsed_and_is_lossy_where_what_did_come_was_not_whole() {
        let mut run = Run::well();
        run.collapsed = true;
        run.consumer["integrity"]["streams"][0]["received"] = json!(15_000);
        run.consumer["integrity"]["streams"][0]["ended_with"] = json!(null);
        assert_eq!(run.verdict().outcome, Outcome::Collapsed);
        for field in ["lost", "duplicated", "out_of_order"] {
            let before = run.consumer["integrity"]["streams"][0][field].take();
            run.consumer["integrity"]["streams"][0][field] = json!(5);
            let verdict = run.verdict();
            assert_eq!(verdict.outcome, Outcome::Lossy, "{field}");
            assert!(verdict.reasons[1].contains("not caught up"), "{verdict:?}");
            run.consumer["integrity"]["streams"][0][field] = before;
        }
    }

    #[test]
    fn lost_doubled_or_unreadable_messages_are_lossy() {
        for (pointer, value) in [
            ("/integrity/streams/0/lost", 1),
            ("/integrity/streams/0/duplicated", 1),
            ("/integrity/streams/0/out_of_order", 1),
            ("/integrity/streams/0/beyond_end", 1),
            ("/unreadable", 1),
            ("/lost_files", 1),
        ] {
            let mut run = Run::well();
            *run.consumer.pointer_mut(pointer).unwrap() = json!(value);
            assert_eq!(run.verdict().outcome, Outcome::Lossy, "{pointer}");
        }
    }

    #[test]
    fn a_quota_that_runs_out_is_said_at_a_rate_that_is_carried_too() {
        let mut run = Run::well();
        run.consumer["resources"]["cpu_quota"] = json!(0.1);
        run.consumer["resources"]["throttled_share"] = json!(0.04);
        assert_eq!(run.verdict().to_string(), "sustained");
        run.consumer["resources"]["throttled_share"] = json!(0.97);
        let verdict = run.verdict();
        assert_eq!(verdict.to_string(), "sustained (harness-bound)");
        let said = "the consumer was throttled in 97 % of the periods of its quota of 0.10 processors";
        assert_eq!(verdict.reasons, [said]);
    }

    #[test]
    fn a_busy_harness_marks_failing_verdicts_alone() {
        let mut busy = Run::well();
        busy.consumer["resources"]["cpu_seconds"] = json!(19.0);
        assert!(!busy.verdict().harness_bound);
        busy.producer["achieved_rate"] = json!(900.0);
        assert_eq!(busy.verdict().to_string(), "degrading (harness-bound)");

        let mut stood_still = Run::well();
        stood_still.bench_pause_seconds = 12.0;
        assert!(!stood_still.verdict().harness_bound);
        stood_still.collapsed = true;
        let verdict = stood_still.verdict();
        assert!(
            verdict.harness_bound
                && verdict.reasons.iter().any(|why| why.contains("the bench itself stood still for 12.0 s"))
        );

        let mut stopped = Run::well();
        stopped.consumer["resources"]["longest_pause_seconds"] = json!(5.0);
        assert!(!stopped.verdict().harness_bound);
        stopped.collapsed = true;
        let verdict = stopped.verdict();
        assert_eq!(verdict.to_string(), "collapsed (harness-bound)");
        assert!(
            verdict.reasons.iter().any(|reason| reason == "the consumer stood still for 5.0 s"),
            "{verdict:?}"
        );

        let mut late = Run::well();
        late.producer["achieved_rate"] = json!(900.0);
        late.producer["send_delay"] = latency(300_000);
        assert!(late.verdict().harness_bound);
        // Held up by the store, a pacer is late through no fault of the harness.
        late.producer["held_up_seconds"] = json!(5.0);
        assert!(!late.verdict().harness_bound);
    }
}
