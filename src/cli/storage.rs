//! Flags and variables that say which store.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::failure::Failure;
use super::given_file::cannot_use;
use crate::config::{DeadlineArgs, value_name};
use crate::console::warn;
use s3mq_queue::storage::{
    self, Addressing, Backend, Config, ConfigError, LakePath, Overrides, Prefix, Store, Trust,
};

/// Which kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// An S3 server within the bench itself (bench only)
    Embedded,
    /// MinIO or another S3-compatible server: MINIO_S3_ENDPOINT, MINIO_S3_BUCKET, MINIO_S3_ACCESS_KEY,
    /// MINIO_S3_SECRET_ACCESS_KEY
    Minio,
    /// AWS S3: AWS_S3_BUCKET, AWS_S3_ACCESS_KEY, AWS_S3_SECRET_ACCESS_KEY, or the AWS default chain
    S3,
}

/// The store, for every command that needs one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Store")]
pub struct StorageArgs {
    /// Kind of store [default: minio where MINIO_S3_ENDPOINT is set, else embedded]
    #[arg(long, value_enum)]
    pub s3_backend: Option<BackendArg>,

    /// Base URL of the server, http://HOST:PORT or https://HOST, with a path where a reverse proxy has the store
    /// below one (https://HOST/PATH)
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub endpoint: Option<String>,

    /// Bucket
    #[arg(long, value_name = "NAME")]
    pub bucket: Option<String>,

    /// Region that requests are signed for [default: MINIO_S3_REGION or, for s3, AWS_REGION or
    /// AWS_DEFAULT_REGION, else us-east-1]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,

    /// Where requests have the bucket's name [default: path where there is an endpoint, else virtual]
    #[arg(long, value_enum)]
    pub addressing: Option<Addressing>,

    /// Also believe certificates that are signed by the authorities in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_cert: Option<PathBuf>,

    /// Believe any certificate: whoever answers is taken for the store
    #[arg(long)]
    pub insecure: bool,

    /// Create the bucket if it isn't there
    #[arg(long)]
    pub create_bucket: bool,

    /// How long it is waited for.
    #[command(flatten)]
    pub deadlines: DeadlineArgs,
}

/// The preflight asks with these deadlines, or shorter ones that were given: whether a store is there at all must be
/// known soon, and one that isn't is no stall of a run.
const PREFLIGHT_REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
const PREFLIGHT_RETRY_TIMEOUT: Duration = Duration::from_secs(12);

impl StorageArgs {
    /// The backend that was chosen, or that the environment suggests.
    pub fn backend(&self) -> BackendArg {
        self.s3_backend.unwrap_or_else(|| match variable("MINIO_S3_ENDPOINT") {
            Some(_) => BackendArg::Minio,
            None => BackendArg::Embedded,
        })
    }

