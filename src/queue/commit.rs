//! Commits: one conditional PUT each, and the question who won it.
//!
//! A log entry is PUT at the next version with `If-None-Match: *`. The answer may be lost: the
//! connection breaks, a proxy says 500, and the entry is there or is not. So **any answer except success
//! is looked at rather than believed**: the identical bytes are PUT at the same version again, and where
//! the store says "exists", the entry is read. Our `commitId` in it means that we committed; another's
//! means that the version is theirs, and the next one is tried. Nothing else moves on to another
//! version, so a commit lands exactly once or, at the deadline, is reported as unknown.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::entry::Entry;
use super::error::QueueError;
use super::lake::{Lake, Written};
use super::table::Access;

/// What a commit took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    /// The version it became.
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
    /// The version that is tried next.
    next: u64,
    /// When the log's end was last seen, by a commit or by a listing.
    tip_seen: Instant,
    /// How long one commit is tried.
    timeout: Duration,
}

/// After this long without a commit of ours the log may have been cleaned beyond the version that we
/// would write: the store would accept it, and no reader would ever see it.
const TIP_MAY_BE_STALE: Duration = Duration::from_secs(30);
const FIRST_BACK_OFF: Duration = Duration::from_millis(2);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(1);

impl Committer {
    /// Commits after `tip`, the table's latest version.
    pub(super) fn after(lake: Lake, tip: u64) -> Self {
        let timeout = lake.store().config().retry_timeout;
        Self { lake, next: tip + 1, tip_seen: Instant::now(), timeout }
    }

    /// Commits `entry`, which carries `commit_id`, at the next version that is free.
    ///
    /// # Errors
    /// [`QueueError::Commit`] when the store refuses or the deadline passes;
    /// [`QueueError::Unsupported`] when another writer made the table one that we may not write to.
    pub(super) async fn commit(&mut self, entry: Bytes, commit_id: Uuid) -> Result<Committed, QueueError> {
        if self.tip_seen.elapsed() > TIP_MAY_BE_STALE {
            self.look_up_tip().await?;
        }
        let start = Instant::now();
        let (mut retries, mut conflicts) = (0, 0);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let problem = match self.lake.write_entry(self.next, entry.clone(), commit_id).await {
                Written::Yes => return Ok(self.landed(retries, conflicts)),
                Written::Exists => match self.whose(commit_id).await? {
                    Whose::Ours => return Ok(self.landed(retries, conflicts)),
                    Whose::Theirs => {
                        self.next += 1;
                        conflicts += 1;
                        format!("{conflicts} versions in a row were taken by other producers")
                    }
                    Whose::Nobodys => {
                        "the store says that the version exists, but it can't be read".to_owned()
                    }
                },
                Written::Unknown(problem) => problem,
                Written::Refused(problem) => return Err(self.failed(start, retries + 1, problem)),
            };
            retries += 1;
            if start.elapsed() > self.timeout {
                return Err(self.failed(start, retries, problem));
            }
            // Full jitter: contenders that lost to the same commit must not meet again.
            tokio::time::sleep(back_off.mul_f64(rand::random::<f64>())).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    fn landed(&mut self, retries: u32, conflicts: u32) -> Committed {
        let version = self.next;
        self.next += 1;
        self.tip_seen = Instant::now();
        Committed { version, retries, conflicts }
    }

    fn failed(&self, start: Instant, attempts: u32, detail: String) -> QueueError {
        QueueError::Commit {
            version: self.next,
            attempts,
            elapsed_seconds: start.elapsed().as_secs_f64(),
            detail,
        }
    }

    async fn whose(&self, commit_id: Uuid) -> Result<Whose, QueueError> {
        let Some(bytes) = self.lake.read_entry(self.next).await? else {
            // A 409 that left nothing behind.
            return Ok(Whose::Nobodys);
        };
        let entry =
            Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version: self.next, detail })?;
        if entry.commit_id == Some(commit_id) {
            return Ok(Whose::Ours);
        }
        Access::Write.check(&self.lake, entry.protocol.as_ref(), entry.metadata.as_ref())?;
        Ok(Whose::Theirs)
    }

    /// LISTs the log for its end, and looks at what others wrote since we last saw it.
    async fn look_up_tip(&mut self) -> Result<(), QueueError> {
        // From the version before ours, which is there unless the log has been cleaned.
        let before = self.next.saturating_sub(2);
        let versions = self.lake.list_versions((before > 0).then_some(before - 1), usize::MAX).await?;
        if let Some(&tip) = versions.last()
            && tip >= self.next
        {
            let opened = super::table::open(&self.lake).await?;
            Access::Write.check(&self.lake, Some(&opened.protocol), Some(&opened.metadata))?;
            self.next = opened.version.max(tip) + 1;
        }
        self.tip_seen = Instant::now();
        Ok(())
    }
}

enum Whose {
    Ours,
    Theirs,
    Nobodys,
}
