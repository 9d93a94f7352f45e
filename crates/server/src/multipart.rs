//! Multipart uploads: parts wait in memory until their object is completed from them. An upload that is neither completed
//! nor aborted stays until the server ends. Its parts together have at most the size of an object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::blob::Attributes;
use super::budget::{Held, Piece};

/// The highest number a part may have, as in S3.
pub(super) const MAX_PARTS: i32 = 10_000;

/// The least bytes of every part but the last, as in S3.
const MIN_PART_BYTES: usize = 5 << 20;

#[derive(Default)]
pub(super) struct Uploads(pub(super) Mutex<HashMap<String, Upload>>);

pub(super) struct Upload {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) attributes: Attributes,
    pub(super) parts: BTreeMap<i32, Arc<UploadedPart>>,
    /// For its own place in memory, without the parts.
    pub(super) _held: Held,
}

pub(super) struct UploadedPart {
    pub(super) etag: String,
    pub(super) modified: SystemTime,
    pub(super) piece: Piece,
}

impl Uploads {
    /// Works on the upload with this id, which must be one of this key.
    pub(super) fn with<T>(
        &self,
        id: &str,
        bucket: &str,
        key: &str,
        work: impl FnOnce(&mut Upload) -> T,
    ) -> S3Result<T> {
        match self.0.lock().get_mut(id) {
            Some(upload) if upload.bucket == bucket && upload.key == key => Ok(work(upload)),
            _ => Err(s3_error!(
                NoSuchUpload,
                "The upload does not exist; it may have been completed or aborted."
            )),
        }
    }
}

impl Upload {
    /// What is held of it beside one part.
    pub(super) fn bytes_without(&self, number: i32) -> u64 {
        let others = self.parts.iter().filter(|(other, _)| **other != number);
        others.map(|(_, part)| part.size()).sum()
    }
}

impl UploadedPart {
    pub(super) fn size(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    pub(super) fn describe(&self, number: i32) -> Part {
        Part {
            part_number: Some(number),
            e_tag: Some(ETag::Strong(self.etag.clone())),
            size: Some(self.size() as i64),
            last_modified: Some(Timestamp::from(self.modified)),
            ..Part::default()
        }
    }
}

/// The bytes of the parts that a client wants its object made of.
pub(super) fn chosen(
    uploaded: &BTreeMap<i32, Arc<UploadedPart>>,
    asked: &[CompletedPart],
) -> S3Result<Vec<Piece>> {
    if asked.is_empty() {
        return Err(s3_error!(MalformedXML, "An object needs at least one part."));
    }
    if !asked.is_sorted_by(|one, next| one.part_number < next.part_number) {
        return Err(s3_error!(InvalidPartOrder));
    }
    let mut pieces: Vec<Piece> = Vec::with_capacity(asked.len());
    for part in asked {
        let found = part.part_number.and_then(|number| uploaded.get(&number));
        let is_same =
            |found: &&Arc<UploadedPart>| part.e_tag.as_ref().is_none_or(|tag| tag.value() == found.etag);
        let Some(found) = found.filter(is_same) else { return Err(s3_error!(InvalidPart)) };
        pieces.push(found.piece.clone());
    }
    let but_last = &pieces[..pieces.len() - 1];
    if but_last.iter().any(|piece| piece.bytes.len() < MIN_PART_BYTES) {
        return Err(s3_error!(
            EntityTooSmall,
            "Every part but the last has at least {MIN_PART_BYTES} bytes."
        ));
    }
    Ok(pieces)
}
