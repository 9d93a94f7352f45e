//! Commits: one conditional PUT each, and the question who won it (`docs/decisions/0001`, `0002`).
//!
//! Any answer but success is checked against the log. A version is left behind only when its entry was seen to be
//! another's, or, while no PUT of ours can have been applied, when a listing shows that the log has gone on.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::entry::Entry;
use super::error::QueueError;
use super::lake::{Lake, Written};
use super::table::Access;
use crate::storage::{Backoff, MAX_BACKOFF};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub version: u64,
    /// PUTs sent beyond the first.
    pub retries: u32,
    /// Versions that turned out to be another writer's.
    pub conflicts: u32,
}

/// Commits for one producer, one commit at a time.
#[derive(Debug)]
pub(super) struct Committer {
    lake: Lake,
    next: u64,
    /// When the request was sent that showed the log's end, the version before `next`. Its answer may have come late, or
    /// lain about while this process was stopped.
    tip_seen: Instant,
    /// How old that may be for a PUT to be sent.
    stale_after: Duration,
    /// How long one commit is tried, of the time in which the store answers.
    timeout: Duration,
}

/// How long after the log's end was seen a version may be PUT without another look: a store takes one below a log that
/// was cleaned meanwhile, too, where no reader would see it.
const TIP_MAY_BE_STALE: Duration = Duration::from_secs(2);

pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// After losing to another producer: the store is well, and a turn will come.
const MAX_PAUSE_AFTER_A_CONFLICT: Duration = Duration::from_millis(100);

impl Committer {
    /// Commits after `tip`, the table's latest version when it was asked for at `tip_seen`.
    pub(super) fn after(lake: Lake, tip: u64, tip_seen: Instant) -> Self {
        let timeout = lake.store().config().retry_timeout;
        Self { lake, next: tip + 1, tip_seen, stale_after: TIP_MAY_BE_STALE, timeout }
    }

    /// Commits `version`, for the sole writer of a table, who has many versions on their way at once, in any order.
    pub(super) fn of_version(lake: Lake, version: u64) -> Self {
        Self { stale_after: Duration::MAX, ..Self::after(lake, version - 1, Instant::now()) }
    }

    /// Commits `entry`, which carries `commit_id`, at the next version that is free.
    ///
    /// # Errors
    /// [`QueueError::Commit`] when the store refuses, the deadline passes, or the log was cleaned beyond the version;
    /// [`QueueError::Unsupported`] when another writer made the table one that we may not write to;
    /// [`QueueError::MadeAnew`] when the table isn't there any more.
    pub(super) async fn commit(&mut self, entry: Bytes, commit_id: Uuid) -> Result<Committed, QueueError> {
        let start = Instant::now();
        let store = self.lake.store().clone();
        let tried = store.available_time();
        let (mut retries, mut conflicts) = (0, 0);
        let mut backoff = Backoff(FIRST_PAUSE);
        // Whether a PUT of this version may have been applied without our knowing.
        let mut unsure = false;
        loop {
            if !self.sees_the_tip().await?
                && let Err(detail) = self.look_up_tip(unsure).await?
            {
                return Err(self.failed(start, retries, detail));
            }
            let before = conflicts;
            let (written, sent) = self.lake.write_entry(self.next, entry.clone(), commit_id).await?;
            retries += sent - 1;
            unsure |= sent > 1;
            let refusal = match written {
                Written::Yes => break,
                Written::Exists => None,
                Written::Refused(problem) => Some(problem),
            };
            let problem = match (self.winner(commit_id).await, refusal) {
                (Ok(Winner::Us), _) => break,
                // A refusal may be of the answer alone, made up on its way: what is there says whether it is. Where it is
                // another's, the next version will tell.
                (Ok(Winner::Nobody), Some(problem)) => return Err(self.failed(start, retries + 1, problem)),
                (Err(_), Some(problem)) => {
                    let detail = format!("{problem}; it can't be read whether it is there all the same");
                    return Err(self.failed(start, retries + 1, detail));
                }
                (Err(error), None) => return Err(error),
                (Ok(Winner::Another), _) => {
                    self.next += 1;
                    conflicts += 1;
                    unsure = false;
                    format!("{conflicts} versions in a row were taken by other producers")
                }
                (Ok(Winner::Nobody), None) => {
                    "the store says that the version exists, but it can't be read".to_owned()
                }
            };
            retries += 1;
            if tried.elapsed() > self.timeout {
                return Err(self.failed(start, retries, problem));
            }
            if conflicts > before {
                backoff.pause(MAX_PAUSE_AFTER_A_CONFLICT).await;
                // Others went on meanwhile: a version at a time, with a pause after each, would never catch up with them.
                while matches!(self.winner(commit_id).await?, Winner::Another) {
                    self.next += 1;
                    conflicts += 1;
                }
            } else {
                backoff.pause(MAX_BACKOFF).await;
            }
        }
        self.landed(start, retries, conflicts).await
    }

