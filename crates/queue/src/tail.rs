//! Following the log: one GET a version; an absent entry means nothing new. While nothing comes, one LIST now and then
//! distinguishes an idle table from a gap, a log that was cleaned and another log in its place. A message may be late,
//! never skipped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::entry::Entry;
use super::error::QueueError;
use super::lake::Lake;
use super::poll::{Asked, Poll, Poller};
use super::table::Access;
use s3mq_clock::{Timer, monotonic_ns};

#[derive(Debug)]
pub(super) struct Tail {
    lake: Lake,
    /// The latest version when the table was opened; `None` where it wasn't there yet.
    opened: Option<u64>,
    next: u64,
    /// The version before it and its entry, once it was read.
    read: Option<(u64, Bytes)>,
    poller: Poller,
    /// When to ask for the next version, in nanoseconds of the monotonic clock.
    ask_at_ns: u64,
    timer: Timer,
    /// How long nothing may come before the log is listed.
    idle_after: Duration,
    list_at: Instant,
    /// Notified when somebody wants to know whether there is anything more.
    asked: Arc<Notify>,
    /// Whether somebody does, and has no answer yet.
    is_asked: bool,
    ignore_removes: bool,
}

/// How often a consumer LISTs the log while nothing comes.
pub const IDLE_LIST_INTERVAL: Duration = Duration::from_secs(5);

/// How long a listing is waited for that may show that an entry is there which can't be had.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Versions after the awaited one that are asked for where a listing would read the whole log: each is twice as far as
/// the one before.
const PROBES: u32 = 16;
const PROBES_AT_ONCE: usize = 4;

/// What the log has, where the awaited version wasn't there.
enum Beyond {
    Nothing,
    Awaited(Bytes),
    /// It is listed, and the store doesn't have it yet.
    Late,
}

impl Tail {
    pub(super) fn from(
        lake: Lake,
        opened: Option<u64>,
        next: u64,
        poll: Poll,
        asked: Arc<Notify>,
        ignore_removes: bool,
    ) -> Self {
        let idle_after = (poll.interval() * 10).max(Duration::from_secs(1));
        Self {
            lake,
            opened,
            next,
            read: None,
            poller: poll.start(),
            ask_at_ns: 0,
            timer: Timer::new(),
            idle_after,
            list_at: Instant::now() + idle_after,
            asked,
            is_asked: false,
            ignore_removes,
        }
    }

    /// The next version and its entry; waits until there is one. `None` where somebody asked, and there was nothing more.
    pub(super) async fn next(&mut self) -> Result<Option<(u64, Entry)>, QueueError> {
        loop {
            if !self.is_asked {
                tokio::select! {
                    () = self.timer.until_ns(self.ask_at_ns) => {}
                    () = self.asked.notified() => self.is_asked = true,
                }
            }
            let (version, at_ns) = (self.next, monotonic_ns());
            let answer = match self.lake.read_entry(version).await {
                Ok(answer) => answer,
                Err(error) => return Err(self.what_is_lost(version, error).await),
            };
            let asked = Asked { at_ns, answered_ns: monotonic_ns() };
            if let Some(bytes) = answer {
                self.ask_at_ns = self.poller.hit(asked);
                return self.found(version, bytes).map(Some);
            }
            self.ask_at_ns = self.poller.miss(asked);
            if self.is_asked || Instant::now() >= self.list_at {
                self.list_at = Instant::now() + IDLE_LIST_INTERVAL;
                match self.look_beyond().await? {
                    Beyond::Awaited(bytes) => {
                        self.ask_at_ns = 0;
                        return self.found(version, bytes).map(Some);
                    }
                    Beyond::Nothing if std::mem::take(&mut self.is_asked) => {
                        self.same_as_read().await?;
                        return Ok(None);
                    }
                    Beyond::Nothing | Beyond::Late => {}
                }
            }
        }
    }

