//! Ageing a table: many versions in little time, as if it had been in use for long.
//!
//! Each version is a commit of one data file of one message, made as a [`super::Producer`] makes its own.
//! What differs is that many are on their way at once, which is only right while nobody else writes to the
//! table, and is refused where somebody does. Readers may not follow meanwhile: versions come out of order.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::batch::Batch;
use super::checkpoint::{CheckpointAnswer, CheckpointOptions, make_checkpoint};
use super::commit::Committer;
use super::create::create_if_absent;
use super::entry::{ProducerEpoch, commit_of_files};
use super::error::QueueError;
use super::lake::Lake;
use super::open::open;
use super::ownership::check_writable;
use super::parquet_file::DataEncoding;
use super::producer::store_batch;
use s3mq_clock::Anchor;

/// How a table is filled.
#[derive(Clone, Debug)]
pub struct PreloadOptions {
    /// How many versions are added.
    pub versions: u64,
    /// Versions from one checkpoint to the next; the last version gets one too. 0: none are made.
    pub checkpoint_interval: u64,
    /// Whether a table that s3mq didn't create is written to.
    pub append_to_existing: bool,
    /// The clock of the commits' stamps.
    pub anchor: Anchor,
}

/// What a table was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preloaded {
    /// Its latest version.
    pub last_version: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
}

/// Versions that are on their way at once, and requests of a checkpoint beside them: nobody else is to be waited for.
const AT_ONCE: usize = 16;
/// Without checkpoints, all versions up to one of this many later are waited for before the next begins.
const STRETCH: u64 = 1000;

/// Adds versions to a table, which is created where it isn't there; `message` makes the one message of each, and
/// ends it early where it gives none; `tell` hears how many there are so far. However it ends, the versions
/// that were begun are finished, and none is missing between them, unless the store fails.
///
/// # Errors
/// When the store fails, the table is one that we may not write to, somebody else writes to it, or a
/// checkpoint can't be made.
pub async fn preload(
    lake: &Lake,
    options: PreloadOptions,
    mut message: impl FnMut() -> Option<Vec<u8>>,
    mut tell: impl FnMut(u64),
) -> Result<Preloaded, QueueError> {
    create_if_absent(lake, options.append_to_existing).await?;
    let opened = open(lake).await?;
    check_writable(lake, &opened.protocol, &opened.metadata, options.append_to_existing).await?;

    let by = ProducerEpoch { producer: 0, epoch: Uuid::new_v4() };
    let (before, last) = (opened.version, opened.version + options.versions);
    let stretch = if options.checkpoint_interval > 0 { options.checkpoint_interval } else { STRETCH };
    let making =
        CheckpointOptions { requests_at_once: AT_ONCE, append_to_existing: options.append_to_existing };
    let mut checkpoints = Checkpoints { lake, making, made: 0, running: None };
    let mut done = before;
    while done < last {
        let until = (done - done % stretch + stretch).min(last);
        let messages = (done + 1..=until).map_while(|version| Some((version, message()?)));
        let versions = futures::stream::iter(messages).map(|(version, message)| {
            let number = version - before - 1;
            add_version(lake.clone(), by, options.anchor.clone(), version, number, message)
        });
        let mut versions = versions.buffer_unordered(AT_ONCE);
        let mut added = done - before;
        while let Some(()) = versions.try_next().await? {
            added += 1;
            tell(added);
        }
        done = before + added;
        if done < until {
            break;
        }
        if options.checkpoint_interval > 0 {
            checkpoints.start(done).await?;
        }
    }
    Ok(Preloaded { last_version: done, checkpoints: checkpoints.finish().await? })
}

async fn add_version(
    lake: Lake,
    by: ProducerEpoch,
    anchor: Anchor,
    version: u64,
    number: u64,
    message: Vec<u8>,
) -> Result<(), QueueError> {
    let batch = Batch::from_iter([message]);
    let file = store_batch(lake.clone(), by, DataEncoding::default(), anchor.clone(), number, batch).await?;
    let commit_id = Uuid::new_v4();
    let entry = Bytes::from(commit_of_files(commit_id, by, number + 1, anchor.now_us(), &[file]));
    let committed = Committer::of_version(lake.clone(), version).commit(entry, commit_id).await?;
    if committed.version == version {
        return Ok(());
    }
    let detail = format!("somebody else wrote version {version} meanwhile");
    Err(QueueError::Table { action: "preload", place: lake.describe(), detail })
}

/// One checkpoint at a time, beside the versions that follow it.
struct Checkpoints<'a> {
    lake: &'a Lake,
    making: CheckpointOptions,
    made: u64,
    running: Option<JoinHandle<CheckpointAnswer>>,
}

impl Checkpoints<'_> {
    async fn start(&mut self, version: u64) -> Result<(), QueueError> {
        self.wait().await?;
        let (lake, making) = (self.lake.clone(), self.making);
        self.running = Some(tokio::spawn(async move { make_checkpoint(&lake, version, making).await }));
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), QueueError> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        let (_, made) = running.await.map_err(|error| QueueError::TaskEnded(error.to_string()))?;
        match made {
            Ok(()) => {
                self.made += 1;
                Ok(())
            }
            Err(error) => {
                let (place, detail) = (self.lake.describe(), error.to_string());
                Err(QueueError::Table { action: "checkpoint", place, detail })
            }
        }
    }

    async fn finish(mut self) -> Result<u64, QueueError> {
        self.wait().await?;
        Ok(self.made)
    }
}
