//! Where a message's time goes: its way cut into stages that add up to the whole.
//!
//! Each stage is the time from one stamp of the message's way to the next, and is recorded on its own.
//! Since the stages of one message add up to its latency exactly, so do the means of the stages to the
//! mean latency (over the same messages). Percentiles do not add up, and nobody should add them.

use serde::{Deserialize, Serialize};

use super::latency::{Latencies, unsupported_percentiles};

/// A stage, named by the stamp that it ends with; it begins with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From due to handed over by the pacer.
    HandedOver,
    /// To the batch being closed: waiting for the commit interval to end, or for room.
    Sealed,
    /// To the Parquet file being encoded.
    Encoded,
    /// To the store having acknowledged the file.
    Stored,
    /// To the commit being sent: waiting for the commit before it.
    CommitSent,
    /// To the consumer having the log entry: the commit PUT, the wait for the next question, its GET.
    Discovered,
    /// To the consumer having the file.
    Fetched,
    /// To the file being decoded.
    Decoded,
    /// To the message being delivered: waiting for the files before it, and for its turn in its own.
    Delivered,
}

impl Stage {
    /// All stages, in the order of a message's way.
    pub const ALL: [Self; 9] = [
        Self::HandedOver,
        Self::Sealed,
        Self::Encoded,
        Self::Stored,
        Self::CommitSent,
        Self::Discovered,
        Self::Fetched,
        Self::Decoded,
        Self::Delivered,
    ];

    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::HandedOver => "handed_over",
            Self::Sealed => "sealed",
            Self::Encoded => "encoded",
            Self::Stored => "stored",
            Self::CommitSent => "commit_sent",
            Self::Discovered => "discovered",
            Self::Fetched => "fetched",
            Self::Decoded => "decoded",
            Self::Delivered => "delivered",
        }
    }
}

/// The time spent in each stage, over many messages.
#[derive(Clone, Debug, Default)]
pub struct Waterfall {
    stages: [Latencies; Stage::ALL.len()],
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
        Stage::ALL
            .iter()
            .filter_map(|&stage| {
                let times = self.stage(stage);
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
            })
            .collect()
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
    /// Mean, in microseconds; the stages' means add up to that of the whole way.
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
            summary.iter().map(|row| row.stage.name()).collect::<Vec<_>>(),
            ["handed_over", "fetched"]
        );
        assert_eq!(summary.iter().map(|row| row.mean_us).sum::<f64>(), 1000.0);
    }
}
