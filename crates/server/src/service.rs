//! The S3 operations. Those that are not here answer `NotImplemented`, the trait's default.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use uuid::Uuid;

use super::blob::{Attributes, now};
use super::budget::Piece;
use super::credentials::{Credentials, OnePair};
use super::faults::IgnoreCondition;
use super::listing::{Page, Position, Query, is_url, max_keys, page, rows, shown};
use super::multipart::{MAX_PARTS, Upload, UploadedPart, Uploads, chosen};
use super::objects::{ReadConditions, condition, etag, only_version, receive, too_large, unreadable};
use super::store::{Conditions, Store, failed, precondition_failed};

/// What a client reads as "no particular region".
const REGION: &str = "us-east-1";

/// The type of an object that came without one, as in S3.
const UNTYPED: &str = "binary/octet-stream";

/// Bodies of XML: at most 10,000 parts, or 1,000 keys of 1 KiB that are escaped character by character.
const MAX_XML_BYTES: usize = 8 << 20;

/// Of a form's fields, which are read before it is refused.
const MAX_FORM_BYTES: usize = 64 << 10;

pub(super) struct Service {
    pub(super) store: Arc<Store>,
    pub(super) uploads: Uploads,
    /// Of one object.
    pub(super) max_object_bytes: u64,
}

pub(super) fn build(store: Store, credentials: Credentials, max_object_bytes: u64) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = MAX_XML_BYTES;
    // Uploads by HTML forms are not implemented. The protocol crate would take in the whole file before it looks
    // for a signature.
    config.post_object_max_file_size = 0;
    config.form_max_fields_size = MAX_FORM_BYTES;
    let service = Service { store: Arc::new(store), uploads: Uploads::default(), max_object_bytes };
    let mut builder = S3ServiceBuilder::new(service);
    builder.set_auth(OnePair(credentials));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}

impl Service {
    /// Runs a change of the store, off the async threads where it waits for a disk.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        if self.store.blocks() { self.write_slowly(work).await } else { work(&self.store) }
    }

    /// A page of a bucket's listing.
    fn page(
        &self,
        bucket: &str,
        prefix: &Option<String>,
        delimiter: &Option<String>,
        after: Position,
        max_keys: usize,
    ) -> S3Result<Page> {
        let query = Query {
            prefix: prefix.as_deref().unwrap_or_default(),
            // An empty delimiter is none.
            delimiter: delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after,
            max_keys,
        };
        Ok(page(&self.store.bucket(bucket)?.objects.read(), &query))
    }

    /// Runs a change that takes long even in memory.
    pub(super) async fn write_slowly<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || work(&store)).await.map_err(S3Error::internal_error)?
    }
}

