//! Fetching a data file and decoding it. One that isn't there, or isn't as the log says, is asked for once more before it
//! counts as lost: a store, or what is before it, may give one wrong answer.

use std::time::Duration;

use object_store::path::Path;

use super::blocking::off_the_runtime;
use super::consumer::{LostFile, Received, ReceivedBatch};
use super::entry::{Add, Origin};
use super::error::QueueError;
use super::inflight::InFlight;
use super::lake::Lake;
use super::parquet_file::{Decoded, decode};
use super::stamps::Stamps;
use s3mq_clock::Anchor;

/// Between the two questions for a file that isn't right.
const PAUSE: Duration = Duration::from_millis(100);

/// No data file has more rows; where the log says so, it isn't known how many are lost.
const MAX_ROWS: u64 = 1 << 40;

/// A data file that is to be fetched and decoded.
pub(super) struct Fetch {
    pub lake: Lake,
    pub anchor: Anchor,
    pub version: u64,
    pub commit_sent_us: Option<i64>,
    pub discovered_us: i64,
    pub add: Add,
    pub in_flight: InFlight,
}

/// What is in the file, and when it was there.
type Attempt = Result<(Decoded, i64), String>;

impl Fetch {
    pub(super) async fn run(self) -> Result<Received, QueueError> {
        let key = match self.lake.data_key(&self.add.path) {
            Ok(key) => key,
            Err(reason) => return Ok(self.lost(reason)),
        };
        let mut attempt = self.attempt(&key, Some(self.add.size)).await?;
        if let Err(reason) = attempt {
            tracing::info!("{key} is not as the log says ({reason}); it is asked for once more");
            tokio::time::sleep(PAUSE).await;
            // Other writers may be wrong about the size of what is whole.
            attempt = self.attempt(&key, None).await?;
        }
        Ok(match attempt {
            Ok((decoded, fetched_us)) => self.received(decoded, fetched_us),
            Err(reason) => self.lost(reason),
        })
    }

    /// Asks for the file and decodes it; the inner error is what is wrong with it.
    async fn attempt(&self, key: &Path, size: Option<u64>) -> Result<Attempt, QueueError> {
        let Some(file) = self.lake.read_file(key).await? else {
            return Ok(Err("it is no longer there".to_owned()));
        };
        let fetched_us = self.anchor.now_us();
        if let Some(size) = size.filter(|size| *size != file.len() as u64) {
            return Ok(Err(format!("it has {} bytes instead of {size}", file.len())));
        }
        let rows = self.add.rows;
        let decoded = off_the_runtime(file.len(), move || decode(file, rows)).await?;
        Ok(decoded.map(|decoded| (decoded, fetched_us)))
    }

    fn received(self, decoded: Decoded, fetched_us: i64) -> Received {
        let decoded_us = self.anchor.now_us();
        let stamps = self.add.stamps.zip(self.commit_sent_us).map(|(producer, commit_sent_us)| Stamps {
            producer,
            commit_sent_us,
            discovered_us: self.discovered_us,
            fetched_us,
            decoded_us,
        });
        Received::Batch(ReceivedBatch {
            version: self.version,
            origin: self.add.origin,
            retractions: decoded.retractions,
            nulls: decoded.nulls,
            stamps,
            chunks: decoded.chunks,
            _in_flight: self.in_flight,
        })
    }

    fn lost(self, reason: String) -> Received {
        let Add { path, rows, origin, .. } = self.add;
        let rows = rows.filter(|rows| *rows <= MAX_ROWS);
        let origin = origin.filter(|origin: &Origin| origin.rows <= MAX_ROWS);
        Received::Lost(LostFile { version: self.version, path, rows, origin, reason })
    }
}
