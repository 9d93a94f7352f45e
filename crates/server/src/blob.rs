//! An object: its bytes, in memory or in a file, and what is known of it beside its key.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use s3s::Body;
use s3s::dto::StreamingBlob;
use serde::{Deserialize, Serialize};

use super::budget::{ENTRY_BYTES, Held, Piece};
use super::files::ObjectFile;

/// An object as the index knows it. It never changes: a write replaces it by another.
pub(super) struct Object {
    pub(super) about: About,
    pub(super) blob: Blob,
    /// For its place in the index; `None` for one that was there when the server started.
    pub(super) _held: Option<Held>,
}

/// Everything about an object except its key and its bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    /// Opaque and unique to the write: an MD5 would take more of a core than all the rest of a large PUT.
    pub(super) etag: String,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    pub(super) attributes: Attributes,
}

pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(s3mq_clock::wall_us()).unwrap_or_default())
}

/// The headers that a client gave with an object and gets back with it.
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

/// The bytes of one object.
pub(super) enum Blob {
    Memory(Piece),
    File(ObjectFile),
}

impl Blob {
    /// The bytes in `range`, which lies within the object. `NotFound` once removed.
    pub(super) async fn read(&self, range: Range<u64>) -> io::Result<StreamingBlob> {
        match self {
            Self::Memory(piece) => {
                let bytes = piece.bytes.slice(range.start as usize..range.end as usize);
                Ok(StreamingBlob::from(Body::from(bytes)))
            }
            Self::File(file) => file.read(range).await,
        }
    }

    /// Forgets the bytes. Readers that have begun still get them.
    pub(super) fn remove(&self) -> io::Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.remove(),
        }
    }
}
