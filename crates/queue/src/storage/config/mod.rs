//! Where the store is and how to talk to it: the one configuration that both clients are built from.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

use super::http::Trust;

/// Which kind of store, and so which variables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// MinIO or any other S3-compatible server: `MINIO_S3_*`, path-style requests.
    Minio,
    /// AWS S3: `AWS_S3_*`, or the AWS default chain for credentials.
    S3,
}

/// How requests are signed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A fixed pair of keys. The instance metadata service is never asked.
    Static {
        /// Access key id.
        access_key: String,
        /// Secret access key.
        secret_key: String,
    },
    /// The AWS default chain: variables, profiles, SSO, web identity, instance metadata.
    Chain,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Static { access_key, .. } => write!(f, "Static({access_key}, secret redacted)"),
            Self::Chain => f.write_str("Chain"),
        }
    }
}

/// Values from flags, which go before the environment's.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--endpoint`
    pub endpoint: Option<String>,
    /// `--bucket`, or the bucket of `--lake-path`
    pub bucket: Option<String>,
    /// `--region`
    pub region: Option<String>,
    /// `--request-timeout-seconds`; 30 s when absent.
    pub request_timeout: Option<Duration>,
    /// `--retry-timeout-seconds`; 60 s when absent.
    pub retry_timeout: Option<Duration>,
    /// `--stall-timeout-seconds`; 120 s when absent.
    pub stall_timeout: Option<Duration>,
    /// `--ca-cert` or `--insecure`
    pub trust: Trust,
}

/// A validated description of one bucket on one store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kind of store.
    pub backend: Backend,
    /// Base URL of the server; `None` is AWS's own for the region.
    pub endpoint: Option<Url>,
    /// Bucket name.
    pub bucket: String,
    /// Region that requests are signed for; any word for servers that aren't AWS.
    pub region: String,
    /// How requests are signed.
    pub credentials: Credentials,
    /// Longest a single attempt may take, connecting and body included.
    pub request_timeout: Duration,
    /// Longest that a request is retried, all attempts together, while the store answers others.
    pub retry_timeout: Duration,
    /// Longest that a role goes on without any answer.
    pub stall_timeout: Duration,
    /// Whose certificates are believed.
    pub trust: Trust,
}

/// What is wrong with the configuration; each names the variable or flag to set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A variable that the backend needs isn't set.
    #[error("{variable} is not set; set it, or {flag}")]
    Missing {
        /// Name of the variable.
        variable: &'static str,
        /// What else would do.
        flag: &'static str,
    },
    /// One of the two keys is set without the other.
    #[error("{set} is set but {missing} is not; set both, or neither to use the AWS default chain")]
    HalfAKey {
        /// The variable that is set.
        set: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// The endpoint isn't a URL that can be used.
    #[error("the endpoint `{endpoint}` {problem}; give it as http://HOST:PORT or https://HOST")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A store without TLS has no certificates.
    #[error(
        "--ca-cert and --insecure are about certificates, and {0} has none; leave them out, or give https://"
    )]
    NoCertificates(Url),
    /// The authorities can't be read.
    #[error("--ca-cert: {0}")]
    Authorities(String),
    /// The bucket's name breaks S3's naming rules.
    #[error(
        "`{0}` is not a bucket name: 3 to 63 of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit"
    )]
    Bucket(String),
}

impl Config {
    /// Resolves the configuration of a backend from flags first and then the environment.
    ///
    /// `minio` reads `MINIO_S3_ENDPOINT`, `MINIO_S3_BUCKET`, `MINIO_S3_ACCESS_KEY`,
    /// `MINIO_S3_SECRET_ACCESS_KEY`, `MINIO_S3_REGION`. `s3` reads `AWS_S3_BUCKET`,
    /// `AWS_S3_ACCESS_KEY`, `AWS_S3_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_DEFAULT_REGION`.
    /// An empty variable counts as not set.
    ///
    /// # Errors
    /// Names the variable that is missing or the value that is malformed.
    pub fn resolve(
        backend: Backend,
        overrides: &Overrides,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let get = |name: &str| environment(name).filter(|value| !value.is_empty());
        let require = |variable: &'static str, flag: &'static str| {
            get(variable).ok_or(ConfigError::Missing { variable, flag })
        };
        let (endpoint, bucket, region, credentials) = match backend {
            Backend::Minio => (
                Some(match &overrides.endpoint {
                    Some(endpoint) => endpoint.clone(),
                    None => require("MINIO_S3_ENDPOINT", "give --endpoint")?,
                }),
                match &overrides.bucket {
                    Some(bucket) => bucket.clone(),
                    None => require(
                        "MINIO_S3_BUCKET",
                        "give --bucket (a role may also give --lake-path as s3://BUCKET/PATH)",
                    )?,
                },
                get("MINIO_S3_REGION"),
                Credentials::Static {
                    access_key: require(
                        "MINIO_S3_ACCESS_KEY",
                        "use --s3-backend s3 for the AWS default chain",
                    )?,
                    secret_key: require(
                        "MINIO_S3_SECRET_ACCESS_KEY",
                        "use --s3-backend s3 for the AWS default chain",
                    )?,
                },
            ),
            Backend::S3 => (
                overrides.endpoint.clone(),
                match &overrides.bucket {
                    Some(bucket) => bucket.clone(),
                    None => require(
                        "AWS_S3_BUCKET",
                        "give --bucket (a role may also give --lake-path as s3://BUCKET/PATH)",
                    )?,
                },
                get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION")),
                match (get("AWS_S3_ACCESS_KEY"), get("AWS_S3_SECRET_ACCESS_KEY")) {
                    (Some(access_key), Some(secret_key)) => Credentials::Static { access_key, secret_key },
                    (None, None) => Credentials::Chain,
                    (Some(_), None) => {
                        return Err(ConfigError::HalfAKey {
                            set: "AWS_S3_ACCESS_KEY",
                            missing: "AWS_S3_SECRET_ACCESS_KEY",
                        });
                    }
                    (None, Some(_)) => {
                        return Err(ConfigError::HalfAKey {
                            set: "AWS_S3_SECRET_ACCESS_KEY",
                            missing: "AWS_S3_ACCESS_KEY",
                        });
                    }
                },
            ),
        };
        let endpoint = endpoint.as_deref().map(parse_endpoint).transpose()?;
        match &endpoint {
            Some(url) if url.scheme() == "http" && overrides.trust != Trust::System => {
                return Err(ConfigError::NoCertificates(url.clone()));
            }
            _ => {}
        }
        overrides.trust.authorities().map_err(ConfigError::Authorities)?;
        Ok(Self {
            backend,
            endpoint,
            bucket: validate_bucket(bucket)?,
            region: overrides.region.clone().or(region).unwrap_or_else(|| "us-east-1".to_owned()),
            credentials,
            request_timeout: overrides.request_timeout.unwrap_or(Duration::from_secs(30)),
            retry_timeout: overrides.retry_timeout.unwrap_or(Duration::from_secs(60)),
            stall_timeout: overrides.stall_timeout.unwrap_or(Duration::from_secs(120)),
            trust: overrides.trust.clone(),
        })
    }

