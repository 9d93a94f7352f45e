//! Ageing a table: many versions of one message at once, which is only right while nobody else writes to the table, and
//! is refused where somebody does. Readers may not follow meanwhile: versions come out of order.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::batch::Batch;
use super::checkpoint::{CheckpointAnswer, CheckpointOptions, make_checkpoint};
use super::commit::Committer;
use super::entry::{ProducerEpoch, commit_of_files};
use super::error::QueueError;
use super::lake::Lake;
use super::open::open_for_writing;
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

/// Versions that are on their way at once, and requests of a checkpoint beside them.
const AT_ONCE: usize = 16;
/// Without checkpoints, all versions up to one of this many later are waited for before the next begins.
const STRETCH: u64 = 1000;

/// Adds versions to a table, which is created where it isn't there; `message` makes the one message of each, or ends it
/// early; `report` gets how many there are so far. Versions that were begun are finished, unless the store fails. Fails
/// when the store does, we may not write to the table, somebody else does, or a checkpoint can't be made.
pub async fn preload(
    lake: &Lake,
    options: PreloadOptions,
    mut message: impl FnMut() -> Option<Vec<u8>>,
    mut report: impl FnMut(u64),
) -> Result<Preloaded, QueueError> {
    let opened = open_for_writing(lake, options.append_to_existing).await?;
    let by = ProducerEpoch { producer: 0, epoch: Uuid::new_v4() };
    let (before, last) = (opened.version, opened.version + options.versions);
    let stretch = if options.checkpoint_interval > 0 { options.checkpoint_interval } else { STRETCH };
    let making =
        CheckpointOptions { requests_at_once: AT_ONCE, append_to_existing: options.append_to_existing };
    let checkpoint = |version| {
        let lake = lake.clone();
        tokio::spawn(async move { make_checkpoint(&lake, version, making).await })
    };
    // One at a time, beside the versions that follow it.
    let (mut running, mut checkpoints) = (None, 0);
    let mut done = before;
    while done < last {
        let until = (done - done % stretch + stretch).min(last);
        let messages = (done + 1..=until).map_while(|version| Some((version, message()?)));
        let versions = futures::stream::iter(messages).map(|(version, message)| {
            let (number, anchor) = (version - before - 1, options.anchor.clone());
            async move {
                let batch = Batch::from_iter([message]);
                let encoding = DataEncoding::default();
                let file = store_batch(lake.clone(), by, encoding, anchor.clone(), number, batch).await?;
                let commit_id = Uuid::new_v4();
                let entry = commit_of_files(commit_id, by, number + 1, anchor.now_us(), &[file]);
                let mut committer = Committer::of_version(lake.clone(), version);
                if committer.commit(Bytes::from(entry), commit_id).await?.version == version {
                    return Ok(());
                }
                Err(lake.cannot("preload", format!("somebody else wrote version {version} meanwhile")))
            }
        });
        let mut versions = versions.buffer_unordered(AT_ONCE);
        let mut added = done - before;
        while let Some(()) = versions.try_next().await? {
            added += 1;
            report(added);
        }
        done = before + added;
        if done < until {
            break;
        }
        if options.checkpoint_interval > 0 {
            checkpoints += finished(lake, running.take()).await?;
            running = Some(checkpoint(done));
        }
    }
    checkpoints += finished(lake, running).await?;
    Ok(Preloaded { last_version: done, checkpoints })
}

/// Waits for a checkpoint; how many were made.
async fn finished(lake: &Lake, running: Option<JoinHandle<CheckpointAnswer>>) -> Result<u64, QueueError> {
    let Some(running) = running else { return Ok(0) };
    let (_, made) = running.await?;
    made.map_err(|error| lake.cannot("checkpoint", error.to_string())).map(|()| 1)
}