    /// The version is ours; whether it is one that readers come to, as well.
    async fn landed(
        &mut self,
        start: Instant,
        retries: u32,
        conflicts: u32,
    ) -> Result<Committed, QueueError> {
        let version = self.next;
        // The process may have been stopped between the last look and the PUT.
        if !self.sees_the_tip().await? && self.is_passed().await? {
            let detail = "the log was cleaned up to this version meanwhile; readers may not come to it";
            return Err(self.failed(start, retries + 1, detail.to_owned()));
        }
        self.next += 1;
        self.tip_seen = self.tip_seen.max(start);
        Ok(Committed { version, retries, conflicts })
    }

    fn failed(&self, start: Instant, attempts: u32, detail: String) -> QueueError {
        let seconds = start.elapsed().as_secs_f64();
        QueueError::Commit { version: self.next, attempts, seconds, detail }
    }

    async fn winner(&mut self, commit_id: Uuid) -> Result<Winner, QueueError> {
        let asked = Instant::now();
        let Some(bytes) = self.lake.read_entry(self.next).await? else {
            // A 409 that left nothing behind.
            return Ok(Winner::Nobody);
        };
        let entry =
            Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version: self.next, detail })?;
        if entry.commit_id == Some(commit_id) {
            return Ok(Winner::Us);
        }
        Access::Write.check(&self.lake, entry.protocol.as_ref(), entry.metadata.as_ref())?;
        self.tip_seen = asked;
        Ok(Winner::Another)
    }

    /// Whether the version before ours, which is there unless the log was cleaned, was seen a moment ago or is seen now.
    async fn sees_the_tip(&mut self) -> Result<bool, QueueError> {
        // An answer that came late, or was left lying while this process was stopped, is asked for once more.
        for _ in 0..2 {
            if self.tip_seen.elapsed() <= self.stale_after {
                break;
            }
            let asked = Instant::now();
            if self.lake.read_entry(self.next - 1).await?.is_none() {
                return Ok(false);
            }
            self.tip_seen = asked;
        }
        Ok(true)
    }

    /// Whether the log goes on beyond our version, so that whoever cleaned the one before it may have cleaned ours as well.
    async fn is_passed(&self) -> Result<bool, QueueError> {
        let before = Some(self.next - 1);
        let checkpoints = self.lake.list_checkpoints(before).await?;
        let versions = self.lake.list_versions(before, usize::MAX).await?;
        Ok(versions.last() > Some(&self.next) || checkpoints.last() >= Some(&self.next))
    }

    /// LISTs the log for its end, and looks at what others wrote. The inner error is that nobody knows any more whether an
    /// earlier PUT of this version was applied.
    async fn look_up_tip(&mut self, unsure: bool) -> Result<Result<(), String>, QueueError> {
        let asked = Instant::now();
        // From the one before ours on, which is there, or has a checkpoint, unless the log was cleaned.
        let before = self.next.checked_sub(2);
        let versions = self.lake.list_versions(before, usize::MAX).await?;
        let checkpoints = self.lake.list_checkpoints(before).await?;
        match versions.last().max(checkpoints.last()) {
            None => return Err(QueueError::MadeAnew { place: self.lake.describe(), known: self.next - 1 }),
            Some(&tip) if tip < self.next => {}
            // Ours, it may be: the next PUT will be answered that it exists.
            Some(_) if unsure && versions.contains(&self.next) => {}
            Some(_) if unsure => {
                let detail =
                    "no answer came, and the log was cleaned beyond it meanwhile; it may be committed";
                return Ok(Err(detail.to_owned()));
            }
            Some(&tip) => {
                let opened = super::open::open(&self.lake).await?;
                Access::Write.check(&self.lake, Some(&opened.protocol), Some(&opened.metadata))?;
                self.next = opened.version.max(tip) + 1;
            }
        }
        self.tip_seen = asked;
        Ok(Ok(()))
    }
}

enum Winner {
    Us,
    Another,
    Nobody,
}

#[cfg(test)]
mod tests;
