//! What the queue reported of its commits and checkpoints, for the summary.

use tokio::sync::mpsc::UnboundedReceiver;

use crate::events::{CheckpointCounts, Event, Mark, MarkKind, Requests};
use crate::measure::Latencies;
use s3mq_queue::{Checkpoint, CheckpointOutcome, Notice};

/// Counts what is reported.
#[derive(Debug)]
pub(super) struct Notices {
    received: UnboundedReceiver<Notice>,
    pub(super) commit_times: Latencies,
    pub(super) checkpoints: CheckpointCounts,
    pub(super) checkpoint_requests: Requests,
}

impl Notices {
    pub(super) fn new(received: UnboundedReceiver<Notice>) -> Self {
        Self {
            received,
            commit_times: Latencies::default(),
            checkpoints: CheckpointCounts::default(),
            checkpoint_requests: Requests::default(),
        }
    }

    /// Counts what came since; reports each checkpoint as an event.
    pub(super) fn take(&mut self, mut report: impl FnMut(Event)) {
        while let Ok(notice) = self.received.try_recv() {
            match notice {
                Notice::Committed { took_us, .. } => self.commit_times.record(took_us, 1),
                Notice::Checkpoint(checkpoint) => report(Event::Mark(self.checkpoint(&checkpoint))),
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
}
