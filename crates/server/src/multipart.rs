//! Multipart uploads: parts wait in memory until their object is completed from them.
//!
//! An upload does not outlive the process, in either store: its client has not been promised an
//! object yet. One that is neither completed nor aborted keeps its parts until the server ends; together they are
//! never more than an object may have, and all uploads never more than [`Budget`](super::budget::Budget) has.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use s3s::dto::*;
use s3s::{S3Result, s3_error};
use uuid::Uuid;

use super::blob::{Attributes, now};
use super::budget::{Held, Piece};
use super::objects::{etag, receive, too_large};
use super::service::Service;
use super::store::{Conditions, StoreError};

/// The highest number a part may have, as in S3.
const MAX_PARTS: i32 = 10_000;

/// The least bytes of every part but the last, as in S3.
const MIN_PART_BYTES: usize = 5 << 20;

/// The uploads that are neither completed nor aborted.
#[derive(Default)]
pub(super) struct Uploads(Mutex<HashMap<String, Upload>>);

struct Upload {
    bucket: String,
    key: String,
    attributes: Attributes,
    parts: BTreeMap<i32, Arc<UploadedPart>>,
    /// For its own place in memory, without the parts.
    _held: Held,
}

struct UploadedPart {
    etag: String,
    modified: SystemTime,
    piece: Piece,
}

impl Uploads {
    /// Works on the upload with this id, which must be one of this key.
    fn with<T>(&self, id: &str, bucket: &str, key: &str, work: impl FnOnce(&mut Upload) -> T) -> S3Result<T> {
        match self.0.lock().get_mut(id) {
            Some(upload) if upload.bucket == bucket && upload.key == key => Ok(work(upload)),
            _ => Err(s3_error!(
                NoSuchUpload,
                "The upload does not exist; it may have been completed or aborted."
            )),
        }
    }
}

impl Service {
    pub(super) fn begin_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> S3Result<CreateMultipartUploadOutput> {
        if input.sse_customer_key.is_some() {
            return Err(s3_error!(NotImplemented, "Encryption is not implemented."));
        }
        self.store.bucket(&input.bucket)?;
        let attributes = Attributes {
            cache_control: input.cache_control,
            content_disposition: input.content_disposition,
            content_encoding: input.content_encoding,
            content_language: input.content_language,
            content_type: input.content_type,
            metadata: input.metadata,
        };
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        let held = self.store.budget.take(attributes.entry_bytes(&key)).map_err(StoreError::from)?;
        let upload = Upload { bucket, key, attributes, parts: BTreeMap::new(), _held: held };
        let id = Uuid::new_v4().simple().to_string();
        self.uploads.0.lock().insert(id.clone(), upload);
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        })
    }

    pub(super) async fn add_part(&self, input: UploadPartInput) -> S3Result<UploadPartOutput> {
        let (id, bucket, key, number) = (&input.upload_id, &input.bucket, &input.key, input.part_number);
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(s3_error!(InvalidArgument, "A part's number is 1 to {MAX_PARTS}."));
        }
        // Before a body is received for nothing.
        let others = self.uploads.with(id, bucket, key, |upload| upload.bytes_without(number))?;
        let most = self.max_object_bytes.saturating_sub(others);
        let piece = receive(input.body, input.content_length, most, &self.store.budget).await?;
        let tag = Uuid::new_v4().simple().to_string();
        let part = Arc::new(UploadedPart { etag: tag.clone(), modified: now(), piece });
        self.uploads.with(id, bucket, key, |upload| {
            // Other parts may have come meanwhile.
            if upload.bytes_without(number) + part.size() > self.max_object_bytes {
                return Err(too_large());
            }
            upload.parts.insert(number, part);
            Ok(())
        })??;
        Ok(UploadPartOutput { e_tag: Some(ETag::Strong(tag)), ..UploadPartOutput::default() })
    }

    pub(super) fn show_parts(&self, input: ListPartsInput) -> S3Result<ListPartsOutput> {
        let after = input.part_number_marker.unwrap_or(0);
        let count = input.max_parts.and_then(|count| usize::try_from(count).ok()).unwrap_or(1000).min(1000);
        let mut parts: Vec<Part> =
            self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
                let later = upload.parts.iter().filter(|(number, _)| **number > after);
                later.take(count + 1).map(|(number, part)| part.describe(*number)).collect()
            })?;
        let is_truncated = parts.len() > count;
        parts.truncate(count);
        Ok(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            part_number_marker: Some(after),
            max_parts: Some(count as i32),
            is_truncated: Some(is_truncated),
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            parts: Some(parts),
            ..ListPartsOutput::default()
        })
    }

    pub(super) async fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let asked = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        // The upload stays until its object is there: a refused condition may be tried again.
        let (attributes, pieces) =
            self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
                Ok::<_, s3s::S3Error>((upload.attributes.clone(), chosen(&upload.parts, &asked)?))
            })??;
        let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
        let (bucket, key) = (input.bucket.clone(), input.key.clone());
        // In memory, too, the parts have yet to be joined.
        let about =
            self.write_slowly(move |store| store.put(&bucket, &key, &conditions, attributes, pieces)).await?;
        self.uploads.0.lock().remove(&input.upload_id);
        Ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(etag(&about)),
            ..CompleteMultipartUploadOutput::default()
        })
    }

    pub(super) fn abort_upload(
        &self,
        input: &AbortMultipartUploadInput,
    ) -> S3Result<AbortMultipartUploadOutput> {
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |_| ())?;
        self.uploads.0.lock().remove(&input.upload_id);
        Ok(AbortMultipartUploadOutput::default())
    }
}

impl Upload {
    /// What is held of it beside one part.
    fn bytes_without(&self, number: i32) -> u64 {
        let others = self.parts.iter().filter(|(other, _)| **other != number);
        others.map(|(_, part)| part.size()).sum()
    }
}

impl UploadedPart {
    fn size(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    fn describe(&self, number: i32) -> Part {
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
fn chosen(uploaded: &BTreeMap<i32, Arc<UploadedPart>>, asked: &[CompletedPart]) -> S3Result<Vec<Piece>> {
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