    fn found(&mut self, version: u64, bytes: Bytes) -> Result<(u64, Entry), QueueError> {
        self.list_at = Instant::now() + self.idle_after;
        let entry = Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version, detail })?;
        // What the table was when it was opened was looked at then: older entries may have been without `data`. A schema
        // that isn't there yet comes with a later entry.
        if self.opened.is_none_or(|opened| version > opened) {
            let metadata = entry.metadata.as_ref().filter(|metadata| metadata.schema_string.is_some());
            Access::Read.check(&self.lake, entry.protocol.as_ref(), metadata)?;
        }
        if entry.has_deletion_vectors {
            let reason = format!(
                "version {version} adds a file with deleted rows in it; that needs the reader feature \
                 `deletionVectors`, which s3mq doesn't have"
            );
            return Err(QueueError::Unsupported { action: "read", place: self.lake.describe(), reason });
        }
        if entry.removes_rows && !self.ignore_removes {
            return Err(QueueError::RowsRemoved { version });
        }
        (self.next, self.read) = (version + 1, Some((version, bytes)));
        Ok((version, entry))
    }

    /// The entry of `version` can't be had: what that keeps from being delivered, if the store says that it is there.
    async fn what_is_lost(&self, version: u64, error: QueueError) -> QueueError {
        let detail = match &error {
            QueueError::Request { what, detail } => format!("{what} failed: {detail}"),
            // Where nothing else is asked, one entry that always fails looks like a store that doesn't answer.
            QueueError::Stalled { answer, seconds, detail, .. } => format!(
                "{detail} failed: the store {answer} to it for {seconds:.0} s, and answers other requests"
            ),
            _ => return error,
        };
        // A store that answers nothing at all isn't waited for a second time.
        let listed = self.lake.list_versions(version.checked_sub(1), usize::MAX);
        match tokio::time::timeout(LAST_LOOK, listed).await {
            Ok(Ok(versions)) if versions.first() == Some(&version) => {
                QueueError::Unreadable { lost: version..=versions[versions.len() - 1], detail }
            }
            _ => error,
        }
    }

    /// Looks for the awaited version, and those after it, in a listing of the log.
    async fn look_beyond(&self) -> Result<Beyond, QueueError> {
        let awaited = self.next;
        // From the last one that was read on, which is there unless the log was cleaned or isn't the same any more.
        let from = self.read.as_ref().map_or(awaited, |(read, _)| *read);
        let found = match self.lake.store().lists_in_order() {
            true => self.lake.list_versions(from.checked_sub(1), 3).await?,
            false => self.probe(from).await?,
        };
        if let (Some((known, _)), None) = (&self.read, found.first()) {
            return Err(self.made_anew(*known));
        }
        if found.iter().all(|&version| version < awaited) {
            return Ok(Beyond::Nothing);
        }
        if let Some(bytes) = self.lake.read_listed_entry(awaited).await? {
            return Ok(Beyond::Awaited(bytes));
        }
        let Some(&later) = found.iter().find(|&&version| version > awaited) else {
            if !self.is_asked {
                return Ok(Beyond::Late);
            }
            let detail =
                format!("GET of version {awaited} failed: the store lists it and says that it isn't there");
            return Err(QueueError::Unreadable { lost: awaited..=awaited, detail });
        };
        // The whole of it where a listing is read to its end anyway: of what was asked for one by one, the first that is there
        // need not be the next.
        let most = if self.lake.store().lists_in_order() { 1 } else { usize::MAX };
        let listed = self.lake.list_versions(None, most).await?;
        let later = listed.iter().copied().find(|&version| version > awaited).unwrap_or(later).min(later);
        match listed.first() {
            Some(&oldest) if oldest > awaited => {
                Err(QueueError::CleanedAway { gone: awaited..=oldest - 1, oldest })
            }
            _ => Err(QueueError::Gap { missing: awaited..=later - 1, next: later }),
        }
    }

    /// Which of some versions from `from` on are there, asked for one by one: where the store lists in an order of its own, a
    /// listing would read the whole log. A log that goes on has one of them in time, after a gap
    /// of up to 2^15 versions.
    async fn probe(&self, from: u64) -> Result<Vec<u64>, QueueError> {
        let ahead = (0..PROBES).map(|doublings| self.next + (1 << doublings));
        let mut versions: Vec<_> = [from, self.next].into_iter().chain(ahead).collect();
        versions.dedup();
        let is_there = |version| async move {
            Ok::<_, QueueError>(self.lake.read_entry(version).await?.map(|_| version))
        };
        let found = stream::iter(versions).map(is_there).buffered(PROBES_AT_ONCE).try_collect::<Vec<_>>();
        Ok(found.await?.into_iter().flatten().collect())
    }

    /// A log that was made anew may have come to the very version that was read last.
    async fn same_as_read(&self) -> Result<(), QueueError> {
        let Some((known, bytes)) = &self.read else { return Ok(()) };
        match self.lake.read_entry(*known).await? {
            Some(now) if now != bytes => Err(self.made_anew(*known)),
            _ => Ok(()),
        }
    }

    fn made_anew(&self, known: u64) -> QueueError {
        QueueError::MadeAnew { place: self.lake.describe(), known }
    }
}
