//! The requests of a raw loop, by either HTTP client. Both are those of the one [`Store`]: the same endpoint,
//! credentials, deadlines and counting, and bodies signed or not alike.

use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode};

use super::job::Layer;
use s3mq::cli::Failure;
use s3mq_queue::storage::{Prefix, Store, one_line};

/// PUTs and GETs objects below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) store: Store,
    pub(super) prefix: Prefix,
    /// Which client: [`Layer::RawSdk`] or [`Layer::Raw`].
    pub(super) layer: Layer,
}

impl Client {
    /// In a place of s3mq's that nobody else uses.
    fn key(&self, name: &str) -> Path {
        self.prefix.join(&format!("_s3mq/{name}"))
    }

    /// PUTs an object, with `If-None-Match: *` where `mode` is to create it.
    pub(super) async fn put(&self, name: &str, body: Bytes, mode: PutMode) -> Result<(), Failure> {
        let key = self.key(name);
        if self.layer != Layer::RawSdk {
            let put = self.store.objects().put_opts(&key, body.into(), mode.into()).await;
            return put.map(drop).map_err(|error| failed("PUT", &key, &error));
        }
        let (client, config) = (self.store.admin().client(), self.store.config());
        let condition = (mode == PutMode::Create).then(|| "*".to_owned());
        let request = client.put_object().bucket(&config.bucket).key(key.as_ref());
        let request = request.set_if_none_match(condition).body(ByteStream::from(body)).customize();
        let request = if config.unsigned_payload() { request.disable_payload_signing() } else { request };
        request.send().await.map(drop).map_err(|error| failed("PUT", &key, &error))
    }

    /// GETs an object; `None` when it isn't there.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        let key = self.key(name);
        if self.layer != Layer::RawSdk {
            return match self.store.objects().get(&key).await {
                Ok(object) => object.bytes().await.map(Some).map_err(|error| failed("GET", &key, &error)),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(failed("GET", &key, &error)),
            };
        }
        let request = self.store.admin().client().get_object();
        match request.bucket(&self.store.config().bucket).key(key.as_ref()).send().await {
            Ok(object) => match object.body.collect().await {
                Ok(body) => Ok(Some(body.into_bytes())),
                Err(error) => Err(failed("GET", &key, &error)),
            },
            Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_key()) => Ok(None),
            Err(error) => Err(failed("GET", &key, &error)),
        }
    }
}

fn failed(method: &str, key: &Path, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::runtime(format!("{method} of {key} failed: {}", one_line(error)))
}
