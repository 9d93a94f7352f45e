//! Appending: batches become data files, data files become commits, in order.
//!
//! Batches are encoded and uploaded while an earlier commit is in flight; whatever finished uploading meanwhile shares
//! the next one. So a store that is slower than the batches come makes commits larger, not more.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::batch::Batch;
use super::blocking::off_the_runtime;
use super::checkpoint::{CheckpointBy, Checkpointer, Notice, notify};
use super::commit::{Committed, Committer};
use super::entry::{EndOfStream, Entry, Origin, ProducerEpoch, StoredFile, commit_of_end, commit_of_files};
use super::error::QueueError;
use super::lake::Lake;
use super::open::{open, open_for_writing};
use super::parquet_file::{DataEncoding, encode};
use super::stamps::ProducerStamps;
use s3mq_clock::{Anchor, monotonic_ns, thread_cpu_us};

/// How a producer works.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The producer's id; its rows carry it.
    pub producer_id: i32,
    /// Encoding of the column `data`.
    pub data_encoding: DataEncoding,
    /// How many batches may be encoding, uploading or waiting for their commit; [`Producer::append`] waits for the others.
    pub max_inflight_batches: usize,
    /// The clock of the stamps.
    pub anchor: Anchor,
    /// Versions of the table from one checkpoint to the next; 0 is never. The producer whose commit becomes a multiple of it
    /// makes the checkpoint.
    pub checkpoint_interval: u64,
    /// Where checkpoints are made.
    pub checkpoint_by: CheckpointBy,
    /// Whether a table that s3mq didn't create is written to, and one created where others have files.
    pub append_to_existing: bool,
    /// Where each commit and each checkpoint is reported.
    pub notices: Option<mpsc::UnboundedSender<Notice>>,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            producer_id: 0,
            data_encoding: DataEncoding::default(),
            max_inflight_batches: 4,
            anchor: Anchor::now(),
            checkpoint_interval: 1000,
            checkpoint_by: CheckpointBy::default(),
            append_to_existing: false,
            notices: None,
        }
    }
}

/// What a producer has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Messages.
    pub messages: u64,
    /// Data files.
    pub files: u64,
    /// Bytes of those files.
    pub file_bytes: u64,
    /// Commits, the end of stream included.
    pub commits: u64,
    /// PUTs of log entries that had to be sent again.
    pub commit_retries: u64,
    /// Versions that another producer took first.
    pub conflicts: u64,
    /// The last version committed.
    pub last_version: Option<u64>,
}

/// Appends messages to a queue, as one epoch. Dropping it abandons what isn't committed; call [`Producer::finish`].
#[derive(Debug)]
pub struct Producer {
    by: ProducerEpoch,
    anchor: Anchor,
    next_seq: u64,
    cold_open: Duration,
    batches: mpsc::Sender<(u64, Batch)>,
    pipeline: JoinHandle<Result<Appended, QueueError>>,
}

impl Producer {
    /// Opens the table for appending, and creates it where it isn't there. Fails when the store does, or we may not write
    /// to the table.
    pub async fn open(lake: &Lake, options: ProducerOptions) -> Result<Self, QueueError> {
        let opened = open_for_writing(lake, options.append_to_existing).await?;
        let by = ProducerEpoch { producer: options.producer_id, epoch: Uuid::new_v4() };
        let (batches, incoming) = mpsc::channel(1);
        let anchor = options.anchor.clone();
        let pipeline = Pipeline {
            lake: lake.clone(),
            by,
            batches: 0,
            appended: Appended::default(),
            first: None,
            checkpoints: Checkpointer::new(lake.clone(), &options),
            options,
        };
        let committer = Committer::after(lake.clone(), opened.version, opened.asked);
        let pipeline = tokio::spawn(pipeline.run(committer, incoming));
        Ok(Self { by, anchor, next_seq: 0, cold_open: opened.took, batches, pipeline })
    }

    /// Who this producer is.
    pub fn epoch(&self) -> ProducerEpoch {
        self.by
    }

    /// How long it took to open the table, once it was there.
    pub fn cold_open(&self) -> Duration {
        self.cold_open
    }

