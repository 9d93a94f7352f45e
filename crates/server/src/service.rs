//! What the protocol crate calls: one line per operation, which says where it is done.
//!
//! Operations that are not here answer `NotImplemented`, which is the trait's own default.

use std::sync::Arc;

use http::header::{IF_MATCH, IF_NONE_MATCH};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result};

use super::credentials::{Credentials, OnePair};
use super::faults::IgnoreCondition;
use super::multipart::Uploads;
use super::store::{Store, StoreError};

/// Bodies of XML: at most 10,000 parts, or 1,000 keys of 1 KiB that are escaped character by character.
const MAX_XML_BYTES: usize = 8 << 20;

/// The fields of a form, which are read before it is refused.
const MAX_FORM_BYTES: usize = 64 << 10;

/// The S3 operations over a store.
pub(super) struct Service {
    pub(super) store: Arc<Store>,
    pub(super) uploads: Uploads,
    /// The most one object may have.
    pub(super) max_object_bytes: u64,
}

/// A service that accepts one key pair and path-style requests.
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
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> S3Result<T> {
        if self.store.blocks() { self.write_slowly(work).await } else { Ok(work(&self.store)?) }
    }

    /// Runs a change that takes long even in memory.
    pub(super) async fn write_slowly<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> S3Result<T> {
        let store = self.store.clone();
        let done =
            tokio::task::spawn_blocking(move || work(&store)).await.map_err(S3Error::internal_error)?;
        Ok(done?)
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
        Ok(S3Response::new(self.all_buckets()))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.describe_bucket(&request.input).map(S3Response::new)
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        self.add_bucket(request.input).await.map(S3Response::new)
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        self.remove_bucket(request.input).await.map(S3Response::new)
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        self.list_v2(request.input).map(S3Response::new)
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        self.list_v1(request.input).map(S3Response::new)
    }

    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        if ignores_conditions(&request) {
            (request.input.if_match, request.input.if_none_match) = (None, None);
        }
        self.put(request.input).await.map(S3Response::new)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(request.input).await.map(S3Response::new)
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(request.input).map(S3Response::new)
    }

    async fn copy_object(&self, mut request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        if ignores_conditions(&request) {
            request.headers.remove(IF_MATCH);
            request.headers.remove(IF_NONE_MATCH);
        }
        self.copy(request.input, &request.headers).await.map(S3Response::new)
    }

    async fn delete_object(&self, mut request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        if ignores_conditions(&request) {
            request.input.if_match = None;
        }
        self.delete(request.input).await.map(S3Response::new)
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        self.delete_many(request.input).await.map(S3Response::new)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.begin_upload(request.input).map(S3Response::new)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.add_part(request.input).await.map(S3Response::new)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.show_parts(request.input).map(S3Response::new)
    }

    async fn complete_multipart_upload(
        &self,
        mut request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        if ignores_conditions(&request) {
            (request.input.if_match, request.input.if_none_match) = (None, None);
        }
        self.complete_upload(request.input).await.map(S3Response::new)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        self.abort_upload(&request.input).map(S3Response::new)
    }
}