    /// Refuses what names another store than the embedded one, which was chosen.
    pub fn refuse_other_store(&self) -> Result<(), Failure> {
        let flags = [
            ("--endpoint", self.endpoint.is_some()),
            ("--bucket", self.bucket.is_some()),
            ("--addressing", self.addressing.is_some()),
            ("--ca-cert", self.ca_cert.is_some()),
            ("--insecure", self.insecure),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "{flag} goes with --s3-backend minio or s3; the embedded store has its own"
            )));
        }
        // Who has set variables of a store of their own would take the embedded store's figures for its.
        let forgotten = [
            ("MINIO_S3_BUCKET", "set that too"),
            ("MINIO_S3_ACCESS_KEY", "set that too"),
            ("MINIO_S3_SECRET_ACCESS_KEY", "set that too"),
            ("AWS_S3_BUCKET", "give --s3-backend s3"),
        ];
        match forgotten.iter().find(|(name, _)| self.s3_backend.is_none() && variable(name).is_some()) {
            Some((name, remedy)) => Err(Failure::usage(format!(
                "{name} is set and MINIO_S3_ENDPOINT is not; {remedy}, or --s3-backend embedded to bench the \
                 embedded store"
            ))),
            None => Ok(()),
        }
    }

    /// The flags that say the same to another command.
    pub fn flags(&self) -> Vec<String> {
        let given = [
            ("--s3-backend", self.s3_backend.as_ref().map(value_name)),
            ("--endpoint", self.endpoint.clone()),
            ("--bucket", self.bucket.clone()),
            ("--region", self.region.clone()),
            ("--addressing", self.addressing.as_ref().map(value_name)),
            ("--ca-cert", self.ca_cert.as_ref().map(|path| path.display().to_string())),
            ("--request-timeout-seconds", Some(self.deadlines.request_timeout_seconds.to_string())),
            ("--retry-timeout-seconds", Some(self.deadlines.retry_timeout_seconds.to_string())),
            ("--stall-timeout-seconds", Some(self.deadlines.stall_timeout_seconds.to_string())),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some(format!("{flag}={}", value?)));
        given.chain(self.insecure.then(|| "--insecure".to_owned())).collect()
    }

    /// The configuration of a real store; `bucket` is that of a lake path.
    pub fn resolve(&self, bucket: Option<&str>) -> Result<Config, Failure> {
        let backend = match self.backend() {
            BackendArg::Minio => Backend::Minio,
            BackendArg::S3 => Backend::S3,
            BackendArg::Embedded => {
                return Err(Failure::usage(
                    "a store is needed: set MINIO_S3_ENDPOINT or give --s3-backend minio or s3 (the embedded \
                     store is within `s3mq bench` only; `s3mq serve` starts one and prints its variables)",
                ));
            }
        };
        let bucket = match (bucket, self.bucket.as_deref()) {
            (Some(path), Some(flag)) if path != flag => {
                return Err(Failure::usage(format!(
                    "--lake-path names the bucket `{path}`, --bucket `{flag}`"
                )));
            }
            (path, flag) => path.or(flag).map(str::to_owned),
        };
        let trust = match &self.ca_cert {
            Some(path) => {
                Trust::Also(fs::read(path).map_err(|error| cannot_use("--ca-cert", path, &error))?.into())
            }
            None if self.insecure => Trust::Anyone,
            None => Trust::System,
        };
        let overrides = Overrides {
            endpoint: self.endpoint.clone(),
            bucket,
            region: self.region.clone(),
            addressing: self.addressing,
            request_timeout: Some(self.deadlines.request_timeout_seconds.as_duration()),
            retry_timeout: Some(self.deadlines.retry_timeout_seconds.as_duration()),
            stall_timeout: Some(self.deadlines.stall_timeout_seconds.as_duration()),
            trust,
        };
        Config::resolve(backend, &overrides, variable).map_err(|error| match (error, &self.ca_cert) {
            (ConfigError::Authorities(problem), Some(path)) => cannot_use("--ca-cert", path, &problem),
            (error, _) => error.into(),
        })
    }

    /// The configuration of the store of a lake path.
    pub fn resolve_lake(&self, path: &LakePath) -> Result<Config, Failure> {
        self.resolve(path.bucket.as_deref())
    }
}

/// Creates the bucket where that was asked for, and tries out what the queue depends on.
pub async fn preflight(
    config: &Config,
    prefix: &Prefix,
    create_bucket: bool,
    report: impl FnMut(&'static str),
) -> Result<(), Failure> {
    if config.trust == Trust::Anyone {
        warn("--insecure: nobody checks who answers, and whoever does gets the messages");
    }
    let config = config.with_timeouts(
        config.request_timeout.min(PREFLIGHT_REQUEST_TIMEOUT),
        config.retry_timeout.min(PREFLIGHT_RETRY_TIMEOUT),
    );
    let store = Store::connect(config).await?;
    if create_bucket {
        store.admin().create_bucket().await?;
    }
    let is_versioned = storage::preflight(&store, prefix, report).await?;
    if is_versioned {
        warn(
            "the bucket is versioned: what s3mq deletes stays as old versions behind delete markers, and is paid for \
              until a lifecycle rule or you remove it",
        );
    }
    Ok(())
}

/// An environment variable that is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
