//! Where the store is and how to talk to it: the one configuration that both clients are built from.

#[cfg(test)]
mod tests;

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
    /// `--addressing`; in the path where an endpoint is given, else in the host's name.
    pub addressing: Option<Addressing>,
    /// `--request-timeout-seconds`; 30 s when absent.
    pub request_timeout: Option<Duration>,
    /// `--retry-timeout-seconds`; 60 s when absent.
    pub retry_timeout: Option<Duration>,
    /// `--stall-timeout-seconds`; 120 s when absent.
    pub stall_timeout: Option<Duration>,
    /// `--ca-cert` or `--insecure`
    pub trust: Trust,
}

/// Where requests have the bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Addressing {
    /// In the path: `https://HOST/BUCKET/KEY`
    Path,
    /// In the host's name: `https://BUCKET.HOST/KEY`
    Virtual,
}

/// A validated description of one bucket on one store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kind of store.
    pub backend: Backend,
    /// Base URL of the server; `None` is AWS's own for the region.
    pub endpoint: Option<Url>,
    /// Where requests have the bucket's name.
    pub addressing: Addressing,
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
    /// Which certificates are believed.
    pub trust: Trust,
}

/// What is wrong with the configuration; each names the variable or flag to set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A variable that the backend needs isn't set; its name, and what else would do.
    #[error("{0} is not set; set it, or {1}")]
    Missing(&'static str, &'static str),
    /// The variable of one of the two keys is set without that of the other.
    #[error("{0} is set but {1} is not; set both, or neither to use the AWS default chain")]
    HalfAKey(&'static str, &'static str),
    /// The endpoint, as it was given, isn't a URL that can be used; what is wrong with it.
    #[error("the endpoint `{0}` {1}; give it as http://HOST:PORT or https://HOST")]
    Endpoint(String, String),
    /// A store without TLS has no certificates.
    #[error(
        "--ca-cert and --insecure are about certificates, and {0} has none; leave them out, or give https://"
    )]
    NoCertificates(Url),
    /// An address has no name that a bucket's could be put before.
    #[error(
        "--addressing virtual puts the bucket before the host's name, and {0} has an address; give a name"
    )]
    NoHostName(Url),
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
    /// Resolves the configuration of a backend from flags first and then the environment, or names the variable that is
    /// missing or the value that is malformed.
    ///
    /// `minio` reads `MINIO_S3_{ENDPOINT,BUCKET,ACCESS_KEY,SECRET_ACCESS_KEY,REGION}`. `s3` reads
    /// `AWS_S3_{BUCKET,ACCESS_KEY,SECRET_ACCESS_KEY}`, `AWS_REGION`, `AWS_DEFAULT_REGION`. An empty variable isn't set.
    pub fn resolve(
        backend: Backend,
        overrides: &Overrides,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let get = |name: &str| environment(name).filter(|value| !value.is_empty());
        let require = |given: &Option<String>, variable: &'static str, flag: &'static str| {
            given.clone().or_else(|| get(variable)).ok_or(ConfigError::Missing(variable, flag))
        };
        let bucket = |variable| {
            let flag = "give --bucket (a role may also give --lake-path as s3://BUCKET/PATH)";
            require(&overrides.bucket, variable, flag)
        };
        let (endpoint, bucket, region, credentials) = match backend {
            Backend::Minio => {
                let key =
                    |variable| require(&None, variable, "use --s3-backend s3 for the AWS default chain");
                (
                    Some(require(&overrides.endpoint, "MINIO_S3_ENDPOINT", "give --endpoint")?),
                    bucket("MINIO_S3_BUCKET")?,
                    get("MINIO_S3_REGION"),
                    Credentials::Static {
                        access_key: key("MINIO_S3_ACCESS_KEY")?,
                        secret_key: key("MINIO_S3_SECRET_ACCESS_KEY")?,
                    },
                )
            }
            Backend::S3 => {
                let (access, secret) = ("AWS_S3_ACCESS_KEY", "AWS_S3_SECRET_ACCESS_KEY");
                let credentials = match (get(access), get(secret)) {
                    (Some(access_key), Some(secret_key)) => Credentials::Static { access_key, secret_key },
                    (None, None) => Credentials::Chain,
                    (Some(_), None) => return Err(ConfigError::HalfAKey(access, secret)),
                    (None, Some(_)) => return Err(ConfigError::HalfAKey(secret, access)),
                };
                let region = get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION"));
                (overrides.endpoint.clone(), bucket("AWS_S3_BUCKET")?, region, credentials)
            }
        };
        let endpoint = endpoint.as_deref().map(parse_endpoint).transpose()?;
        if let Some(url) = &endpoint
            && url.scheme() == "http"
            && overrides.trust != Trust::System
        {
            return Err(ConfigError::NoCertificates(url.clone()));
        }
        overrides.trust.authorities().map_err(ConfigError::Authorities)?;
        let usual = if endpoint.is_some() { Addressing::Path } else { Addressing::Virtual };
        let addressing = overrides.addressing.unwrap_or(usual);
        if let Some(url) = &endpoint
            && addressing == Addressing::Virtual
            && !matches!(url.host(), Some(Host::Domain(_)))
        {
            return Err(ConfigError::NoHostName(url.clone()));
        }
        Ok(Self {
            backend,
            endpoint,
            addressing,
            bucket: validate_bucket(bucket)?,
            region: overrides.region.clone().or(region).unwrap_or_else(|| "us-east-1".to_owned()),
            credentials,
            request_timeout: overrides.request_timeout.unwrap_or(Duration::from_secs(30)),
            retry_timeout: overrides.retry_timeout.unwrap_or(Duration::from_secs(60)),
            stall_timeout: overrides.stall_timeout.unwrap_or(Duration::from_secs(120)),
            trust: overrides.trust.clone(),
        })
    }

    /// A bucket on an S3-compatible server with fixed keys; region and deadlines as by default. Fails as [`Config::resolve`].
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
        self.addressing == Addressing::Path
    }

    /// The endpoint, with the bucket before the host's name where requests have it there.
    pub(super) fn bucket_endpoint(&self) -> Option<String> {
        let mut url = self.endpoint.clone()?;
        if self.addressing == Addressing::Virtual {
            // It has a name, or it would have been refused.
            let host = format!("{}.{}", self.bucket, url.host_str().unwrap_or_default());
            let _ = url.set_host(Some(&host));
        }
        Some(url.as_str().trim_end_matches('/').to_owned())
    }

    pub(super) fn plain_http(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|url| url.scheme() == "http")
    }

    /// Whether bodies are left out of the signature, since hashing costs more than sending: under TLS, and on loopback.
    pub fn unsigned_payload(&self) -> bool {
        !self.plain_http() || self.endpoint.as_ref().is_some_and(is_loopback)
    }

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
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn parse_endpoint(text: &str) -> Result<Url, ConfigError> {
    let problem = match Url::parse(text) {
        _ if !text.contains("://") => "has no scheme".to_owned(),
        Err(error) => format!("is not a URL ({error})"),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => "is neither http nor https".to_owned(),
        Ok(url) if url.host().is_none() => "has no host".to_owned(),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "carries credentials, which belong into the access-key variables".to_owned()
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => "has a query or fragment".to_owned(),
        Ok(url) => return Ok(url),
    };
    Err(ConfigError::Endpoint(redact(text), problem))
}

/// An endpoint, with or without a scheme, less what is before `@`, in case somebody put a password there.
fn redact(endpoint: &str) -> String {
    let Some(at) = endpoint.rfind('@') else { return endpoint.to_owned() };
    let scheme = ["http://", "https://"].into_iter().find(|scheme| endpoint.starts_with(scheme));
    format!("{}***{}", scheme.unwrap_or_default(), &endpoint[at..])
}

/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>
fn validate_bucket(bucket: String) -> Result<String, ConfigError> {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = bucket.as_bytes();
    let well_formed = (3..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| is_alphanumeric(byte) || matches!(byte, b'-' | b'.'))
        && [bytes.first(), bytes.last()].into_iter().flatten().all(is_alphanumeric)
        && !bucket.contains("..");
    if well_formed { Ok(bucket) } else { Err(ConfigError::Bucket(bucket)) }
}
