//! What may grow with a table's log: commit, discovery and cold-open time, checkpoints, memory.

use crate::events::CheckpointOutcome;
use crate::measure::{LatencySummary, Stage, StageSummary};
use crate::units::grouped;

use super::step::StepReport;
use super::table::{aligned, or_dash, percentile_ms};

/// Right-aligned columns under a header, one row a rate; where a field has two values, the producer's first.
/// `preload_versions` is what each table was aged by.
pub(crate) fn log_age_table(preload_versions: u64, steps: &[StepReport]) -> String {
    let mut text = match preload_versions {
        0 => "log age:\n".to_owned(),
        versions => format!("log age, each table preloaded with {} versions:\n", grouped(versions)),
    };
    text.push_str(&aligned(steps.iter().map(row)));
    for step in steps {
        let counts = step.producer.checkpoints;
        for (count, how) in [
            (counts.failed, "failed"),
            (counts.skipped, "were skipped: the one before was still running"),
            (counts.abandoned, "were not waited for at the end"),
        ] {
            if count > 0 {
                text.push_str(&format!("rate {}: {} checkpoints {how}\n", step.rate, grouped(count)));
            }
        }
    }
    text
}

/// The stage that ends when the consumer has the log entry.
pub(super) fn discovered(step: &StepReport) -> Option<&StageSummary> {
    step.consumer.stages.iter().find(|stage| stage.stage == Stage::Discovered)
}

/// Mean length of the checkpoints that were made, in seconds; `None` where none was.
fn checkpoint_seconds(step: &StepReport) -> Option<f64> {
    let made = step.marks.iter().filter(|mark| mark.outcome == CheckpointOutcome::Made);
    let seconds: Vec<_> = made.map(|mark| mark.seconds).collect();
    (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
}

fn row(step: &StepReport) -> [(&'static str, String); 10] {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let versions =
        consumer.last_version.map(|last| format!("{}-{}", grouped(consumer.first_version), grouped(last)));
    let commit = |percentile, figure: fn(&LatencySummary) -> u64| {
        let time = producer.commit_time.as_ref();
        or_dash(time.map(|time| percentile_ms(&time.unsupported_percentiles, percentile, figure(time))))
    };
    let discovered = |percentile, figure: fn(&StageSummary) -> u64| {
        let stage = discovered(step);
        or_dash(stage.map(|stage| percentile_ms(&stage.unsupported_percentiles, percentile, figure(stage))))
    };
    let opened = [Some(producer.cold_open_seconds), consumer.cold_open_seconds]
        .map(|seconds| or_dash(seconds.map(|seconds| format!("{:.1}", seconds * 1e3))));
    let growth = [step.rss_growth.producer, step.rss_growth.consumer]
        .map(|growth| or_dash(growth.map(|growth| format!("{:+.1}%", growth * 100.0))));
    [
        ("rate/s", step.rate.to_string()),
        ("versions", or_dash(versions)),
        ("commit p50 ms", commit(50, |time| time.p50_us)),
        ("p99 ms", commit(99, |time| time.p99_us)),
        ("discovered p50 ms", discovered(50, |stage| stage.p50_us)),
        ("p99 ms", discovered(99, |stage| stage.p99_us)),
        ("open ms", opened.join(" ")),
        ("checkpoints", grouped(producer.checkpoints.made)),
        ("s each", or_dash(checkpoint_seconds(step).map(|seconds| format!("{seconds:.2}")))),
        ("RSS growth", growth.join(" ")),
    ]
}