    /// Hands a batch over; it becomes one data file. Returns once the pipeline has taken it, before it is committed. Fails
    /// with what ended the pipeline, when an earlier batch failed.
    pub async fn append(&mut self, mut batch: Batch) -> Result<(), QueueError> {
        if batch.is_empty() {
            return Ok(());
        }
        if batch.bytes() > Batch::MAX_BYTES {
            let (bytes, limit) = (batch.bytes(), Batch::MAX_BYTES);
            return Err(QueueError::Batch(format!(
                "of {bytes} bytes is more than fits one data file ({limit})"
            )));
        }
        batch.sealed_us.get_or_insert_with(|| self.anchor.now_us());
        let first_seq = self.next_seq;
        self.next_seq += batch.len() as u64;
        if self.batches.send((first_seq, batch)).await.is_ok() {
            return Ok(());
        }
        Err(match (&mut self.pipeline).await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) => QueueError::TaskEnded("it finished early".to_owned()),
            Err(error) => error.into(),
        })
    }

    /// Commits what was appended, then the end of the stream, sees that it is still there, and says what there was. Fails
    /// with what ended the pipeline, or with [`QueueError::Vanished`] where the log was deleted meanwhile.
    pub async fn finish(self) -> Result<Appended, QueueError> {
        drop(self.batches);
        self.pipeline.await?
    }
}

struct Pipeline {
    lake: Lake,
    by: ProducerEpoch,
    options: ProducerOptions,
    /// Batches handed to a commit so far; the `txn` version.
    batches: u64,
    appended: Appended,
    /// The first version committed, and the id of its commit.
    first: Option<(u64, Uuid)>,
    checkpoints: Checkpointer,
}

/// A commit on its way; it gives the committer back.
type Commit = BoxFuture<'static, (Committer, Result<Landed, QueueError>)>;

struct Landed {
    committed: Committed,
    commit_id: Uuid,
    took_us: i64,
}

impl Pipeline {
    async fn run(
        mut self,
        committer: Committer,
        mut incoming: mpsc::Receiver<(u64, Batch)>,
    ) -> Result<Appended, QueueError> {
        let max_inflight = self.options.max_inflight_batches.max(1);
        let mut idle = Some(committer);
        let mut commit: Option<Commit> = None;
        let mut committing: Vec<StoredFile> = Vec::new();
        let mut stored: Vec<StoredFile> = Vec::new();
        let mut uploads = FuturesOrdered::new();
        let mut open = true;
        loop {
            if !stored.is_empty()
                && let Some(committer) = idle.take()
            {
                committing = std::mem::take(&mut stored);
                commit = Some(self.start_commit(committer, &committing));
            }
            let has_room = uploads.len() + stored.len() + committing.len() < max_inflight;
            tokio::select! {
                Some((committer, committed)) = OptionFuture::from(commit.as_mut()), if commit.is_some() => {
                    commit = None;
                    idle = Some(committer);
                    self.count(committed?, &committing);
                    committing.clear();
                }
                Some(file) = uploads.next(), if !uploads.is_empty() => {
                    stored.push(file?);
                }
                batch = incoming.recv(), if open && has_room => match batch {
                    Some((first_seq, batch)) => {
                        let (lake, encoding) = (self.lake.clone(), self.options.data_encoding);
                        let anchor = self.options.anchor.clone();
                        uploads.push_back(store_batch(lake, self.by, encoding, anchor, first_seq, batch));
                    }
                    None => open = false,
                },
                else => break,
            }
        }
        if let Some(mut committer) = idle {
            let commit_id = Uuid::new_v4();
            let end = EndOfStream { by: self.by, count: self.appended.messages, committed_us: None };
            let entry = Bytes::from(commit_of_end(commit_id, end, self.options.anchor.now_us()));
            self.count(timed(&mut committer, entry, commit_id).await?, &[]);
        }
        let seen = self.look_back().await;
        self.checkpoints.finish().await;
        seen.map(|()| self.appended)
    }

    /// Sees that what was committed first is still there: a log that was deleted meanwhile takes every version all the same.
    async fn look_back(&self) -> Result<(), QueueError> {
        match self.vanished().await {
            Ok(None) => Ok(()),
            Ok(Some(gone)) => Err(QueueError::Vanished { place: self.lake.describe(), gone }),
            Err(error) => {
                // Everything was acknowledged: that is no failure.
                tracing::warn!("what was committed could not be looked at once more: {error}");
                Ok(())
            }
        }
    }

    /// The first of the committed versions that are gone.
    async fn vanished(&self) -> Result<Option<RangeInclusive<u64>>, QueueError> {
        let (Some((first, commit_id)), Some(last)) = (self.first, self.appended.last_version) else {
            return Ok(None);
        };
        if let Some(entry) = self.lake.read_entry(first).await? {
            let entry =
                Entry::parse(&entry).map_err(|detail| QueueError::BadEntry { version: first, detail })?;
            return Ok((entry.commit_id != Some(commit_id)).then_some(first..=first));
        }
        let listed = self.lake.list_versions(first.checked_sub(1), usize::MAX).await?;
        let Some(gone) = missing(first..=last, &listed) else { return Ok(None) };
        // Where the log was cleaned, a checkpoint has it.
        match open(&self.lake).await {
            Ok(opened) if opened.version >= last => Ok(None),
            Ok(_) | Err(QueueError::Table { .. } | QueueError::Gap { .. }) => Ok(Some(gone)),
            Err(error) => Err(error),
        }
    }

