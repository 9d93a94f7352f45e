//! Objects in memory: shared with the readers, never copied for them.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use s3s::Body;
use s3s::dto::StreamingBlob;

use super::blob::{About, Blob, Blobs, Staged};

/// The store without a disk. The index holds the bytes; there is nothing else to keep.
pub(super) struct Memory;

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
        mut chunks: Vec<Bytes>,
    ) -> io::Result<Box<dyn Staged>> {
        let bytes = match chunks.len() {
            1 => chunks.remove(0),
            _ => Bytes::from(chunks.concat()),
        };
        Ok(Box::new(InMemory(bytes)))
    }
}

struct InMemory(Bytes);

impl Staged for InMemory {
    fn publish(self: Box<Self>, _sequence: u64) -> io::Result<Box<dyn Blob>> {
        Ok(self)
    }
}

#[async_trait::async_trait]
impl Blob for InMemory {
    async fn read(&self, range: Range<u64>) -> io::Result<StreamingBlob> {
        // The range lies within the bytes, whose length is a `usize`.
        let bytes = self.0.slice(range.start as usize..range.end as usize);
        Ok(StreamingBlob::from(Body::from(bytes)))
    }

    fn remove(&self) -> io::Result<()> {
        Ok(())
    }
}
