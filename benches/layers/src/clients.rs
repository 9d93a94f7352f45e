//! The three requests of a raw loop, by either HTTP client. Both are those of the one [`Store`]: the same
//! endpoint, credentials, deadlines and counting, and bodies signed or not alike.

use std::future::Future;

use aws_sdk_s3::Client as SdkClient;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::sync::Arc;

use super::LayersError;
use s3mq_queue::storage::{Store, one_line};

/// What a raw loop asks of a store.
pub(super) trait Client: Clone + Send + Sync + 'static {
    /// PUTs an object.
    fn put(&self, key: &Path, body: Bytes) -> impl Future<Output = Result<(), LayersError>> + Send;

    /// PUTs an object with `If-None-Match: *`.
    fn create(&self, key: &Path, body: Bytes) -> impl Future<Output = Result<(), LayersError>> + Send;

    /// GETs an object; `None` when it isn't there.
    fn get(&self, key: &Path) -> impl Future<Output = Result<Option<Bytes>, LayersError>> + Send;
}

/// Requests through the AWS SDK.
#[derive(Clone, Debug)]
pub(super) struct Sdk {
    client: SdkClient,
    bucket: String,
    unsigned_payload: bool,
}

impl Sdk {
    pub(super) fn of(store: &Store) -> Self {
        let config = store.config();
        Self {
            client: store.admin().client().clone(),
            bucket: config.bucket.clone(),
            unsigned_payload: config.unsigned_payload(),
        }
    }

    async fn send(&self, key: &Path, body: Bytes, condition: Option<&str>) -> Result<(), LayersError> {
        let request = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(key.as_ref())
            .set_if_none_match(condition.map(str::to_owned))
            .body(ByteStream::from(body))
            .customize();
        let request = if self.unsigned_payload { request.disable_payload_signing() } else { request };
        request.send().await.map(drop).map_err(|error| failed("PUT", key, &error))
    }
}

impl Client for Sdk {
    async fn put(&self, key: &Path, body: Bytes) -> Result<(), LayersError> {
        self.send(key, body, None).await
    }

    async fn create(&self, key: &Path, body: Bytes) -> Result<(), LayersError> {
        self.send(key, body, Some("*")).await
    }

    async fn get(&self, key: &Path) -> Result<Option<Bytes>, LayersError> {
        match self.client.get_object().bucket(&self.bucket).key(key.as_ref()).send().await {
            Ok(object) => {
                let body = object.body.collect().await.map_err(|error| failed("GET", key, &error))?;
                Ok(Some(body.into_bytes()))
            }
            Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_key()) => Ok(None),
            Err(error) => Err(failed("GET", key, &error)),
        }
    }
}

/// Requests through `object_store`, as the queue's.
#[derive(Clone, Debug)]
pub(super) struct Objects(Arc<dyn ObjectStore>);

impl Objects {
    pub(super) fn of(store: &Store) -> Self {
        Self(store.objects().clone())
    }
}

impl Client for Objects {
    async fn put(&self, key: &Path, body: Bytes) -> Result<(), LayersError> {
        self.0.put(key, body.into()).await.map(drop).map_err(|error| failed("PUT", key, &error))
    }

    async fn create(&self, key: &Path, body: Bytes) -> Result<(), LayersError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.0.put_opts(key, body.into(), options).await;
        put.map(drop).map_err(|error| failed("PUT", key, &error))
    }

    async fn get(&self, key: &Path) -> Result<Option<Bytes>, LayersError> {
        match self.0.get(key).await {
            Ok(object) => object.bytes().await.map(Some).map_err(|error| failed("GET", key, &error)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("GET", key, &error)),
        }
    }
}

fn failed(method: &str, key: &Path, error: &(dyn std::error::Error + 'static)) -> LayersError {
    LayersError::Request { request: format!("{method} of {key}"), detail: one_line(error) }
}