    fn start_commit(&mut self, mut committer: Committer, files: &[StoredFile]) -> Commit {
        let commit_id = Uuid::new_v4();
        self.batches += files.len() as u64;
        let now_us = self.options.anchor.now_us();
        let entry = Bytes::from(commit_of_files(commit_id, self.by, self.batches, now_us, files));
        Box::pin(async move {
            let landed = timed(&mut committer, entry, commit_id).await;
            (committer, landed)
        })
    }

    fn count(&mut self, landed: Landed, files: &[StoredFile]) {
        let Landed { committed: Committed { version, retries, conflicts }, commit_id, took_us } = landed;
        let appended = &mut self.appended;
        appended.messages += files.iter().map(|file| file.origin.rows).sum::<u64>();
        appended.files += files.len() as u64;
        appended.file_bytes += files.iter().map(|file| file.size).sum::<u64>();
        appended.commits += 1;
        appended.commit_retries += u64::from(retries);
        appended.conflicts += u64::from(conflicts);
        appended.last_version = Some(version);
        self.first.get_or_insert((version, commit_id));
        // For whoever wants to know which answers a killed producer had.
        let (messages, epoch) = (appended.messages, self.by.epoch);
        tracing::debug!("committed version={version} messages={messages} epoch={epoch}");
        notify(&self.options.notices, Notice::Committed { version, took_us });
        self.checkpoints.committed(version);
    }
}

pub(super) async fn store_batch(
    lake: Lake,
    by: ProducerEpoch,
    encoding: DataEncoding,
    anchor: Anchor,
    first_seq: u64,
    mut batch: Batch,
) -> Result<StoredFile, QueueError> {
    let (rows, bytes) = (batch.len() as u64, batch.bytes());
    let handed_over = std::mem::take(&mut batch.handed_over);
    let sealed_us = batch.sealed_us.unwrap_or_else(|| anchor.now_us());
    let encode = move || {
        let begun_us = thread_cpu_us();
        let body = encode(batch, by.producer, first_seq, encoding);
        (body, thread_cpu_us() - begun_us)
    };
    let (body, encoding_us) = off_the_runtime(bytes, encode).await?;
    let body =
        body.map_err(|error| QueueError::Batch(format!("could not be encoded as Parquet: {error}")))?;
    let path = format!("part-{}.parquet", Uuid::new_v4());
    let encoded_us = anchor.now_us();
    // Waiting for room, for a thread or for the processor is not making a file.
    let queued_us = (encoded_us - encoding_us).max(sealed_us.min(encoded_us));
    let size = body.len() as u64;
    lake.write_file(&path, body).await?;
    let stamps = ProducerStamps { handed_over, sealed_us, queued_us, encoded_us, stored_us: anchor.now_us() };
    Ok(StoredFile { path, size, origin: Origin { by, first_seq, rows }, stamps })
}

/// The first of the `wanted` versions that are not among the `listed`, which ascend.
fn missing(mut wanted: RangeInclusive<u64>, listed: &[u64]) -> Option<RangeInclusive<u64>> {
    let start = *wanted.start();
    let mut listed = listed.iter().copied().skip_while(|&version| version < start).peekable();
    let first = wanted.find(|version| listed.next_if_eq(version).is_none())?;
    let after = listed.next().map_or(*wanted.end(), |there| (there - 1).min(*wanted.end()));
    Some(first..=after.max(first))
}

async fn timed(committer: &mut Committer, entry: Bytes, commit_id: Uuid) -> Result<Landed, QueueError> {
    let started_ns = monotonic_ns();
    let committed = committer.commit(entry, commit_id).await?;
    Ok(Landed { committed, commit_id, took_us: ((monotonic_ns() - started_ns) / 1_000) as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_found_wherever_it_is() {
        assert_eq!(missing(3..=6, &[2, 3, 4, 5, 6, 7]), None);
        assert_eq!(missing(3..=6, &[]), Some(3..=6));
        assert_eq!(missing(3..=6, &[6]), Some(3..=5));
        assert_eq!(missing(3..=6, &[9]), Some(3..=6));
        assert_eq!(missing(3..=6, &[3, 6, 7]), Some(4..=5));
        assert_eq!(missing(3..=6, &[3, 4, 5]), Some(6..=6));
    }
}
