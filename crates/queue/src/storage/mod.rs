//! The store, seen from the rest of the program.
//!
//! ONE [`Config`] builds both clients: the [`object_store`] one that carries the queue's traffic and
//! the AWS SDK one that administers the bucket. Nothing is taken from ambient `AWS_*` variables
//! except what [`Config::resolve`] names, nor from those of a proxy, so that both always talk to the same
//! endpoint with the same credentials, directly. Every attempt either client puts on the wire is counted (`counting`), beneath
//! its retries.
//!
//! What it does not do: know anything of Delta or of messages. It sees keys and bytes.

mod admin;
mod availability;
mod config;
mod counting;
mod credentials;
mod error;
mod http;
mod lake_path;
mod lock;
mod preflight;
mod retry;
mod store_clock;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use self::retry::RetryingStore;
use aws_sdk_s3::config::{
    BehaviorVersion, Region, RequestChecksumCalculation, StalledStreamProtectionConfig,
};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::{ObjectStore, RetryConfig};

pub use admin::Admin;
pub use availability::{Asking, Availability, AvailableTime, Failure, Silence, StoreStalls, WARN_AFTER};
pub use config::{Backend, Config, ConfigError, Credentials, Overrides};
pub use counting::{Purpose, RequestCounts, RequestRow, Requests};
pub use error::{CHECK, StorageError, advice, one_line};
pub use http::Trust;
pub use lake_path::{LakePath, Prefix};
pub use lock::PrefixLock;
pub(crate) use lock::{BENCH_LOCK, CLOCK_PREFIX};
pub(crate) use preflight::PREFLIGHT;
pub use preflight::{Check, RoundTrip, Traits, preflight, round_trips};
pub(crate) use retry::{Backoff, MAX_BACKOFF, counting_attempts, has_done};
pub use retry::{Outcome, RequestFailed};
pub use store_clock::StoreClock;

/// A connection to one bucket: the two clients of one configuration, and the count of what they
/// sent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    config: Arc<Config>,
    objects: Arc<dyn ObjectStore>,
    admin: Admin,
    requests: Arc<RequestCounts>,
}

impl Store {
    /// Builds the clients. Sends nothing to the store; a default credentials chain may be asked.
    ///
    /// # Errors
    /// When no credentials can be found, or a client refuses the configuration.
    pub async fn connect(config: Config) -> Result<Self, StorageError> {
        Self::connect_limited(config, None).await
    }

    /// The same, with at most `max_gets` GETs of the queue's client on their way at once.
    ///
    /// # Errors
    /// As [`Store::connect`].
    pub(crate) async fn connect_limited(
        config: Config,
        max_gets: Option<usize>,
    ) -> Result<Self, StorageError> {
        let requests = Arc::new(RequestCounts::default());
        let provider = credentials::provider(&config).await?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_region(&config.region)
            .with_virtual_hosted_style_request(!config.path_style())
            .with_credentials(Arc::new(credentials::ForObjectStore::new(provider.clone())))
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_unsigned_payload(config.unsigned_payload())
            // Requests are retried in one place, and not here (`retry`).
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_client_options(http::options(&config))
            .with_http_connector(counting::CountingConnector::new(requests.clone()));
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/'));
        }
        let objects = builder.build().map_err(StorageError::from_object_store)?;

        let sdk = {
            let mut builder = aws_sdk_s3::config::Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(config.region.clone()))
                .http_client(http::for_sdk(&config).map_err(StorageError::from_object_store)?)
                .credentials_provider(provider)
                .force_path_style(config.path_style())
                // Some S3-compatible servers don't know the checksums the SDK adds by default.
                .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
                .timeout_config(
                    aws_sdk_s3::config::timeout::TimeoutConfig::builder()
                        .connect_timeout(config.connect_timeout())
                        .operation_attempt_timeout(config.request_timeout)
                        .operation_timeout(config.retry_timeout)
                        .build(),
                )
                .interceptor(counting::CountingInterceptor::new(requests.clone()));
            if let Some(endpoint) = &config.endpoint {
                // It puts the bucket right behind a path.
                builder = builder.endpoint_url(format!("{}/", endpoint.as_str().trim_end_matches('/')));
            }
            aws_sdk_s3::Client::from_conf(builder.build())
        };

        let config = Arc::new(config);
        let objects = RetryingStore::new(Arc::new(objects), requests.clone(), config.clone(), max_gets);
        Ok(Self { admin: Admin::new(sdk, config.clone()), objects: Arc::new(objects), config, requests })
    }

    /// The same store, with something before the queue's client.
    #[must_use]
    pub(crate) fn with_objects(
        self,
        before: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
    ) -> Self {
        Self { objects: before(self.objects), ..self }
    }

    /// The configuration both clients were built from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The client that carries the queue's traffic; its paths are keys of the bucket.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Bucket administration: existence, creation, listing, cleaning.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The `Server` header of the store's answers, once one had it.
    pub fn server(&self) -> Option<String> {
        self.requests.server().map(str::to_owned)
    }

    /// The store's clock against this host's, from the answers so far.
    pub fn clock(&self) -> Option<StoreClock> {
        self.requests.store_clock()
    }

    /// When the store last answered, and for how long it did not.
    pub fn availability(&self) -> &Availability {
        self.requests.availability()
    }

    /// Runs requests that the kernel makes, which asks for one after the other, whatever the one before came to; gives
    /// for how long the store has answered nothing, where that is as long as the stall timeout.
    pub(crate) async fn unless_stalled<T>(
        &self,
        what: impl Fn() -> String,
        requests: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let _waiting = self.availability().ask();
        tokio::select! {
            biased;
            done = requests => match self.availability().silence() {
                // The last of them gave up for the same reason, which the kernel doesn't always hand on.
                lasted if lasted >= self.config.stall_timeout => Err(lasted),
                _ => Ok(done),
            },
            lasted = retry::outage(&self.requests, self.config.stall_timeout, what) => Err(lasted),
        }
    }

    /// Begins to measure the time in which the store answers; what it doesn't is left out, up to the stall
    /// timeout.
    pub fn available_time(&self) -> AvailableTime<'_> {
        AvailableTime::begin(self.availability(), self.config.stall_timeout)
    }

    /// What has been sent so far by both clients, each attempt counted.
    pub fn requests(&self) -> Requests {
        self.requests.snapshot()
    }
}
