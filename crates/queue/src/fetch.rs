//! Fetching a data file and decoding it. One that isn't there, or isn't as the log says, is asked for once more before it
//! counts as lost: a store, or what is before it, may give one wrong answer.

use std::time::Duration;

use object_store::path::Path;

use super::blocking::off_the_runtime;
use super::consumer::{LostFile, Received, ReceivedBatch};
use super::entry::{Add, Origin};
use super::error::{QueueError, shortened};
use super::inflight::Room;
use super::lake::Lake;
use super::parquet_file::{self, Decoded};
use super::stamps::Stamps;
use s3mq_clock::{Anchor, thread_cpu_us};

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
    pub room: Room,
}

/// What is in the file, when it was there, and when it would have been decoded without a wait for a thread or the
/// processor: that is a part of waiting for delivery.
type Attempt = Result<(Decoded, i64, i64), String>;

impl Fetch {
    pub(super) async fn run(mut self) -> Result<Received, QueueError> {
        let key = self.lake.data_key(&self.add.path).map_err(|place| QueueError::Unsupported {
            action: "read",
            place: self.lake.describe(),
            reason: format!(
                "version {} has the data file {}, {place}",
                self.version,
                shortened(&self.add.path)
            ),
        })?;
        let mut attempt = self.attempt(&key, Some(self.add.size)).await?;
        if let Err(reason) = attempt {
            tracing::info!("{key} is not as the log says ({reason}); it is asked for once more");
            tokio::time::sleep(PAUSE).await;
            // Other writers may be wrong about the size of what is whole.
            attempt = self.attempt(&key, None).await?;
        }
        // One that is lost has had its turn too.
        self.room.decode(Some(0)).await;
        Ok(match attempt {
            Ok((decoded, fetched_us, decoded_us)) => self.received(decoded, fetched_us, decoded_us),
            Err(reason) => self.lost(reason),
        })
    }

    /// Asks for the file and decodes it; the inner error is what is wrong with it.
    async fn attempt(&mut self, key: &Path, size: Option<u64>) -> Result<Attempt, QueueError> {
        let Some(file) = self.lake.read_file(key).await? else {
            return Ok(Err("it is no longer there".to_owned()));
        };
        let fetched_us = self.anchor.now_us();
        if let Some(size) = size.filter(|size| *size != file.len() as u64) {
            return Ok(Err(format!("it has {} bytes instead of {size}", file.len())));
        }
        let file_bytes = file.len();
        let opened = match parquet_file::open(file, self.add.rows) {
            Ok(opened) => opened,
            Err(problem) => return Ok(Err(problem)),
        };
        self.room.decode(opened.decoded_bytes()).await;
        let decode = || {
            let begun_us = thread_cpu_us();
            let decoded = opened.decode();
            (decoded, thread_cpu_us() - begun_us)
        };
        let (decoded, decoding_us) = off_the_runtime(file_bytes, decode).await?;
        let is_ours = self.add.origin.is_some();
        Ok(decoded.and_then(|decoded| match decoded.nulls {
            // No producer of ours writes one.
            1.. if is_ours => Err(format!("{} of its rows have no data", decoded.nulls)),
            _ => Ok((decoded, fetched_us, fetched_us + decoding_us)),
        }))
    }

    fn received(self, decoded: Decoded, fetched_us: i64, decoded_us: i64) -> Received {
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
            _in_flight: self.room.into_in_flight(),
        })
    }

    fn lost(self, reason: String) -> Received {
        let Add { path, rows, origin, .. } = self.add;
        let rows = rows.filter(|rows| *rows <= MAX_ROWS);
        let origin = origin.filter(|origin: &Origin| origin.rows <= MAX_ROWS);
        Received::Lost(LostFile { version: self.version, path, rows, origin, reason })
    }
}
