//! The operations on objects: PUT, GET, HEAD, copy, DELETE.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::blob::{About, Attributes, Object as Stored};
use super::budget::{Budget, Piece};
use super::service::Service;
use super::store::{Conditions, StoreError, matches};

/// What is set aside for a body before any of it has come, at most.
const MAX_RESERVED_BYTES: u64 = 64 << 20;

/// The type of an object that came without one, as in S3.
const UNTYPED: &str = "binary/octet-stream";

impl Service {
    pub(super) async fn put(&self, input: PutObjectInput) -> S3Result<PutObjectOutput> {
        if input.write_offset_bytes.is_some() || input.sse_customer_key.is_some() {
            return Err(s3_error!(NotImplemented, "Appending and encryption are not implemented."));
        }
        let attributes = Attributes {
            cache_control: input.cache_control,
            content_disposition: input.content_disposition,
            content_encoding: input.content_encoding,
            content_language: input.content_language,
            content_type: input.content_type,
            metadata: input.metadata,
        };
        let body =
            receive(input.body, input.content_length, self.max_object_bytes, &self.store.budget).await?;
        let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
        let (bucket, key) = (input.bucket, input.key);
        let about =
            self.write(move |store| store.put(&bucket, &key, &conditions, attributes, vec![body])).await?;
        Ok(PutObjectOutput { e_tag: Some(etag(&about)), ..PutObjectOutput::default() })
    }

