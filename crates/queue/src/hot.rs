//! See [`crate::hot`].

use arrow_array::Array;
use bytes::Bytes;
use uuid::Uuid;

use super::batch::Batch;
use super::entry::{Entry, Origin, ProducerEpoch, StoredFile, commit_of_files};
use super::parquet_file::{self, DataEncoding};
use super::stamps::ProducerStamps;

/// The data file of a batch.
pub fn encode(batch: Batch) -> Result<Bytes, String> {
    parquet_file::encode(batch, 0, 0, DataEncoding::Plain)
}

/// How many messages a data file holds, all of them decoded.
pub fn decode(file: Bytes) -> Result<usize, String> {
    parquet_file::open(file, None)?
        .decode()
        .map(|rows| rows.chunks.iter().map(|chunk| chunk.data.len()).sum())
}

/// A stored file that waits for its commit.
#[derive(Debug)]
pub struct Stored(StoredFile);

impl Stored {
    /// A file of `messages`, handed over in `runs` of as many each.
    pub fn new(messages: u64, runs: u64) -> Self {
        let start_us = 1_724_403_133_000_000;
        let handed_over =
            (0..runs).map(|run| (run * (messages / runs), start_us + run as i64 * 1_000)).collect();
        let sealed_us = start_us + runs as i64 * 1_000;
        let stamps = ProducerStamps {
            handed_over,
            sealed_us,
            queued_us: sealed_us + 100,
            encoded_us: sealed_us + 400,
            stored_us: sealed_us + 900,
        };
        let by = ProducerEpoch { producer: 0, epoch: Uuid::from_u128(1) };
        Self(StoredFile {
            path: format!("part-{}.parquet", by.epoch),
            size: messages * 21,
            origin: Origin { by, first_seq: 0, rows: messages },
            stamps,
        })
    }

    /// The log entry that commits it alone.
    pub fn commit_line(&self) -> Vec<u8> {
        let StoredFile { origin, stamps, .. } = &self.0;
        commit_of_files(Uuid::from_u128(2), origin.by, 1, stamps.stored_us, std::slice::from_ref(&self.0))
    }
}

/// How many hand-overs the stamps of a log entry's files have, the entry read as the tail reads it.
pub fn parse_commit_line(entry: &[u8]) -> Result<usize, String> {
    let entry = Entry::parse(entry)?;
    Ok(entry.adds.iter().flat_map(|add| &add.stamps).map(|stamps| stamps.handed_over.len()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_benches_measure_is_done_in_full() {
        // The larger is more than a page.
        for messages in [1_000, 100_000] {
            let file = encode((0..messages).map(|_| "1724403133.066217").collect()).unwrap();
            assert_eq!(decode(file), Ok(messages));
        }
        assert_eq!(parse_commit_line(&Stored::new(1_000, 100).commit_line()), Ok(100));
    }
}
