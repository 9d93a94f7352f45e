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
//! `_last_checkpoint` is written after the checkpoint file, and that file appears whole or not at all, so one
//! that is cut off at any moment is harmless: readers go on from the checkpoint before it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use delta_kernel::{DeltaResult, Snapshot};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

use super::error::QueueError;
use super::lake::Lake;
use super::patience::{Trouble, until_answered};
use crate::clock::{Anchor, monotonic_ns};
use crate::storage::{Requests, Store};

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
pub type CheckpointAnswer = (Requests, Result<(), String>);

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
    async fn make(&self, lake: &Lake, version: u64) -> CheckpointAnswer {
        match self {
            Self::Thread => make_checkpoint(lake, version, REQUESTS_AT_ONCE).await,
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
/// Below whatever commits: on a busy machine a checkpoint waits, not a commit.
const NICE: i32 = 10;
/// Requests that a producer's checkpoint has on their way at once: on one store with those who commit, it is the
/// one that can wait.
pub const REQUESTS_AT_ONCE: usize = 1;

/// Makes the checkpoints of one producer.
#[derive(Debug)]
pub(super) struct Checkpointer {
    lake: Lake,
    anchor: Anchor,
    /// Versions from one to the next; 0 is never.
    interval: u64,
    by: CheckpointBy,
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
        notices: Option<mpsc::UnboundedSender<Notice>>,
    ) -> Self {
        Self { lake, anchor, interval, by, notices, running: None }
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
        let started_ns = monotonic_ns();
        let task = tokio::spawn(async move {
            let (requests, made) = by.make(&lake, version).await;
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

/// Makes the checkpoint of a version that is there, on a thread, a runtime and connections of its own, which are
/// gone when it is made. At most `requests_at_once` are on their way. A store that answers nothing is waited for
/// until the stall timeout, as it is in everything that the queue asks for.
pub async fn make_checkpoint(lake: &Lake, version: u64, requests_at_once: usize) -> CheckpointAnswer {
    let (done, answer) = oneshot::channel();
    let place = lake.clone();
    let thread = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
        on_this_thread(&place, version, requests_at_once, done);
    });
    match thread {
        Ok(_) => answer.await.unwrap_or_else(|_| (Requests::default(), Err("its thread ended".to_owned()))),
        Err(error) => (Requests::default(), Err(error.to_string())),
    }
}

/// Makes a checkpoint with a runtime and connections that end with it.
fn on_this_thread(
    lake: &Lake,
    version: u64,
    requests_at_once: usize,
    done: oneshot::Sender<CheckpointAnswer>,
) {
    // Of this thread and those that it starts. Where it isn't allowed, the checkpoint is merely less polite.
    let _ = rustix::process::setpriority_process(None, NICE);
    // The kernel blocks the thread that it is called from while the worker does its requests.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = done.send((Requests::default(), Err(error.to_string())));
            return;
        }
    };
    runtime.block_on(async {
        let store = match Store::connect(lake.store().config().clone()).await {
            Ok(store) => store.with_at_most(requests_at_once.max(1)),
            Err(error) => {
                let _ = done.send((Requests::default(), Err(error.to_string())));
                return;
            }
        };
        // Closed when no call into the kernel is left.
        let (call, mut calls) = mpsc::channel::<()>(1);
        let made = match Lake::new(&store, lake.prefix().clone()) {
            Ok(lake) => write(&lake, version, call).await,
            Err(error) => Err(error.to_string()),
        };
        let _ = done.send((store.requests(), made));
        // One that was given up still waits for its request, and would panic if that went away with the runtime.
        calls.recv().await;
    });
    runtime.shutdown_background();
}

/// Has the kernel write it, until it is there or the store has not answered for too long.
async fn write(lake: &Lake, version: u64, call: mpsc::Sender<()>) -> Result<(), String> {
    let what = || format!("the checkpoint of version {version} of {}", lake.describe());
    let written = until_answered(lake.store(), what, || {
        let (place, call) = (lake.clone(), call.clone());
        let written = spawn_blocking(move || {
            let written = call_kernel(&place, version);
            drop(call);
            written
        });
        async move {
            let written = written.await.map_err(|error| QueueError::TaskEnded(error.to_string()))?;
            written.map_err(|error| {
                let trouble = lake.trouble(what(), &error);
                // The kernel doesn't always hand the cause on.
                Trouble { may_heal: trouble.may_heal || lake.store().pulse().failure().is_some(), ..trouble }
            })
        }
    });
    match written.await {
        Ok(()) => Ok(()),
        Err(QueueError::Request { detail, .. }) => Err(is_absent(lake, version).await.unwrap_or(detail)),
        Err(error) => Err(error.to_string()),
    }
}

/// What delta-rs's `create_checkpoint` does, less the loading of a whole table, all of its files included, only to
/// name its version.
fn call_kernel(lake: &Lake, version: u64) -> DeltaResult<()> {
    let (engine, table) = (lake.log().engine(None), lake.log().root_url());
    let snapshot = Snapshot::builder_for(table).at_version(version).build(engine.as_ref())?;
    snapshot.checkpoint(engine.as_ref(), None).map(drop)
}

/// Why a version that isn't there has no checkpoint, which the kernel says in words of its own.
async fn is_absent(lake: &Lake, version: u64) -> Option<String> {
    match lake.list_versions(None, usize::MAX).await.ok()?.last() {
        None => Some("there is no table".to_owned()),
        Some(&latest) if latest < version => Some(format!("the table's latest version is {latest}")),
        Some(_) => None,
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
