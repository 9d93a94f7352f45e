//! What the queue told of its commits and checkpoints, for the summary.

use tokio::sync::mpsc::UnboundedReceiver;

use crate::events::{CheckpointCounts, Event, LatencySummary, Mark, MarkKind, Requests};
use crate::measure::Latencies;
use s3mq_queue::{Checkpoint, CheckpointOutcome, Notice};

/// Counts what is told.
#[derive(Debug)]
pub(super) struct Notices {
    told: UnboundedReceiver<Notice>,
    commit_times: Latencies,
    checkpoints: CheckpointCounts,
    checkpoint_requests: Requests,
}

/// All that was told.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) commit_time: Option<LatencySummary>,
    pub(super) checkpoints: CheckpointCounts,
    pub(super) checkpoint_requests: Requests,
}

impl Notices {
    pub(super) fn new(told: UnboundedReceiver<Notice>) -> Self {
        Self {
            told,
            commit_times: Latencies::default(),
            checkpoints: CheckpointCounts::default(),
            checkpoint_requests: Requests::default(),
        }
    }

    /// Takes in what has been told since; gives the event of each checkpoint to `tell`.
    pub(super) fn take(&mut self, mut tell: impl FnMut(Event)) {
        while let Ok(notice) = self.told.try_recv() {
            match notice {
                Notice::Committed { took_us, .. } => self.commit_times.record(took_us, 1),
                Notice::Checkpoint(checkpoint) => tell(Event::Mark(self.checkpoint(&checkpoint))),
            }
        }
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Mark {
        let counts = &mut self.checkpoints;
        *match checkpoint.outcome {
            CheckpointOutcome::Made => &mut counts.made,
            CheckpointOutcome::Failed => &mut counts.failed,
            CheckpointOutcome::Skipped => &mut counts.skipped,
            CheckpointOutcome::Abandoned => &mut counts.abandoned,
        } += 1;
        self.checkpoint_requests.add(&checkpoint.requests);
        Mark {
            kind: MarkKind::Checkpoint,
            version: checkpoint.version,
            started_us: checkpoint.started_us,
            seconds: checkpoint.seconds,
            bytes: checkpoint.requests.rows.iter().map(|row| row.bytes_sent).sum(),
            outcome: checkpoint.outcome,
        }
    }

    pub(super) fn counted(self) -> Counted {
        Counted {
            commit_time: self.commit_times.summary(),
            checkpoints: self.checkpoints,
            checkpoint_requests: self.checkpoint_requests,
        }
    }
}
