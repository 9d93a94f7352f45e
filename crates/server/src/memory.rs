//! Objects in memory: shared with the readers, never copied for them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use s3s::Body;
use s3s::dto::StreamingBlob;

use super::blob::{About, Blob, Blobs, Staged};
use super::budget::{Budget, Piece};

/// The store without a disk. The index holds the bytes; there is nothing else to keep.
pub(super) struct Memory(pub(super) Arc<Budget>);

impl Blobs for Memory {
    fn blocks(&self) -> bool {
        false
    }

    fn create_bucket(&self, _bucket: &str) -> io::Result<()> {
        Ok(())
    }

    fn delete_bucket(&self, _bucket: &str) -> io::Result<()> {
        Ok(())
    }

    fn stage(
        &self,
        _bucket: &str,
        _key: &str,
        _about: &About,
        mut pieces: Vec<Piece>,
    ) -> io::Result<Box<dyn Staged>> {
        if pieces.len() == 1 {
            return Ok(Box::new(InMemory(pieces.remove(0))));
        }
        // A copy, while the pieces are still there.
        let held = Arc::new(self.0.take(pieces.iter().map(|piece| piece.bytes.len() as u64).sum())?);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &*piece.bytes).collect();
        Ok(Box::new(InMemory(Piece { bytes: Bytes::from(pieces.concat()), _held: held })))
    }
}

struct InMemory(Piece);

impl Staged for InMemory {
    fn publish(self: Box<Self>, _sequence: u64) -> io::Result<Box<dyn Blob>> {
        Ok(self)
    }
}

#[async_trait::async_trait]
impl Blob for InMemory {
    async fn read(&self, range: Range<u64>) -> io::Result<StreamingBlob> {
        // The range lies within the bytes, whose length is a `usize`.
        let bytes = self.0.bytes.slice(range.start as usize..range.end as usize);
        Ok(StreamingBlob::from(Body::from(bytes)))
    }

    fn remove(&self) -> io::Result<()> {
        Ok(())
    }
}
