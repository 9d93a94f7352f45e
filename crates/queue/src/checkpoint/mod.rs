//! Checkpoints: the state of the table as of one version in one file, so that opening it needs no older entry.
//!
//! They run beside the commits, never in them. The producer whose commit lands on a multiple of the
//! interval makes that one, so that many producers on a table make each once. At most one runs at a time
//! in a process; one that comes due meanwhile is skipped, as the next will cover what it would have. One that
//! fails is a warning and a count.
//!
//! A checkpoint has a thread, a runtime and connections of its own, which end with it: it reads the log and
//! encodes what can be megabytes, and nothing of that is done by the threads that upload and commit, sits in
//! their connection pool, or is counted among their requests. It asks for one object at a time, where the
//! kernel would ask for a thousand and keep everybody else waiting. Only its memory is this process's, and a
//! program that can't have that lends another process ([`CheckpointBy`]).
//!
//! One that would lack a data file never appears (`data_files`): what the kernel writes is counted against the log.
//! `_last_checkpoint` is written after the checkpoint file, and that file appears whole or not at all, so one
//! that is cut off at any moment is harmless: readers go on from the checkpoint before it.

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
use crate::storage::Requests;
use s3mq_clock::{Anchor, monotonic_ns};

pub use write::make_checkpoint;

/// What a producer tells of its commits, to whoever wants to know.
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

impl CheckpointBy {
    async fn make(&self, lake: &Lake, version: u64, options: CheckpointOptions) -> CheckpointAnswer {
        match self {
            Self::Thread => make_checkpoint(lake, version, options).await,
            Self::Other(make) => make(version).await,
        }
    }
}

impl fmt::Debug for CheckpointBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "Thread",
            Self::Other(_) => "Other",
        })
    }
}

/// How long a producer that is through waits for its running checkpoint.
const PATIENCE: Duration = Duration::from_secs(2);

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
    anchor: Anchor,
    /// Versions from one to the next; 0 is never.
    interval: u64,
    by: CheckpointBy,
    options: CheckpointOptions,
    notices: Option<mpsc::UnboundedSender<Notice>>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    version: u64,
    started_us: i64,
    task: JoinHandle<()>,
}

impl Checkpointer {
    pub(super) fn new(
        lake: Lake,
        anchor: Anchor,
        interval: u64,
        by: CheckpointBy,
        append_to_existing: bool,
        notices: Option<mpsc::UnboundedSender<Notice>>,
    ) -> Self {
        let options = CheckpointOptions { append_to_existing, ..CheckpointOptions::default() };
        Self { lake, anchor, interval, by, options, notices, running: None }
    }

    /// A commit became `version`: its checkpoint may be due. Returns at once.
    pub(super) fn committed(&mut self, version: u64) {
        if !is_due(version, self.interval) {
            return;
        }
        let started_us = self.anchor.now_us();
        if self.running.as_ref().is_some_and(|running| !running.task.is_finished()) {
            self.tell(not_made(version, started_us, 0.0, CheckpointOutcome::Skipped));
            return;
        }
        let (lake, by, notices) = (self.lake.clone(), self.by.clone(), self.notices.clone());
        let options = self.options;
        let started_ns = monotonic_ns();
        let task = tokio::spawn(async move {
            let (requests, made) = by.make(&lake, version, options).await;
            let seconds = (monotonic_ns() - started_ns) as f64 / 1e9;
            let outcome = if made.is_ok() { CheckpointOutcome::Made } else { CheckpointOutcome::Failed };
            if let Err(problem) = made {
                tracing::warn!(
                    "the checkpoint of version {version} of {} failed: {problem}",
                    lake.describe()
                );
            }
            tell(&notices, Checkpoint { version, started_us, seconds, outcome, requests });
        });
        self.running = Some(Running { version, started_us, task });
    }

    /// The producer is through: waits a little for the checkpoint that is running, where there is one.
    pub(super) async fn finish(mut self) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        if tokio::time::timeout(PATIENCE, &mut running.task).await.is_err() {
            // Its thread ends with the checkpoint or with the process, whichever comes first.
            running.task.abort();
            if running.task.await.is_err() {
                let seconds = (self.anchor.now_us() - running.started_us) as f64 / 1e6;
                self.tell(not_made(
                    running.version,
                    running.started_us,
                    seconds,
                    CheckpointOutcome::Abandoned,
                ));
            }
        }
    }

    fn tell(&self, checkpoint: Checkpoint) {
        tell(&self.notices, checkpoint);
    }
}

/// Whether the table's `version` gets a checkpoint, with one each `interval` versions (0: never).
fn is_due(version: u64, interval: u64) -> bool {
    interval > 0 && version > 0 && version.is_multiple_of(interval)
}

fn tell(notices: &Option<mpsc::UnboundedSender<Notice>>, checkpoint: Checkpoint) {
    if let Some(notices) = notices {
        // Nobody listening is nobody's loss.
        let _ = notices.send(Notice::Checkpoint(checkpoint));
    }
}

fn not_made(version: u64, started_us: i64, seconds: f64, outcome: CheckpointOutcome) -> Checkpoint {
    Checkpoint { version, started_us, seconds, outcome, requests: Requests::default() }
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
