//! Checkpoints: the state of the table as of one version in one file, so that opening it needs no older entry; made
//! beside the commits (`docs/decisions/0005`), at most one at a time in a process.
//!
//! `_last_checkpoint` is written after the checkpoint file, and that file appears whole or not at all, so one that is cut
//! off at any moment is harmless.

mod data_files;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::QueueError;
use super::lake::Lake;
use super::producer::ProducerOptions;
use crate::storage::Requests;
use s3mq_clock::monotonic_ns;

pub use write::make_checkpoint;

/// What a producer reports of its commits.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A commit is acknowledged.
    Committed {
        /// The version it became.
        version: u64,
        /// From its first PUT to the answer that settled it, in microseconds.
        took_us: i64,
    },
    /// A checkpoint that was due is over, however it ended.
    Checkpoint(Checkpoint),
}

/// A checkpoint that was due.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Of which version.
    pub version: u64,
    /// When it began, in Unix microseconds of the producer's clock.
    pub started_us: i64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How it ended.
    pub outcome: CheckpointOutcome,
    /// What it sent. Counted here alone, not among the requests of the producer's store.
    pub requests: Requests,
}

/// How a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointOutcome {
    /// It is there.
    Made,
    /// The store or delta-rs failed; a warning says why.
    Failed,
    /// The one before it was still running.
    Skipped,
    /// The producer was through and didn't wait any longer.
    Abandoned,
}

/// What came of making a checkpoint: what was sent, and what went wrong where it failed.
pub type CheckpointAnswer = (Requests, Result<(), QueueError>);

/// Where a producer's checkpoints are made.
#[derive(Clone, Default)]
pub enum CheckpointBy {
    /// On a thread of this process, which then holds the memory that it takes.
    #[default]
    Thread,
    /// Wherever this does it, given the version; a process of its own, say. It may be dropped unfinished.
    Other(Arc<dyn Fn(u64) -> BoxFuture<'static, CheckpointAnswer> + Send + Sync>),
}

impl fmt::Debug for CheckpointBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckpointBy")
    }
}

/// How long a producer that is through waits for its running checkpoint.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// How a checkpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// GETs on their way at once. 1 by default, so that a checkpoint doesn't delay commits.
    pub requests_at_once: usize,
    /// Whether a table that s3mq didn't create gets one.
    pub append_to_existing: bool,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { requests_at_once: 1, append_to_existing: false }
    }
}

/// Makes the checkpoints of one producer.
#[derive(Debug)]
pub(super) struct Checkpointer {
    lake: Lake,
    options: ProducerOptions,
    /// What it will be where it is abandoned, and its task.
    running: Option<(Checkpoint, JoinHandle<()>)>,
}

impl Checkpointer {
    pub(super) fn new(lake: Lake, options: &ProducerOptions) -> Self {
        Self { lake, options: options.clone(), running: None }
    }

    /// A commit became `version`: its checkpoint may be due. Returns at once.
    pub(super) fn committed(&mut self, version: u64) {
        if !is_due(version, self.options.checkpoint_interval) {
            return;
        }
        let begun = Checkpoint {
            version,
            started_us: self.options.anchor.now_us(),
            seconds: 0.0,
            outcome: CheckpointOutcome::Skipped,
            requests: Requests::default(),
        };
        let (lake, notices) = (self.lake.clone(), self.options.notices.clone());
        if self.running.as_ref().is_some_and(|(_, task)| !task.is_finished()) {
            notify(&notices, Notice::Checkpoint(begun));
            return;
        }
        let by = self.options.checkpoint_by.clone();
        let append_to_existing = self.options.append_to_existing;
        let options = CheckpointOptions { append_to_existing, ..CheckpointOptions::default() };
        let (started_ns, started_us) = (monotonic_ns(), begun.started_us);
        let task = tokio::spawn(async move {
            let (requests, made) = match by {
                CheckpointBy::Thread => make_checkpoint(&lake, version, options).await,
                CheckpointBy::Other(make) => make(version).await,
            };
            let seconds = (monotonic_ns() - started_ns) as f64 / 1e9;
            let outcome = if made.is_ok() { CheckpointOutcome::Made } else { CheckpointOutcome::Failed };
            if let Err(problem) = made {
                tracing::warn!(
                    "the checkpoint of version {version} of {} failed: {problem}",
                    lake.describe()
                );
            }
            let checkpoint = Checkpoint { version, started_us, seconds, outcome, requests };
            notify(&notices, Notice::Checkpoint(checkpoint));
        });
        self.running = Some((begun, task));
    }

    /// The producer is through: waits a little for the checkpoint that is running, where there is one.
    pub(super) async fn finish(self) {
        let Some((begun, mut task)) = self.running else {
            return;
        };
        if tokio::time::timeout(FINISH_TIMEOUT, &mut task).await.is_err() {
            // Its thread ends with the checkpoint or with the process, whichever comes first.
            task.abort();
            if task.await.is_err() {
                let seconds = (self.options.anchor.now_us() - begun.started_us) as f64 / 1e6;
                let outcome = CheckpointOutcome::Abandoned;
                notify(&self.options.notices, Notice::Checkpoint(Checkpoint { seconds, outcome, ..begun }));
            }
        }
    }
}

/// Whether the table's `version` gets a checkpoint, with one each `interval` versions (0: never).
fn is_due(version: u64, interval: u64) -> bool {
    interval > 0 && version > 0 && version.is_multiple_of(interval)
}

/// Reports, where somebody listens.
pub(super) fn notify(notices: &Option<mpsc::UnboundedSender<Notice>>, notice: Notice) {
    if let Some(notices) = notices {
        let _ = notices.send(notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_at_each_multiple_of_the_interval() {
        let due: Vec<_> = (0..=30).filter(|&version| is_due(version, 10)).collect();
        assert_eq!(due, [10, 20, 30]);
        assert!((1..=3).all(|version| is_due(version, 1)) && !is_due(0, 1));
        assert!(!(0..=3_000).any(|version| is_due(version, 0)));
    }
}