    /// A bucket on an S3-compatible server with fixed keys; region and deadlines as by default.
    ///
    /// # Errors
    /// When endpoint or bucket is malformed.
    pub fn of_server(
        endpoint: &str,
        bucket: &str,
        access_key: &str,
        secret_key: &str,
    ) -> Result<Self, ConfigError> {
        let overrides = Overrides {
            endpoint: Some(endpoint.to_owned()),
            bucket: Some(bucket.to_owned()),
            ..Overrides::default()
        };
        Self::resolve(Backend::Minio, &overrides, |name| match name {
            "MINIO_S3_ACCESS_KEY" => Some(access_key.to_owned()),
            "MINIO_S3_SECRET_ACCESS_KEY" => Some(secret_key.to_owned()),
            _ => None,
        })
    }

    /// The same store with shorter deadlines, for asking whether it is there at all.
    pub fn with_timeouts(&self, request_timeout: Duration, retry_timeout: Duration) -> Self {
        Self { request_timeout, retry_timeout, ..self.clone() }
    }

    /// Whether the bucket is the first segment of the path rather than part of the host name.
    pub(super) fn path_style(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Whether requests go unencrypted.
    pub(super) fn plain_http(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
    }

    /// Whether bodies are left out of the signature: under TLS, which protects them, and on
    /// loopback, where nobody stands between. Hashing each body costs more than sending it.
    pub fn unsigned_payload(&self) -> bool {
        !self.plain_http() || self.endpoint.as_ref().is_some_and(is_loopback)
    }

    /// Longest that opening a connection may take.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.request_timeout.min(Duration::from_secs(5))
    }

    /// The store in a few words, for messages: its endpoint and bucket, and that its certificate isn't checked.
    pub fn describe(&self) -> String {
        let unchecked = if self.trust == Trust::Anyone { ", certificates not checked" } else { "" };
        match &self.endpoint {
            Some(endpoint) => {
                let endpoint = endpoint.as_str().trim_end_matches('/');
                format!("bucket `{}` at {endpoint}{unchecked}", self.bucket)
            }
            None => format!("bucket `{}` on AWS S3 in {}{unchecked}", self.bucket, self.region),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn parse_endpoint(text: &str) -> Result<Url, ConfigError> {
    let wrong = |problem: &str| ConfigError::Endpoint { endpoint: redact(text), problem: problem.to_owned() };
    if !text.contains("://") {
        return Err(wrong("has no scheme"));
    }
    let url = Url::parse(text).map_err(|error| wrong(&format!("is not a URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("is neither http nor https"));
    }
    if url.host().is_none() {
        return Err(wrong("has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("carries credentials, which belong into the access-key variables"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or fragment"));
    }
    Ok(url)
}

/// An endpoint with the part before `@` taken out, in case somebody put a password there; with or without a
/// scheme.
fn redact(endpoint: &str) -> String {
    let Some(at) = endpoint.rfind('@') else { return endpoint.to_owned() };
    let scheme = ["http://", "https://"].into_iter().find(|scheme| endpoint.starts_with(scheme));
    format!("{}***{}", scheme.unwrap_or_default(), &endpoint[at..])
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
fn validate_bucket(bucket: String) -> Result<String, ConfigError> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let well_formed = (3..=63).contains(&bucket.len())
        && bucket.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
        && edge(bucket.chars().next())
        && edge(bucket.chars().next_back())
        && !bucket.contains("..");
    if well_formed { Ok(bucket) } else { Err(ConfigError::Bucket(bucket)) }
}