/// Whether a fault rule says so. The condition is signed, and cannot be taken off before the signature is checked.
fn ignores_conditions<T>(request: &S3Request<T>) -> bool {
    request.extensions.get::<IgnoreCondition>().is_some()
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Service {
    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let bucket = |(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(Timestamp::from(created)),
            ..Bucket::default()
        };
        let owner = Owner { id: Some("s3mq".to_owned()), ..Owner::default() };
        let output = ListBucketsOutput {
            buckets: Some(self.store.bucket_names().into_iter().map(bucket).collect()),
            owner: Some(owner),
            ..ListBucketsOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.store.bucket(&request.input.bucket)?;
        let bucket_region = Some(REGION.to_owned());
        Ok(S3Response::new(HeadBucketOutput { bucket_region, ..HeadBucketOutput::default() }))
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let bucket = request.input.bucket;
        let location = Some(format!("/{bucket}"));
        self.write(move |store| store.create_bucket(&bucket)).await?;
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        self.write(move |store| store.delete_bucket(&request.input.bucket)).await?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        let after = match (&input.continuation_token, &input.start_after) {
            (Some(token), _) => Position::from_token(token).ok_or_else(|| {
                s3_error!(InvalidArgument, "The continuation token is not one of this server's.")
            })?,
            (None, Some(key)) => Position::Key(key.clone()),
            (None, None) => Position::Start,
        };
        let max_keys = max_keys(input.max_keys)?;
        let page = self.page(&input.bucket, &input.prefix, &input.delimiter, after, max_keys)?;
        let url = is_url(&input.encoding_type);
        let next = page.next.as_ref().map(Position::token);
        let key_count = page.objects.len() + page.prefixes.len();
        let (contents, common_prefixes) = rows(page, url);
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(shown(input.prefix.unwrap_or_default(), url)),
            delimiter: input.delimiter.map(|delimiter| shown(delimiter, url)),
            start_after: input.start_after.map(|key| shown(key, url)),
            encoding_type: input.encoding_type,
            max_keys: Some(max_keys as i32),
            key_count: Some(key_count as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = request.input;
        // A marker that is a common prefix, as `NextMarker` may be, has been shown with all its keys.
        let after = match (&input.marker, &input.delimiter) {
            (Some(marker), Some(delimiter)) if !delimiter.is_empty() && marker.ends_with(delimiter) => {
                Position::Prefix(marker.clone())
            }
            (Some(marker), _) => Position::Key(marker.clone()),
            (None, _) => Position::Start,
        };
        let max_keys = max_keys(input.max_keys)?;
        let mut page = self.page(&input.bucket, &input.prefix, &input.delimiter, after, max_keys)?;
        let url = is_url(&input.encoding_type);
        let next = page.next.take().map(|position| shown(position.name(), url));
        let (contents, common_prefixes) = rows(page, url);
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(shown(input.prefix.unwrap_or_default(), url)),
            marker: Some(shown(input.marker.unwrap_or_default(), url)),
            delimiter: input.delimiter.map(|delimiter| shown(delimiter, url)),
            encoding_type: input.encoding_type,
            max_keys: Some(max_keys as i32),
            is_truncated: Some(next.is_some()),
            next_marker: next,
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            ..ListObjectsOutput::default()
        }))
    }

    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        if ignores_conditions(&request) {
            (request.input.if_match, request.input.if_none_match) = (None, None);
        }
        let input = request.input;
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
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(etag(&about)), ..PutObjectOutput::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
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
        Ok(S3Response::new(GetObjectOutput {
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
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
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
        Ok(S3Response::new(HeadObjectOutput {
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
        }))
    }

    async fn copy_object(&self, mut request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        if ignores_conditions(&request) {
            request.headers.remove(IF_MATCH);
            request.headers.remove(IF_NONE_MATCH);
        }
        let S3Request { input, headers, .. } = request;
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
        let source = self.read(from_bucket, from_key, None, &source_conditions).await;
        let (object, _, body) = source.map_err(|error| match error.code() {
            // A copy answers 412 where a GET would answer 304.
            S3ErrorCode::NotModified => precondition_failed(),
            _ => error,
        })?;
        let held = Arc::new(self.store.budget.take(object.about.size).map_err(failed)?);
        let chunks: Vec<Bytes> = body.try_collect().await.map_err(unreadable)?;
        let pieces = chunks.into_iter().map(|bytes| Piece { bytes, _held: held.clone() }).collect();
        let attributes = match input.metadata_directive {
            Some(directive) if directive.as_str() == MetadataDirective::REPLACE => Attributes {
                cache_control: input.cache_control,
                content_disposition: input.content_disposition,
                content_encoding: input.content_encoding,
                content_language: input.content_language,
                content_type: input.content_type,
                metadata: input.metadata,
            },
            _ => object.about.attributes.clone(),
        };
        // The protocol crate does not read these two for a copy; ignoring them would overwrite.
        let conditions = Conditions {
            if_match: condition(&headers, IF_MATCH)?,
            if_none_match: condition(&headers, IF_NONE_MATCH)?,
        };
        let (bucket, key) = (input.bucket, input.key);
        let about =
            self.write(move |store| store.put(&bucket, &key, &conditions, attributes, pieces)).await?;
        let result = CopyObjectResult {
            e_tag: Some(etag(&about)),
            last_modified: Some(Timestamp::from(about.modified)),
            ..CopyObjectResult::default()
        };
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            ..CopyObjectOutput::default()
        }))
    }

    async fn delete_object(&self, mut request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        if ignores_conditions(&request) {
            request.input.if_match = None;
        }
        let input = request.input;
        only_version(input.version_id.as_deref())?;
        if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
            return Err(s3_error!(NotImplemented, "Of a DELETE's conditions, only If-Match is implemented."));
        }
        let conditions = Conditions { if_match: input.if_match, if_none_match: None };
        self.write(move |store| store.delete(&input.bucket, &input.key, &conditions)).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let input = request.input;
        let objects = input.delete.objects;
        if objects.len() > 1000 {
            return Err(s3_error!(MalformedXML, "At most 1000 keys can be deleted at once."));
        }
        if objects.iter().any(|object| object.last_modified_time.is_some() || object.size.is_some()) {
            return Err(s3_error!(NotImplemented, "Of a DELETE's conditions, only ETag is implemented."));
        }
        for object in &objects {
            only_version(object.version_id.as_deref())?;
        }
        self.store.bucket(&input.bucket)?;
        let delete_each = move |store: &Store| {
            let delete = |object: ObjectIdentifier| {
                let if_match = object.e_tag.map(ETagCondition::ETag);
                let conditions = Conditions { if_match, if_none_match: None };
                (store.delete(&input.bucket, &object.key, &conditions), object.key)
            };
            Ok(objects.into_iter().map(delete).collect::<Vec<_>>())
        };
        let quiet = input.delete.quiet.unwrap_or_default();
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (result, key) in self.write(delete_each).await? {
            match result {
                Ok(()) if quiet => {}
                Ok(()) => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id: None,
                }),
            }
        }
        let (deleted, errors) = (Some(deleted), Some(errors));
        Ok(S3Response::new(DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let input = request.input;
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
        let held = self.store.budget.take(attributes.entry_bytes(&key)).map_err(failed)?;
        let upload = Upload { bucket, key, attributes, parts: BTreeMap::new(), _held: held };
        let id = Uuid::new_v4().simple().to_string();
        self.uploads.0.lock().insert(id.clone(), upload);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let input = request.input;
        let (id, bucket, key, number) = (&input.upload_id, &input.bucket, &input.key, input.part_number);
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(s3_error!(InvalidArgument, "A part's number is 1 to {MAX_PARTS}."));
        }
        // Before a body is received for nothing.
        let others = self.uploads.with(id, bucket, key, |upload| upload.bytes_without(number))?;
        let left = self.max_object_bytes.saturating_sub(others);
        let piece = receive(input.body, input.content_length, left, &self.store.budget).await?;
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
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(tag)),
            ..UploadPartOutput::default()
        }))
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        let input = request.input;
        let after = input.part_number_marker.unwrap_or(0);
        let count = input.max_parts.and_then(|count| usize::try_from(count).ok()).unwrap_or(1000).min(1000);
        let mut parts: Vec<Part> =
            self.uploads.with(&input.upload_id, &input.bucket, &input.key, |upload| {
                let later = upload.parts.iter().filter(|(number, _)| **number > after);
                later.take(count + 1).map(|(number, part)| part.describe(*number)).collect()
            })?;
        let is_truncated = parts.len() > count;
        parts.truncate(count);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            part_number_marker: Some(after),
            max_parts: Some(count as i32),
            is_truncated: Some(is_truncated),
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            parts: Some(parts),
            ..ListPartsOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        mut request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        if ignores_conditions(&request) {
            (request.input.if_match, request.input.if_none_match) = (None, None);
        }
        let input = request.input;
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
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(etag(&about)),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = request.input;
        self.uploads.with(&input.upload_id, &input.bucket, &input.key, |_| ())?;
        self.uploads.0.lock().remove(&input.upload_id);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}
