//! Receiving: versions become batches of messages, delivered in the order of the log.
//!
//! The data files of several versions are fetched and decoded at once, within bounds (`inflight`). A data file that is
//! gone or can't be decoded is reported as [`Received::Lost`] and the queue goes on: what is missing is known and can be
//! counted. A version that is gone or can't be read is an error: what it held isn't known.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::entry::{EndOfStream, Entry, Origin};
use super::error::{QueueError, shortened};
use super::fetch::Fetch;
use super::inflight::{Bounds, InFlight};
use super::lake::Lake;
use super::open::open;
use super::parquet_file::Chunk;
use super::poll::Poll;
use super::stamps::Stamps;
use super::table::Access;
use super::tail::Tail;
use s3mq_clock::Anchor;

/// Where in the log a consumer begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The oldest version that the log still has.
    #[default]
    Earliest,
    /// After the version that is the latest now.
    Latest,
    /// This version.
    Version(u64),
}

/// How a consumer works.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where to begin.
    pub start: Start,
    /// When to ask for new versions.
    pub poll: Poll,
    /// Messages that may be fetched and not delivered yet; a file with more of them is fetched alone.
    pub max_inflight_messages: usize,
    /// The same in bytes of data files.
    pub max_inflight_bytes: usize,
    /// Deliver on past a version that removes rows, instead of stopping.
    pub ignore_removes: bool,
    /// The clock of the stamps.
    pub anchor: Anchor,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            start: Start::default(),
            poll: Poll::Adaptive { expected: Duration::from_secs(1) },
            max_inflight_messages: 2_000_000,
            max_inflight_bytes: 64 << 20,
            ignore_removes: false,
            anchor: Anchor::now(),
        }
    }
}

/// What a consumer receives.
#[derive(Debug)]
pub enum Received {
    /// The messages of one data file.
    Batch(ReceivedBatch),
    /// A producer epoch ended; nothing more comes from it.
    End(EndOfStream),
    /// A committed data file that can't be read; its messages are lost.
    Lost(LostFile),
}

/// The messages of one data file, in order.
#[derive(Debug)]
pub struct ReceivedBatch {
    /// The version that added them.
    pub version: u64,
    /// Their numbers, where the writer is a [`super::Producer`].
    pub origin: Option<Origin>,
    /// Rows with `diff < 0`, left out.
    pub retractions: u64,
    /// Rows without data, left out.
    pub nulls: u64,
    /// When what was done, where the writer says so.
    pub stamps: Option<Stamps>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) _in_flight: InFlight,
}

impl ReceivedBatch {
    /// How many messages.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.data.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().flat_map(|chunk| {
            let (offsets, bytes) = (chunk.data.value_offsets(), chunk.data.value_data());
            offsets.windows(2).map(|ends| &bytes[ends[0] as usize..ends[1] as usize])
        })
    }

    /// The messages' sequence numbers within their producer's epoch, a slice a chunk, where they have any.
    pub fn sequences(&self) -> impl Iterator<Item = &[i64]> {
        self.chunks.iter().filter_map(|chunk| chunk.seq.as_ref()).map(|seq| seq.values().as_ref())
    }
}

/// A committed data file whose messages can't be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFile {
    /// The version that added it.
    pub version: u64,
    /// Its path, as the log has it.
    pub path: String,
    /// How many messages it held, where the log says so.
    pub rows: Option<u64>,
    /// Their numbers, where the writer is a [`super::Producer`].
    pub origin: Option<Origin>,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for LostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, version, reason) = (shortened(&self.path), self.version, shortened(&self.reason));
        let rows = self.rows.map_or("an unknown number of".to_owned(), |rows| rows.to_string());
        write!(f, "data file {path} of version {version} is lost ({reason}): {rows} messages")
    }
}

/// Receives the messages of a queue. Dropping it ends its background work.
#[derive(Debug)]
pub struct Consumer {
    first_version: u64,
    missing_history: Option<RangeInclusive<u64>>,
    cold_open: Option<Duration>,
    /// What is delivered next, while it is being fetched.
    head: Option<Slot>,
    slots: mpsc::Receiver<Slot>,
    asked: Arc<Notify>,
    /// One task, which ends when this is dropped.
    follower: JoinSet<()>,
    failed: bool,
}

/// A place in the order of delivery, filled when its file is decoded.
#[derive(Debug)]
enum Slot {
    /// Nothing where somebody asked, and the log has nothing more.
    Ready(Result<Option<Received>, QueueError>),
    Fetching(JoinHandle<Result<Received, QueueError>>),
}

/// Entries that may be ahead of delivery; bounds limit what they hold.
const SLOTS: usize = 256;

