//! Commits: one conditional PUT each, and the question who won it.
//!
//! A log entry is PUT at the next version with `If-None-Match: *`. The answer may be lost: the
//! connection breaks, a proxy says 500, and the entry is there or is not. So **any answer except success
//! is looked at rather than believed**: the identical bytes are PUT at the same version again, and where
//! the store says "exists", the entry is read. Our `commitId` in it means that we committed; another's
//! means that the version is theirs. After a jittered pause the log is read on to the first version that
//! nobody has, and that one is tried. A version is left behind only when its entry was seen to be another's
//! (or, before the first PUT of a commit, when a listing shows that the log has gone on), so a commit lands
//! exactly once or, at the deadline, is reported as unknown.

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
    /// How long one commit is tried, of the time in which the store answers.
    timeout: Duration,
}

/// After this long without a commit of ours the log may have been cleaned beyond the version that we
/// would write: the store would accept it, and no reader would ever see it.
const TIP_MAY_BE_STALE: Duration = Duration::from_secs(30);
const FIRST_BACK_OFF: Duration = Duration::from_millis(2);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(1);
/// Of one that lost to another producer: the store is well, and a turn will come.
const LONGEST_CONFLICT_BACK_OFF: Duration = Duration::from_millis(100);

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
        let store = self.lake.store().clone();
        let tried = store.answered_time();
        let (mut retries, mut conflicts) = (0, 0);
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let before = conflicts;
            let (written, sent) = self.lake.write_entry(self.next, entry.clone(), commit_id).await?;
            retries += sent - 1;
            let problem = match written {
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
                Written::Refused(problem) => return Err(self.failed(start, retries + 1, problem)),
            };
            retries += 1;
            if tried.elapsed() > self.timeout {
                return Err(self.failed(start, retries, problem));
            }
            // Full jitter: contenders that lost to the same commit must not meet again.
            tokio::time::sleep(back_off.mul_f64(rand::random::<f64>())).await;
            let longest = if conflicts > before { LONGEST_CONFLICT_BACK_OFF } else { LONGEST_BACK_OFF };
            back_off = (back_off * 2).min(longest);
            if conflicts > before {
                // Others went on meanwhile. A version at a time, with a pause after each, would never
                // catch up with them.
                conflicts += self.pass_theirs(commit_id).await?;
            }
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

    /// Goes on to the first version that nobody has; how many were another writer's.
    async fn pass_theirs(&mut self, commit_id: Uuid) -> Result<u32, QueueError> {
        let mut passed = 0;
        while matches!(self.whose(commit_id).await?, Whose::Theirs) {
            self.next += 1;
            passed += 1;
        }
        Ok(passed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::entry::{EndOfStream, ProducerEpoch, commit_of_end};
    use crate::queue::{Producer, ProducerOptions};
    use crate::server::{self, Server};
    use crate::storage::{Config, Store};

    async fn table() -> (Server, Lake) {
        let server = Server::start(server::Config::in_memory("s3mq")).await.unwrap();
        let keys = server.credentials();
        let config =
            Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
        let lake = Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap();
        // Versions 0 (the table) and 1 (an end of stream).
        Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
        (server, lake)
    }

    fn entry() -> (Uuid, Bytes) {
        let commit_id = Uuid::new_v4();
        let by = ProducerEpoch { producer: 0, epoch: Uuid::new_v4() };
        (commit_id, Bytes::from(commit_of_end(commit_id, EndOfStream { by, count: 0 }, 0)))
    }

    async fn versions(lake: &Lake) -> Vec<u64> {
        lake.list_versions(None, usize::MAX).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_committer_far_behind_catches_up_at_once() {
        let (_server, lake) = table().await;
        let mut other = Committer::after(lake.clone(), 1);
        for _ in 0..60 {
            let (commit_id, bytes) = entry();
            other.commit(bytes, commit_id).await.unwrap();
        }
        let (commit_id, bytes) = entry();
        let committed = Committer::after(lake.clone(), 1).commit(bytes, commit_id).await.unwrap();
        assert_eq!(committed, Committed { version: 62, retries: 1, conflicts: 60 });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_commit_whose_answer_was_lost_is_recognised_as_ours() {
        let (_server, lake) = table().await;
        let (commit_id, bytes) = entry();
        // It was applied; only the answer got lost, so the committer PUTs the same bytes again.
        assert!(matches!(lake.write_entry(2, bytes.clone(), commit_id).await.unwrap(), (Written::Yes, 1)));
        let committed = Committer::after(lake.clone(), 1).commit(bytes, commit_id).await.unwrap();
        assert_eq!(committed, Committed { version: 2, retries: 0, conflicts: 0 });
        assert_eq!(versions(&lake).await, [0, 1, 2]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn versions_of_others_are_passed_without_a_gap() {
        let (_server, lake) = table().await;
        for version in 2..5 {
            let (commit_id, bytes) = entry();
            assert!(matches!(lake.write_entry(version, bytes, commit_id).await.unwrap(), (Written::Yes, 1)));
        }
        let (commit_id, bytes) = entry();
        let mut committer = Committer::after(lake.clone(), 1);
        let committed = committer.commit(bytes, commit_id).await.unwrap();
        assert_eq!(committed, Committed { version: 5, retries: 1, conflicts: 3 });
        let (commit_id, bytes) = entry();
        assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, 6);
        assert_eq!(versions(&lake).await, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_long_silence_the_tip_is_looked_up_before_writing() {
        let (_server, lake) = table().await;
        let mut committer = Committer::after(lake.clone(), 1);
        for _ in 0..3 {
            Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
        }
        // The log is checkpointed and cleaned up to version 3 while this producer is stopped: a PUT of
        // version 2 would succeed, and no reader would ever look there.
        let mut table = deltalake::DeltaTable::new(lake.log().clone());
        table.load().await.unwrap();
        deltalake::checkpoints::create_checkpoint(&table, None).await.unwrap();
        for version in 0..4 {
            use object_store::ObjectStoreExt;
            let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
            lake.store().objects().delete(&path).await.unwrap();
        }
        committer.tip_seen = Instant::now() - TIP_MAY_BE_STALE * 2;
        let (commit_id, bytes) = entry();
        assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, 5);
        assert_eq!(versions(&lake).await, [4, 5]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refusal_is_final_and_names_the_version() {
        let (server, lake) = table().await;
        let mut config = lake.store().config().clone();
        let crate::storage::Credentials::Static { secret_key, .. } = &mut config.credentials else {
            panic!("static keys")
        };
        *secret_key = "wrong".to_owned();
        let lake = Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap();
        let (commit_id, bytes) = entry();
        let error = Committer::after(lake, 1).commit(bytes, commit_id).await.unwrap_err();
        assert!(matches!(error, QueueError::Commit { version: 2, attempts: 1, .. }), "{error}");
        server.shutdown().await;
    }
}
