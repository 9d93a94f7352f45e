//! Following the log: which version comes next, and what is in it.
//!
//! One GET a version; an absent entry means nothing new. No LIST is sent while commits come. After a
//! silence of a second or ten intervals, and then every five seconds, one LIST tells silence from a gap:
//! where later versions exist, the missing one is asked for again for a while (a store may be late),
//! then the queue stops and names it. Where the version that was read last isn't there any more either, the log is
//! another one. A message may be late, never skipped. Whoever is about to give up waiting has all of this looked into
//! at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::entry::Entry;
use super::error::QueueError;
use super::lake::Lake;
use super::poll::{Asked, Poll, Poller};
use super::table::Access;
use crate::storage::has_done;
use s3mq_clock::{Timer, monotonic_ns};

/// A version that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub version: u64,
    pub entry: Entry,
}

/// Follows the log from one version on.
#[derive(Debug)]
pub(super) struct Tail {
    lake: Lake,
    next: u64,
    /// The version before it and its entry, once it was read.
    read: Option<(u64, Bytes)>,
    poller: Poller,
    /// When to ask for the next version, in nanoseconds of the monotonic clock.
    ask_at_ns: u64,
    timer: Timer,
    silence: Silence,
    /// Tells when somebody wants to know whether there is anything more.
    asked: Arc<Notify>,
    /// Whether somebody does, and wasn't told yet.
    is_asked: bool,
    ignore_removes: bool,
}

#[derive(Debug)]
struct Silence {
    /// How long it may be quiet before the log is listed.
    patience: Duration,
    list_at: Instant,
}

const LIST_EVERY: Duration = Duration::from_secs(5);
/// A version that is missing while a later one exists is asked for this often, this far apart.
const GAP_TRIES: u32 = 10;
const GAP_PAUSE: Duration = Duration::from_millis(300);

/// How long a listing is waited for that may tell why an entry can't be had.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What the log has, where the awaited version wasn't there.
enum Beyond {
    Nothing,
    /// The awaited version after all.
    Awaited(Bytes),
    /// It is listed, and the store doesn't have it yet.
    Late,
}

impl Tail {
    pub(super) fn from(lake: Lake, next: u64, poll: Poll, asked: Arc<Notify>, ignore_removes: bool) -> Self {
        let patience = (poll.interval() * 10).max(Duration::from_secs(1));
        Self {
            lake,
            next,
            read: None,
            poller: poll.start(),
            ask_at_ns: 0,
            timer: Timer::new(),
            silence: Silence { patience, list_at: Instant::now() + patience },
            asked,
            is_asked: false,
            ignore_removes,
        }
    }

    /// The next version; waits until there is one. `None` where somebody asked, and there was nothing more.
    ///
    /// # Errors
    /// A gap, a log that was cleaned, an entry that can't be read, or one that makes the table something
    /// we don't read.
    pub(super) async fn next(&mut self) -> Result<Option<Found>, QueueError> {
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
            if self.is_asked || Instant::now() >= self.silence.list_at {
                self.silence.list_at = Instant::now() + LIST_EVERY;
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

    fn found(&mut self, version: u64, bytes: Bytes) -> Result<Found, QueueError> {
        self.silence.list_at = Instant::now() + self.silence.patience;
        let entry = Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version, detail })?;
        Access::Read.check(&self.lake, entry.protocol.as_ref(), entry.metadata.as_ref())?;
        if entry.has_deletion_vectors {
            let reason = format!(
                "version {version} adds a file with deleted rows in it; that needs the reader feature `deletionVectors`, \
                 which s3mq doesn't have"
            );
            return Err(QueueError::Unsupported { action: "read", place: self.lake.describe(), reason });
        }
        if entry.removes_rows && !self.ignore_removes {
            return Err(QueueError::RowsRemoved { version });
        }
        (self.next, self.read) = (version + 1, Some((version, bytes)));
        Ok(Found { version, entry })
    }

    /// The entry of `version` can't be had for `error`: what that keeps from being delivered, if the store says that
    /// it is there.
    async fn what_is_lost(&self, version: u64, error: QueueError) -> QueueError {
        let (what, detail) = match &error {
            QueueError::Request { what, detail } => (what.clone(), detail.clone()),
            // Where nothing else is asked, one entry that always fails looks like a store that doesn't answer.
            QueueError::Stalled { refused, seconds, detail, .. } => {
                let answer = has_done(*refused);
                (
                    detail.clone(),
                    format!("the store {answer} to it for {seconds:.0} s, and answers other requests"),
                )
            }
            _ => return error,
        };
        // A store that answers nothing at all isn't waited for a second time.
        let listed = self.lake.list_versions(version.checked_sub(1), usize::MAX);
        match tokio::time::timeout(LAST_LOOK, listed).await.as_ref().map(|listed| listed.as_deref()) {
            Ok(Ok(versions)) if versions.first() == Some(&version) => {
                let last = versions.last().copied().unwrap_or(version);
                QueueError::Unreadable { lost: version..=last, what, detail }
            }
            _ => error,
        }
    }

    /// Looks for the awaited version, and those after it, in a listing of the log.
    async fn look_beyond(&self) -> Result<Beyond, QueueError> {
        let awaited = self.next;
        // From the last one that was read on, which is there unless the log was cleaned or isn't the same any more.
        let from = self.read.as_ref().map_or(awaited, |(read, _)| *read);
        let found = self.lake.list_versions(from.checked_sub(1), 3).await?;
        if let (Some((known, _)), None) = (&self.read, found.first()) {
            return Err(self.made_anew(*known));
        }
        if found.iter().all(|&version| version < awaited) {
            return Ok(Beyond::Nothing);
        }
        for _ in 0..GAP_TRIES {
            if let Some(bytes) = self.lake.read_entry(awaited).await? {
                return Ok(Beyond::Awaited(bytes));
            }
            tokio::time::sleep(GAP_PAUSE).await;
        }
        let Some(&later) = found.iter().find(|&&version| version > awaited) else {
            return if self.is_asked { Err(listed_only(awaited)) } else { Ok(Beyond::Late) };
        };
        match self.lake.list_versions(None, 1).await?.first() {
            Some(&oldest) if oldest > awaited => {
                Err(QueueError::CleanedAway { gone: awaited..=oldest - 1, oldest })
            }
            _ => Err(QueueError::Gap { missing: awaited..=later - 1, next: later }),
        }
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

fn listed_only(version: u64) -> QueueError {
    QueueError::Unreadable {
        lost: version..=version,
        what: format!("GET of version {version}"),
        detail: "the store lists it and says that it isn't there".to_owned(),
    }
}
