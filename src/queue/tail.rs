//! Following the log: which version comes next, and what is in it.
//!
//! One GET a version; an absent entry means nothing new. No LIST is sent while commits come. After a
//! silence of a second or ten intervals, and then every five seconds, one LIST tells silence from a gap:
//! where later versions exist, the missing one is asked for again for a while (a store may be late),
//! then the queue stops and names it. Where the version that was read last isn't there any more either, the log is
//! another one. A message may be late, never skipped.

use std::time::Duration;

use tokio::time::Instant;

use super::entry::Entry;
use super::error::QueueError;
use super::lake::Lake;
use super::poll::{Asked, Poll, Poller};
use super::table::Access;
use crate::clock::{Timer, monotonic_ns};

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
    /// The version before it, once it was read.
    read: Option<u64>,
    poller: Poller,
    /// When to ask for the next version, in nanoseconds of the monotonic clock.
    ask_at_ns: u64,
    timer: Timer,
    silence: Silence,
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

impl Tail {
    pub(super) fn from(lake: Lake, next: u64, poll: Poll, ignore_removes: bool) -> Self {
        let patience = (poll.interval() * 10).max(Duration::from_secs(1));
        Self {
            lake,
            next,
            read: None,
            poller: poll.start(),
            ask_at_ns: 0,
            timer: Timer::new(),
            silence: Silence { patience, list_at: Instant::now() + patience },
            ignore_removes,
        }
    }

    /// The next version; waits until there is one.
    ///
    /// # Errors
    /// A gap, a log that was cleaned, an entry that can't be read, or one that makes the table something
    /// we don't read.
    pub(super) async fn next(&mut self) -> Result<Found, QueueError> {
        loop {
            self.timer.until_ns(self.ask_at_ns).await;
            let (version, at_ns) = (self.next, monotonic_ns());
            let answer = match self.lake.read_entry(version).await {
                Ok(answer) => answer,
                Err(error) => return Err(self.what_is_lost(version, error).await),
            };
            let asked = Asked { at_ns, answered_ns: monotonic_ns() };
            if let Some(bytes) = answer {
                self.ask_at_ns = self.poller.hit(asked);
                return self.found(version, &bytes);
            }
            self.ask_at_ns = self.poller.miss(asked);
            if Instant::now() >= self.silence.list_at {
                self.silence.list_at = Instant::now() + LIST_EVERY;
                if let Some(bytes) = self.look_beyond().await? {
                    self.ask_at_ns = 0;
                    return self.found(version, &bytes);
                }
            }
        }
    }

    fn found(&mut self, version: u64, bytes: &[u8]) -> Result<Found, QueueError> {
        self.silence.list_at = Instant::now() + self.silence.patience;
        let entry = Entry::parse(bytes).map_err(|detail| QueueError::BadEntry { version, detail })?;
        Access::Read.check(&self.lake, entry.protocol.as_ref(), entry.metadata.as_ref())?;
        if entry.removes_rows && !self.ignore_removes {
            return Err(QueueError::RowsRemoved { version });
        }
        (self.next, self.read) = (version + 1, Some(version));
        Ok(Found { version, entry })
    }

    /// The entry of `version` can't be had for `error`: what that keeps from being delivered, if the store says that
    /// it is there.
    async fn what_is_lost(&self, version: u64, error: QueueError) -> QueueError {
        let (what, detail) = match &error {
            QueueError::Request { what, detail } => (what.clone(), detail.clone()),
            // Where nothing else is asked, one entry that always fails looks like a store that doesn't answer.
            QueueError::Stalled { .. } => (format!("GET of version {version}"), error.to_string()),
            _ => return error,
        };
        let listed = match version.checked_sub(1) {
            Some(before) => self.lake.list_versions(Some(before), usize::MAX).await,
            None => self.lake.list_versions(None, usize::MAX).await,
        };
        match listed.as_deref() {
            Ok(versions) if versions.first() == Some(&version) => {
                let last = versions.last().copied().unwrap_or(version);
                QueueError::Unreadable { lost: version..=last, what, detail }
            }
            _ => error,
        }
    }

    /// Where later versions exist: the awaited entry after all, or the error that it is missing.
    async fn look_beyond(&mut self) -> Result<Option<bytes::Bytes>, QueueError> {
        let awaited = self.next;
        // From the last one that was read on, which is there unless the log was cleaned or isn't the same any more.
        let after = self.read.map_or(Some(awaited), |read| read.checked_sub(1));
        let found = self.lake.list_versions(after, 3).await?;
        if let (Some(known), None) = (self.read, found.first()) {
            return Err(QueueError::MadeAnew { place: self.lake.describe(), known });
        }
        let Some(&later) = found.iter().find(|&&version| version > awaited) else {
            return Ok(None);
        };
        for _ in 0..GAP_TRIES {
            if let Some(bytes) = self.lake.read_entry(awaited).await? {
                return Ok(Some(bytes));
            }
            tokio::time::sleep(GAP_PAUSE).await;
        }
        match self.lake.list_versions(None, 1).await?.first() {
            Some(&oldest) if oldest > awaited => {
                Err(QueueError::CleanedAway { gone: awaited..=oldest - 1, oldest })
            }
            _ => Err(QueueError::Gap { missing: awaited..=later - 1, next: later }),
        }
    }
}
