//! Where the bytes are: the one seam between the in-memory and the on-disk store.
//!
//! Everything else about an object (its key, its ETag, its place in a listing) is decided by the
//! index of [`Store`](super::store::Store), the same for both. A write has two steps: *staging*
//! the bytes, which may take long and holds no lock, and *publishing* them, which is quick and
//! happens under the key's lock once the conditions hold.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use s3s::dto::StreamingBlob;
use serde::{Deserialize, Serialize};

use super::budget::{ENTRY_BYTES, Held, Piece};

/// An object as the index knows it. It never changes: a write replaces it by another.
pub(super) struct Object {
    pub(super) about: About,
    pub(super) blob: Box<dyn Blob>,
    /// For its place in the index; `None` for one that was there when the server started.
    pub(super) _held: Option<Held>,
}

/// Everything about an object except its key and its bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    /// Opaque and unique to the write. S3's is an MD5 for simple PUTs, but promises nothing;
    /// computing one would take more of a core than all the rest of a large PUT.
    pub(super) etag: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) attributes: Attributes,
}

/// The time of a write.
pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(s3mq_clock::wall_us()).unwrap_or_default())
}

/// The headers a client gave with an object and gets back with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Attributes {
    pub(super) cache_control: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) metadata: Option<HashMap<String, String>>,
}

impl Attributes {
    /// What an entry with these and a key takes.
    pub(super) fn entry_bytes(&self, key: &str) -> u64 {
        let headers = [
            &self.cache_control,
            &self.content_disposition,
            &self.content_encoding,
            &self.content_language,
            &self.content_type,
        ];
        let headers = headers.into_iter().flatten().map(String::len);
        let metadata = self.metadata.iter().flatten().map(|(name, value)| name.len() + value.len());
        ENTRY_BYTES + (key.len() + headers.chain(metadata).sum::<usize>()) as u64
    }
}

/// Keeps bytes.
pub(super) trait Blobs: Send + Sync + 'static {
    /// Whether its calls wait for a disk, and so do not belong on an async thread.
    fn blocks(&self) -> bool;
    /// Prepares a bucket that the index does not have.
    fn create_bucket(&self, bucket: &str) -> io::Result<()>;
    /// Removes a bucket without objects.
    fn delete_bucket(&self, bucket: &str) -> io::Result<()>;
    /// Keeps the concatenated `pieces`, seen by nobody yet.
    fn stage(
        &self,
        bucket: &str,
        key: &str,
        about: &About,
        pieces: Vec<Piece>,
    ) -> io::Result<Box<dyn Staged>>;
}

/// Bytes that are kept but not seen yet. Dropped, they are gone.
pub(super) trait Staged: Send {
    /// Makes them the key's. Of two blobs of a key, the higher `sequence` is the later one.
    fn publish(self: Box<Self>, sequence: u64) -> io::Result<Box<dyn Blob>>;
}

/// The bytes of one object.
#[async_trait::async_trait]
pub(super) trait Blob: Send + Sync {
    /// The bytes in `range`, which lies within the object. `NotFound` once removed.
    async fn read(&self, range: Range<u64>) -> io::Result<StreamingBlob>;
    /// Forgets the bytes. Readers that have begun still get them.
    fn remove(&self) -> io::Result<()>;
}
