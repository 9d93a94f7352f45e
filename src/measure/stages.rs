//! Where a message's time goes: stages that add up to its latency, as their means add up to the mean latency.
//! Percentiles do not add up.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::latency::{Latencies, unsupported_percentiles};

/// A stage, in a message's order; named by the stamp that it ends with, it begins with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// From due to handed over by the pacer.
    HandedOver,
    /// To the batch being closed: waiting for the commit interval to end, or for room.
    Sealed,
    /// To the Parquet file being begun: waiting for a slot of the producer, for a thread, for the processor.
    Queued,
    /// To the Parquet file being encoded: processor time.
    Encoded,
    /// To the store having acknowledged the file.
    Stored,
    /// To the commit being sent: waiting for the commit before it.
    CommitSent,
    /// To the consumer having the log entry: the commit PUT, the wait for the next poll, its GET.
    Discovered,
    /// To the consumer having the file.
    Fetched,
    /// To the file being decoded: processor time.
    Decoded,
    /// To the message being delivered: waiting for a thread, for the processor, for the files before it, and for its turn in
    /// its own.
    Delivered,
}

/// The time spent in each stage, over many messages.
#[derive(Clone, Debug, Default)]
pub struct Waterfall {
    stages: [Latencies; Stage::VARIANTS.len()],
}

impl Waterfall {
    /// Records that `count` messages spent `us` in a stage.
    pub fn record(&mut self, stage: Stage, us: i64, count: u64) {
        self.stages[stage as usize].record(us, count);
    }

    /// Adds another's times to these.
    pub fn merge(&mut self, other: &Self) {
        self.stages.iter_mut().zip(&other.stages).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// The times of one stage.
    pub fn stage(&self, stage: Stage) -> &Latencies {
        &self.stages[stage as usize]
    }

    /// The figures of each stage; empty where nothing was recorded.
    pub fn summary(&self) -> Vec<StageSummary> {
        let figures = Stage::VARIANTS.iter().zip(&self.stages).map(|(&stage, times)| {
            let figures = times.summary()?;
            Some(StageSummary {
                stage,
                count: figures.count,
                negative: times.negative(),
                mean_us: figures.mean_us,
                p50_us: figures.p50_us,
                p99_us: figures.p99_us,
                unsupported_percentiles: unsupported_percentiles(figures.count, &[50, 99]),
            })
        });
        figures.flatten().collect()
    }
}

/// The figures of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSummary {
    /// Which.
    pub stage: Stage,
    /// Messages.
    pub count: u64,
    /// Of these, how many seem to have taken less than no time: stamps of two clocks.
    pub negative: u64,
    /// Mean, in microseconds; the stages' means add up to the mean latency.
    pub mean_us: f64,
    /// Median, in microseconds.
    pub p50_us: u64,
    /// 99th percentile, in microseconds.
    pub p99_us: u64,
    /// Which of the two (`[99]`) have fewer than ten values beyond them and say little.
    pub unsupported_percentiles: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_kept_in_the_order_of_the_way() {
        let mut waterfall = Waterfall::default();
        waterfall.record(Stage::Fetched, 700, 10);
        waterfall.record(Stage::HandedOver, 300, 10);
        let summary = waterfall.summary();
        assert_eq!(
            summary.iter().map(|row| row.stage.into()).collect::<Vec<&str>>(),
            ["handed_over", "fetched"]
        );
        assert_eq!(summary.iter().map(|row| row.mean_us).sum::<f64>(), 1000.0);
    }
}