    pub(super) async fn get(&self, input: GetObjectInput) -> S3Result<GetObjectOutput> {
        if input.part_number.is_some() {
            return Err(s3_error!(NotImplemented, "Reading single parts is not implemented."));
        }
        only_version(input.version_id.as_deref())?;
        let conditions = ReadConditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        let (object, span, body) = self.read(&input.bucket, &input.key, input.range, &conditions).await?;
        let about = &object.about;
        let attributes = about.attributes.clone();
        let content_range =
            input.range.map(|_| format!("bytes {}-{}/{}", span.start, span.end - 1, about.size));
        Ok(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            cache_control: attributes.cache_control,
            content_disposition: attributes.content_disposition,
            content_encoding: attributes.content_encoding,
            content_language: attributes.content_language,
            content_length: Some((span.end - span.start) as i64),
            content_range,
            content_type: Some(attributes.content_type.unwrap_or_else(|| UNTYPED.to_owned())),
            e_tag: Some(etag(about)),
            last_modified: Some(Timestamp::from(about.modified)),
            metadata: attributes.metadata,
            ..GetObjectOutput::default()
        })
    }

    pub(super) fn head(&self, input: HeadObjectInput) -> S3Result<HeadObjectOutput> {
        only_version(input.version_id.as_deref())?;
        let object = self.store.object(&input.bucket, &input.key)?;
        let about = &object.about;
        let conditions = ReadConditions {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        conditions.check(about)?;
        let attributes = about.attributes.clone();
        Ok(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: attributes.cache_control,
            content_disposition: attributes.content_disposition,
            content_encoding: attributes.content_encoding,
            content_language: attributes.content_language,
            content_length: Some(about.size as i64),
            content_type: Some(attributes.content_type.unwrap_or_else(|| UNTYPED.to_owned())),
            e_tag: Some(etag(about)),
            last_modified: Some(Timestamp::from(about.modified)),
            metadata: attributes.metadata,
            ..HeadObjectOutput::default()
        })
    }

    pub(super) async fn copy(
        &self,
        input: CopyObjectInput,
        headers: &HeaderMap,
    ) -> S3Result<CopyObjectOutput> {
        let CopySource::Bucket { bucket: from_bucket, key: from_key, version_id } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "Access points are not implemented."));
        };
        only_version(version_id.as_deref())?;
        let source_conditions = ReadConditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        // A copy answers 412 where a GET would answer 304.
        let not_modified_is_412 = |error: S3Error| match error.code() {
            S3ErrorCode::NotModified => s3_error!(PreconditionFailed),
            _ => error,
        };
        let source = self.read(from_bucket, from_key, None, &source_conditions).await;
        let (object, _, body) = source.map_err(not_modified_is_412)?;
        let held = Arc::new(self.store.budget.take(object.about.size).map_err(StoreError::from)?);
        let chunks: Vec<Bytes> = body.try_collect().await.map_err(unreadable)?;
        let pieces = chunks.into_iter().map(|bytes| Piece { bytes, _held: held.clone() }).collect();
        let replace = input.metadata_directive.is_some_and(|way| way.as_str() == MetadataDirective::REPLACE);
        let attributes = match replace {
            false => object.about.attributes.clone(),
            true => Attributes {
                cache_control: input.cache_control,
                content_disposition: input.content_disposition,
                content_encoding: input.content_encoding,
                content_language: input.content_language,
                content_type: input.content_type,
                metadata: input.metadata,
            },
        };
        // The protocol crate does not read these two for a copy; ignoring them would overwrite.
        let conditions = Conditions {
            if_match: condition(headers, IF_MATCH)?,
            if_none_match: condition(headers, IF_NONE_MATCH)?,
        };
        let (bucket, key) = (input.bucket, input.key);
        let about =
            self.write(move |store| store.put(&bucket, &key, &conditions, attributes, pieces)).await?;
        let result = CopyObjectResult {
            e_tag: Some(etag(&about)),
            last_modified: Some(Timestamp::from(about.modified)),
            ..CopyObjectResult::default()
        };
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }

    pub(super) async fn delete(&self, input: DeleteObjectInput) -> S3Result<DeleteObjectOutput> {
        only_version(input.version_id.as_deref())?;
        if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
            return Err(s3_error!(
                NotImplemented,
                "Of the conditions of a DELETE, only If-Match is implemented."
            ));
        }
        let conditions = Conditions { if_match: input.if_match, if_none_match: None };
        self.write(move |store| store.delete(&input.bucket, &input.key, &conditions)).await?;
        Ok(DeleteObjectOutput::default())
    }

    pub(super) async fn delete_many(&self, input: DeleteObjectsInput) -> S3Result<DeleteObjectsOutput> {
        let objects = input.delete.objects;
        if objects.len() > 1000 {
            return Err(s3_error!(MalformedXML, "At most 1000 keys can be deleted at once."));
        }
        if objects.iter().any(|object| object.last_modified_time.is_some() || object.size.is_some()) {
            return Err(s3_error!(
                NotImplemented,
                "Of the conditions of a DELETE, only ETag is implemented."
            ));
        }
        for object in &objects {
            only_version(object.version_id.as_deref())?;
        }
        self.store.bucket(&input.bucket)?;
        let results = self.write(move |store| {
            Ok(objects
                .into_iter()
                .map(|object| {
                    let conditions =
                        Conditions { if_match: object.e_tag.map(ETagCondition::ETag), if_none_match: None };
                    let result = store.delete(&input.bucket, &object.key, &conditions);
                    (object.key, result.map_err(S3Error::from))
                })
                .collect::<Vec<_>>())
        });
        let mut output = DeleteObjectsOutput {
            deleted: Some(Vec::new()),
            errors: Some(Vec::new()),
            request_charged: None,
        };
        let quiet = input.delete.quiet.unwrap_or_default();
        for (key, result) in results.await? {
            match (result, &mut output.deleted, &mut output.errors) {
                (Ok(()), Some(deleted), _) if !quiet => {
                    deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() });
                }
                (Err(error), _, Some(errors)) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id: None,
                }),
                _ => {}
            }
        }
        Ok(output)
    }

    /// Finds an object and opens the asked bytes of it.
    async fn read(
        &self,
        bucket: &str,
        key: &str,
        range: Option<Range>,
        conditions: &ReadConditions,
    ) -> S3Result<(Arc<Stored>, Span<u64>, StreamingBlob)> {
        let mut object = self.store.object(bucket, key)?;
        loop {
            conditions.check(&object.about)?;
            let span = span(range, object.about.size)?;
            match object.blob.read(span.clone()).await {
                Ok(body) => return Ok((object, span, body)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    // Replaced or removed between look-up and opening: what counts is there now.
                    let now = self.store.object(bucket, key)?;
                    if Arc::ptr_eq(&now, &object) {
                        return Err(unreadable(error));
                    }
                    object = now;
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
}

/// What must hold for an object to be read.
struct ReadConditions {
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
    if_modified_since: Option<Timestamp>,
    if_unmodified_since: Option<Timestamp>,
}

impl ReadConditions {
    /// Checks them in the order of RFC 9110, in which an ETag outranks a time.
    fn check(&self, about: &About) -> S3Result<()> {
        let modified = Timestamp::from(whole_seconds(about.modified));
        let is_expected = match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) => matches(wanted, about),
            (None, Some(time)) => modified <= *time,
            (None, None) => true,
        };
        if !is_expected {
            return Err(s3_error!(PreconditionFailed, "A condition of the request does not hold."));
        }
        let is_known = match (&self.if_none_match, &self.if_modified_since) {
            (Some(known), _) => matches(known, about),
            (None, Some(time)) => modified <= *time,
            (None, None) => false,
        };
        if is_known {
            let mut error = s3_error!(NotModified);
            let tag = etag(about).to_http_header().map_err(S3Error::internal_error)?;
            error.set_headers(HeaderMap::from_iter([(ETAG, tag)]));
            return Err(error);
        }
        Ok(())
    }
}

/// The ETag as the protocol crate writes it.
pub(super) fn etag(about: &About) -> ETag {
    ETag::Strong(about.etag.clone())
}

/// A time as HTTP's dates can hold it.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())
}

