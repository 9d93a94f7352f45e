//! One suite over both stores, through real HTTP, with the two clients that matter: the AWS SDK
//! and `object_store`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod conditions;
mod delays;
mod faults;
mod keys;
mod lifecycle;
mod limits;
mod listing;
mod model;
mod multipart;
mod objects;
mod proxy;
mod races;

use std::path::Path;
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Region, RequestChecksumCalculation, ResponseChecksumValidation};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use bytes::Bytes;
use object_store::ClientOptions;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use tempfile::TempDir;

use super::budget::Budget;
use super::{Config, Credentials, Server};

const BUCKET: &str = "bucket";

/// A server with a bucket, and clients of it.
struct TestServer {
    server: Server,
    sdk: Client,
    dir: Option<TempDir>,
}

impl TestServer {
    async fn in_memory() -> Self {
        let server = Server::start(config(None)).await.unwrap();
        Self { sdk: sdk(&server, server.credentials()), server, dir: None }
    }

    async fn on_disk() -> Self {
        Self::in_dir(TempDir::new().unwrap()).await
    }

    async fn in_dir(dir: TempDir) -> Self {
        // Not the directory itself, so that a test sees whether anything lands beside it.
        let server = Server::start(config(Some(&dir.path().join("data")))).await.unwrap();
        Self { sdk: sdk(&server, server.credentials()), server, dir: Some(dir) }
    }

    /// Ends the server and starts another one on the same directory.
    async fn restart(self) -> Self {
        self.server.shutdown().await;
        Self::in_dir(self.dir.unwrap()).await
    }

    fn object_store(&self, unsigned_payload: bool) -> AmazonS3 {
        object_store_at(&self.server.endpoint(), self.server.credentials(), unsigned_payload)
    }

    async fn put(&self, key: &str, body: impl Into<Bytes>) -> String {
        let body = body.into().into();
        let put = self.sdk.put_object().bucket(BUCKET).key(key).body(body).send().await.unwrap();
        put.e_tag.unwrap()
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        match self.sdk.get_object().bucket(BUCKET).key(key).send().await {
            Ok(answer) => Some(answer.body.collect().await.unwrap().into_bytes()),
            Err(error) => {
                assert_eq!(refusal(&error), (404, "NoSuchKey"));
                None
            }
        }
    }
}

fn unlimited() -> Arc<Budget> {
    Budget::new(u64::MAX)
}

fn config(data_dir: Option<&Path>) -> Config {
    Config { data_dir: data_dir.map(Path::to_owned), ..Config::in_memory(BUCKET) }
}

fn object_store_at(endpoint: &str, credentials: &Credentials, unsigned_payload: bool) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id(&credentials.access_key)
        .with_secret_access_key(&credentials.secret_key)
        .with_unsigned_payload(unsigned_payload)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .build()
        .unwrap()
}

fn sdk(server: &Server, credentials: &Credentials) -> Client {
    sdk_at(&server.endpoint(), credentials)
}

fn sdk_at(endpoint: &str, credentials: &Credentials) -> Client {
    let credentials = aws_sdk_s3::config::Credentials::new(
        &credentials.access_key,
        &credentials.secret_key,
        None,
        None,
        "test",
    );
    let config = aws_sdk_s3::config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(credentials)
        .force_path_style(true)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .build();
    Client::from_conf(config)
}

/// The status and code a server refused with.
fn refusal<E: ProvideErrorMetadata>(error: &SdkError<E>) -> (u16, &str) {
    let status = error.raw_response().expect("the server answered").status().as_u16();
    (status, error.code().unwrap_or_default())
}

/// Runs each test against a server of either kind.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&crate::tests::TestServer::in_memory().await).await;
            })*
        }
        mod on_disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&crate::tests::TestServer::on_disk().await).await;
            })*
        }
    };
}
use on_both_stores;
