//! The store: keys and bytes. One [`Config`] builds both clients: the [`object_store`] one that carries the queue's
//! traffic and the AWS SDK one that administers the bucket, so that both talk to the same endpoint with the same
//! credentials. Of the environment nothing is taken but what [`Config::resolve`] names.

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
mod purpose;
mod retry;
mod store_clock;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use self::counting::{CountingConnector, CountingInterceptor, RequestCounts};
use self::retry::RetryingStore;
use aws_sdk_s3::config::{
    BehaviorVersion, Region, RequestChecksumCalculation, StalledStreamProtectionConfig,
};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::{ObjectStore, RetryConfig};

pub use admin::Admin;
pub use availability::{Availability, AvailableTime, Outage, StoreStalls};
pub use config::{Addressing, Backend, Config, ConfigError, Credentials, Overrides};
pub use counting::{RequestRow, Requests};
pub(crate) use error::{CHECK, advice};
pub use error::{StorageError, one_line};
pub use http::Trust;
pub use lake_path::{LakePath, Prefix};
pub use lock::PrefixLock;
pub(crate) use lock::{BENCH_LOCK, CLOCK_PREFIX};
pub(crate) use preflight::PREFLIGHT;
pub use preflight::{RoundTrip, advice_on_slow_gets, preflight, round_trips};
pub use purpose::Purpose;
pub(crate) use retry::{Backoff, MAX_BACKOFF, ObservedReads, ReadObserver, RequestFailed, counting_attempts};
pub use store_clock::StoreClock;

/// A connection to one bucket: the two clients, and the count of what they sent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    config: Arc<Config>,
    objects: Arc<dyn ObjectStore>,
    retrying: RetryingStore,
    admin: Admin,
    requests: Arc<RequestCounts>,
}

impl Store {
    /// Builds the clients. Sends nothing to the store; a default credentials chain may be asked. Fails when no credentials
    /// can be found, or a client refuses the configuration.
    pub async fn connect(config: Config) -> Result<Self, StorageError> {
        Self::connect_observed(config, None).await
    }

    /// The same, with limited and observed GETs of the queue's client.
    pub(crate) async fn connect_observed(
        config: Config,
        reads: Option<ObservedReads>,
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
            .with_allow_http(config.plain_http())
            .with_http_connector(CountingConnector {
                client: http::client(&config)?,
                counts: requests.clone(),
            });
        let endpoint = config.endpoint.as_ref().map(|url| url.as_str().trim_end_matches('/'));
        if let Some(endpoint) = config.bucket_endpoint() {
            builder = builder.with_endpoint(endpoint);
        }
        let objects = builder.build().map_err(StorageError::from_object_store)?;

        let timeouts = aws_sdk_s3::config::timeout::TimeoutConfig::builder()
            .connect_timeout(config.connect_timeout())
            .operation_attempt_timeout(config.request_timeout)
            .operation_timeout(config.retry_timeout);
        let mut builder = aws_sdk_s3::config::Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(config.region.clone()))
            .http_client(http::for_sdk(&config)?)
            .credentials_provider(provider)
            .force_path_style(config.path_style())
            // Some S3-compatible servers don't know the checksums the SDK adds by default.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(timeouts.build())
            .interceptor(CountingInterceptor(requests.clone()));
        if let Some(endpoint) = endpoint {
            // It puts the bucket right behind a path.
            builder = builder.endpoint_url(format!("{endpoint}/"));
        }
        let client = aws_sdk_s3::Client::from_conf(builder.build());

        let config = Arc::new(config);
        let admin = Admin { client, config: config.clone() };
        let objects = Arc::new(objects);
        let objects = RetryingStore {
            pages: objects.clone(),
            inner: objects,
            requests: requests.clone(),
            config: config.clone(),
            reads,
            hidden: None,
        };
        Ok(Self { admin, retrying: objects.clone(), objects: Arc::new(objects), config, requests })
    }

    /// The same, but objects of this name are said not to be there.
    pub(crate) fn hiding(&self, name: &'static str) -> Self {
        let objects = RetryingStore { hidden: Some(name), ..self.retrying.clone() };
        Self { objects: Arc::new(objects), ..self.clone() }
    }

    /// The configuration both clients were built from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The client that carries the queue's traffic; its paths are keys of the bucket.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Bucket administration.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The `Server` header of the store's answers, once one had it.
    pub fn server(&self) -> Option<String> {
        self.requests.server.get().cloned()
    }

    /// The store's clock against this host's, from the answers so far.
    pub fn clock(&self) -> Option<StoreClock> {
        self.requests.clock.lock().estimate()
    }

    /// When the store last answered, and for how long it did not.
    pub fn availability(&self) -> &Availability {
        &self.requests.availability
    }

    /// Whether the store lists keys in their order, as far as it is known: not all do. What [`Store::objects`] lists is
    /// always in order; where the store doesn't help, all of it is read for that.
    pub fn lists_in_order(&self) -> bool {
        !self.requests.is_unsorted.load(Relaxed)
    }

    /// Runs requests of delta-rs's kernel, which goes on whatever each comes to; gives for how long the store has
    /// answered nothing, where that is as long as the stall timeout.
    pub(crate) async fn unless_stalled<T>(
        &self,
        what: impl Fn() -> String,
        requests: impl Future<Output = T>,
    ) -> Result<T, Duration> {
        let (availability, timeout) = (self.availability(), self.config.stall_timeout);
        let _waiting = availability.ask();
        tokio::select! {
            biased;
            done = requests => match availability.outage() {
                // The last of them gave up for the same reason, which the kernel doesn't always hand on.
                outage if outage >= timeout => Err(outage),
                _ => Ok(done),
            },
            outage = retry::stall(availability, timeout, what) => Err(outage),
        }
    }

    /// Begins to measure the time in which the store answers; outages are left out, up to the stall timeout.
    pub fn available_time(&self) -> AvailableTime<'_> {
        AvailableTime::begin(self.availability(), self.config.stall_timeout)
    }

    /// What has been sent so far by both clients, each attempt counted.
    pub fn requests(&self) -> Requests {
        self.requests.requests.lock().clone()
    }
}