/// The bytes a range asks for.
fn span(range: Option<Range>, size: u64) -> S3Result<Span<u64>> {
    match range {
        None => Ok(0..size),
        // The last bytes of nothing: the protocol crate allows it, S3 does not.
        Some(_) if size == 0 => Err(s3_error!(InvalidRange)),
        Some(range) => Ok(range.check(size)?),
    }
}

fn only_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Versions are not implemented.")),
    }
}

fn condition(headers: &HeaderMap, name: http::HeaderName) -> S3Result<Option<ETagCondition>> {
    let parse = |value: &http::HeaderValue| ETagCondition::parse_http_header(value.as_bytes());
    headers.get(name).map(parse).transpose().map_err(|error| s3_error!(error, InvalidArgument))
}

fn unreadable(error: impl std::fmt::Display) -> S3Error {
    tracing::warn!("an object cannot be read: {error}");
    s3_error!(InternalError, "The object cannot be read: {error}")
}

/// Receives a body as one piece of exactly its size, which is `most` at most. It is copied once: what arrives is a slice of
/// the connection's read buffer, and would keep all of that alive for as long as the object.
pub(super) async fn receive(
    body: Option<StreamingBlob>,
    length: Option<i64>,
    most: u64,
    budget: &Arc<Budget>,
) -> S3Result<Piece> {
    let full = |error| S3Error::from(StoreError::from(error));
    let mut held = budget.take(0).map_err(full)?;
    let Some(mut body) = body else { return Ok(Piece { bytes: Bytes::new(), _held: Arc::new(held) }) };
    let expected = length.and_then(|length| u64::try_from(length).ok());
    if expected.is_some_and(|length| length > most) {
        return Err(refuse(body, too_large()).await);
    }
    // What is promised is set aside before it comes, what isn't, piece by piece.
    if let Err(error) = held.grow(expected.unwrap_or_default()) {
        return Err(refuse(body, full(error)).await);
    }
    let mut bytes = Vec::with_capacity(expected.unwrap_or_default().min(MAX_RESERVED_BYTES) as usize);
    while let Some(frame) = body.next().await {
        let frame =
            frame.map_err(|error| s3_error!(IncompleteBody, "The body did not come whole: {error}"))?;
        let size = (bytes.len() + frame.len()) as u64;
        if size > most {
            return Err(refuse(body, too_large()).await);
        }
        if expected.is_none_or(|length| size > length)
            && let Err(error) = held.grow(frame.len() as u64)
        {
            return Err(refuse(body, full(error)).await);
        }
        bytes.extend_from_slice(&frame);
    }
    if expected.is_some_and(|length| length != bytes.len() as u64) {
        return Err(s3_error!(IncompleteBody));
    }
    // Only a body larger than what was set aside, or of unknown length, has room to give back.
    bytes.shrink_to_fit();
    Ok(Piece { bytes: Bytes::from(bytes), _held: Arc::new(held) })
}

/// Of what is refused, so much is still taken and dropped, while more keeps coming. A client that sends on to a
/// closed connection has it reset, and may never read why; one that waits for the answer gets it soon.
const MAX_DROPPED_BYTES: u64 = 64 << 20;
const NO_MORE_COMES: Duration = Duration::from_millis(250);

/// Drops a body, and is the reason.
pub(super) async fn refuse<T>(mut body: StreamingBlob, reason: T) -> T {
    let mut dropped_bytes = 0;
    while dropped_bytes < MAX_DROPPED_BYTES
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(NO_MORE_COMES, body.next()).await
    {
        dropped_bytes += frame.len() as u64;
    }
    reason
}

pub(super) fn too_large() -> S3Error {
    s3_error!(EntityTooLarge, "This server takes no object of so many bytes; --max-object-mib says how many.")
}
