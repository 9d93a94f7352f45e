//! What the operations on objects share: receiving and reading bodies, conditions of reads, ranges.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use http::HeaderMap;
use http::header::ETAG;
use s3s::dto::*;
use s3s::{S3Error, S3Result, s3_error};

use super::blob::{About, Object as Stored};
use super::budget::{Budget, Piece};
use super::service::Service;
use super::store::{failed, matches, precondition_failed};

/// What is set aside for a body before any of it has come, at most.
const MAX_RESERVED_BYTES: u64 = 64 << 20;

impl Service {
    /// Finds an object and opens the asked bytes of it.
    pub(super) async fn read(
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
#[derive(Default)]
pub(super) struct ReadConditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
    pub(super) if_modified_since: Option<Timestamp>,
    pub(super) if_unmodified_since: Option<Timestamp>,
}

impl ReadConditions {
    /// Checks them in the order of RFC 9110, in which an ETag outranks a time.
    pub(super) fn check(&self, about: &About) -> S3Result<()> {
        let modified = Timestamp::from(whole_seconds(about.modified));
        let is_expected = match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) => matches(wanted, about),
            (None, Some(time)) => modified <= *time,
            (None, None) => true,
        };
        if !is_expected {
            return Err(precondition_failed());
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

pub(super) fn etag(about: &About) -> ETag {
    ETag::Strong(about.etag.clone())
}

/// A time as HTTP's dates can hold it.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())
}

fn span(range: Option<Range>, size: u64) -> S3Result<Span<u64>> {
    match range {
        None => Ok(0..size),
        // The last bytes of nothing: the protocol crate allows it, S3 does not.
        Some(_) if size == 0 => Err(s3_error!(InvalidRange)),
        Some(range) => Ok(range.check(size)?),
    }
}

pub(super) fn only_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Versions are not implemented.")),
    }
}

pub(super) fn condition(headers: &HeaderMap, name: http::HeaderName) -> S3Result<Option<ETagCondition>> {
    let parse = |value: &http::HeaderValue| ETagCondition::parse_http_header(value.as_bytes());
    headers.get(name).map(parse).transpose().map_err(|error| s3_error!(error, InvalidArgument))
}

pub(super) fn unreadable(error: impl std::fmt::Display) -> S3Error {
    tracing::warn!("an object cannot be read: {error}");
    s3_error!(InternalError, "The object cannot be read: {error}")
}

/// Receives a body as one piece of exactly its size, which is at most `max_bytes`. It is copied: what arrives is a
/// slice of the connection's read buffer, and would keep all of that alive.
pub(super) async fn receive(
    body: Option<StreamingBlob>,
    length: Option<i64>,
    max_bytes: u64,
    budget: &Arc<Budget>,
) -> S3Result<Piece> {
    let mut held = budget.take(0).map_err(failed)?;
    let Some(mut body) = body else { return Ok(Piece { bytes: Bytes::new(), _held: Arc::new(held) }) };
    let expected = length.and_then(|length| u64::try_from(length).ok());
    if expected.is_some_and(|length| length > max_bytes) {
        return Err(refuse(body, too_large()).await);
    }
    // What is promised is set aside before it comes, what isn't, piece by piece.
    if let Err(error) = held.grow(expected.unwrap_or_default()) {
        return Err(refuse(body, failed(error)).await);
    }
    let mut bytes = Vec::with_capacity(expected.unwrap_or_default().min(MAX_RESERVED_BYTES) as usize);
    while let Some(frame) = body.next().await {
        let frame =
            frame.map_err(|error| s3_error!(IncompleteBody, "The body did not come whole: {error}"))?;
        let size = (bytes.len() + frame.len()) as u64;
        if size > max_bytes {
            return Err(refuse(body, too_large()).await);
        }
        if expected.is_none_or(|length| size > length)
            && let Err(error) = held.grow(frame.len() as u64)
        {
            return Err(refuse(body, failed(error)).await);
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

/// Of what is refused, so much is still taken and dropped, while more keeps coming: a client that sends on to a closed
/// connection may never read why.
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