impl Consumer {
    /// Opens the queue. The table need not exist yet: its first message is then waited for. Fails when the store does, the
    /// table is one that we can't read, or the log no longer has the version asked for.
    pub async fn open(lake: &Lake, options: ConsumerOptions) -> Result<Self, QueueError> {
        let oldest = lake.list_versions(None, 1).await?.first().copied();
        let opened = if oldest.is_some() { Some(open(lake).await?) } else { None };
        if let Some(opened) = &opened {
            Access::Read.check(lake, Some(&opened.protocol), Some(&opened.metadata))?;
        }
        let oldest = oldest.unwrap_or(0);
        let latest = opened.as_ref().map(|opened| opened.version);
        let first_version = match (options.start, latest) {
            (Start::Earliest, _) => oldest,
            (Start::Latest, latest) => latest.map_or(0, |latest| latest + 1),
            (Start::Version(version), _) if version < oldest => {
                return Err(QueueError::CleanedAway { gone: version..=oldest - 1, oldest });
            }
            (Start::Version(version), latest) => {
                if let Some(latest) = latest.filter(|latest| version > latest + 1) {
                    tracing::warn!(
                        "version {version} of {} isn't there yet, the latest is {latest}; it is waited for, and \
                         what comes before it is passed over",
                        lake.describe()
                    );
                }
                version
            }
        };
        let is_cut = options.start == Start::Earliest && oldest > 0;
        let missing_history = is_cut.then(|| 0..=oldest - 1);
        let cold_open = opened.map(|opened| opened.took);
        let (sender, slots) = mpsc::channel(SLOTS);
        let asked = Arc::new(Notify::new());
        let (poll, ignore_removes) = (options.poll, options.ignore_removes);
        let follower = Follower {
            tail: Tail::from(lake.clone(), latest, first_version, poll, asked.clone(), ignore_removes),
            lake: lake.clone(),
            anchor: options.anchor,
            bounds: Bounds::new(options.max_inflight_messages, options.max_inflight_bytes),
            slots: sender,
        };
        let follower = JoinSet::from_iter([follower.run()]);
        let (head, failed) = (None, false);
        Ok(Self { first_version, missing_history, cold_open, head, slots, asked, follower, failed })
    }

    /// The version that delivery began with.
    pub fn first_version(&self) -> u64 {
        self.first_version
    }

    /// How long it took to open the table; `None` where it wasn't there yet.
    pub fn cold_open(&self) -> Option<Duration> {
        self.cold_open
    }

    /// Versions that the log no longer has, where `earliest` was asked for: their messages were not delivered.
    pub fn missing_history(&self) -> Option<RangeInclusive<u64>> {
        self.missing_history.clone()
    }

    /// The next thing in the order of the log; waits until there is one. An error is what stops the queue: nothing comes
    /// after it. Cancel safe: a call that was dropped took nothing.
    pub async fn next(&mut self) -> Result<Received, QueueError> {
        loop {
            if let Some(received) = self.next_or_nothing().await? {
                return Ok(received);
            }
        }
    }

    /// Has the log looked through at once for a missing version or another log in its place, as is otherwise done after
    /// some idle seconds. [`Consumer::next_or_nothing`] gives the answer.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// As [`Consumer::next`]; `None` where [`Consumer::ask`] was called, and all that the log has was given.
    pub async fn next_or_nothing(&mut self) -> Result<Option<Received>, QueueError> {
        if self.failed {
            return Err(stopped());
        }
        let received = self.following().await;
        if received.is_err() {
            self.failed = true;
            self.follower.abort_all();
        }
        received
    }

    async fn following(&mut self) -> Result<Option<Received>, QueueError> {
        if self.head.is_none() {
            self.head = Some(self.slots.recv().await.ok_or_else(stopped)?);
        }
        // What is being fetched stays the head until it is there.
        if let Some(Slot::Fetching(fetch)) = &mut self.head {
            let fetched = fetch.await.map_err(QueueError::from);
            self.head = Some(Slot::Ready(fetched.flatten().map(Some)));
        }
        match self.head.take() {
            Some(Slot::Ready(received)) => received,
            _ => Err(stopped()),
        }
    }
}

fn stopped() -> QueueError {
    QueueError::TaskEnded("the queue has stopped".to_owned())
}

struct Follower {
    lake: Lake,
    anchor: Anchor,
    tail: Tail,
    bounds: Bounds,
    slots: mpsc::Sender<Slot>,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let sent = match self.tail.next().await {
                Ok(Some((version, entry))) => self.dispatch(version, entry).await,
                Ok(None) => self.slots.send(Slot::Ready(Ok(None))).await,
                Err(error) => {
                    let _ = self.slots.send(Slot::Ready(Err(error))).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    async fn dispatch(&mut self, version: u64, entry: Entry) -> Result<(), mpsc::error::SendError<Slot>> {
        let discovered_us = self.anchor.now_us();
        for add in entry.adds {
            let fetch = Fetch {
                lake: self.lake.clone(),
                anchor: self.anchor.clone(),
                version,
                commit_sent_us: entry.commit_sent_us,
                discovered_us,
                room: self.bounds.take(add.rows.unwrap_or(1), add.size).await,
                add,
            };
            self.slots.send(Slot::Fetching(tokio::spawn(fetch.run()))).await?;
        }
        if let Some(end) = entry.end {
            self.slots.send(Slot::Ready(Ok(Some(Received::End(end))))).await?;
        }
        Ok(())
    }
}
