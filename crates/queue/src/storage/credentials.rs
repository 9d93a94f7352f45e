//! One credentials provider for both clients: [`ForObjectStore`] hands what the AWS SDK's chain finds to
//! `object_store`, whose own chain could find another identity.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::Mutex;

use super::config::{Config, Credentials};
use super::error::StorageError;

pub(super) async fn provider(config: &Config) -> Result<SharedCredentialsProvider, StorageError> {
    match &config.credentials {
        Credentials::Static { access_key, secret_key } => Ok(SharedCredentialsProvider::new(
            aws_credential_types::Credentials::new(access_key, secret_key, None, None, "s3mq configuration"),
        )),
        Credentials::Chain => {
            let chain = aws_config::default_provider::credentials::DefaultCredentialsChain::builder()
                .region(aws_sdk_s3::config::Region::new(config.region.clone()))
                .build()
                .await;
            let provider = SharedCredentialsProvider::new(chain);
            // Asked once here, so that "no credentials" is said before anything is started.
            let found = provider.provide_credentials().await;
            found.map_err(|error| {
                StorageError::Other(format!(
                    "no AWS credentials found ({}); set AWS_S3_ACCESS_KEY and AWS_S3_SECRET_ACCESS_KEY, or a profile",
                    super::one_line(&error)
                ))
            })?;
            Ok(provider)
        }
    }
}

/// Adapts an AWS SDK provider to `object_store`, keeping what it gave until shortly before it expires.
#[derive(Debug)]
pub(super) struct ForObjectStore {
    provider: SharedCredentialsProvider,
    cached: Mutex<Option<Cached>>,
}

#[derive(Debug)]
struct Cached {
    credential: Arc<AwsCredential>,
    expiry: Option<SystemTime>,
    renew_at: Option<SystemTime>,
}

/// Credentials are renewed this long before they expire, as the SDK itself does.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(10);
/// While they can't be renewed and are still good, that is tried this often.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl ForObjectStore {
    pub(super) fn new(provider: SharedCredentialsProvider) -> Self {
        Self { provider, cached: Mutex::new(None) }
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(s3mq_clock::wall_us().max(0) as u64)
}

#[async_trait]
impl CredentialProvider for ForObjectStore {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_ref()
            && cached.renew_at.is_none_or(|at| now() < at)
        {
            return Ok(cached.credential.clone());
        }
        match (self.provider.provide_credentials().await, cached.as_mut()) {
            (Ok(given), _) => {
                let credential = Arc::new(AwsCredential {
                    key_id: given.access_key_id().to_owned(),
                    secret_key: given.secret_access_key().to_owned(),
                    token: given.session_token().map(str::to_owned),
                });
                let expiry = given.expiry();
                let renew_at = expiry.and_then(|at| at.checked_sub(RENEW_BEFORE_EXPIRY));
                *cached = Some(Cached { credential: credential.clone(), expiry, renew_at });
                Ok(credential)
            }
            (Err(error), Some(cached)) if cached.expiry.is_some_and(|at| now() < at) => {
                tracing::warn!("the credentials could not be renewed yet: {}", super::one_line(&error));
                cached.renew_at = Some(now() + RENEW_AGAIN_AFTER);
                Ok(cached.credential.clone())
            }
            (Err(error), _) => {
                let path = "any request, as the credentials could not be renewed".to_owned();
                Err(object_store::Error::Unauthenticated { path, source: Box::new(error) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Store;

    /// A panic would say the whole of what it is about.
    #[tokio::test]
    async fn neither_a_secret_nor_a_token_is_shown() {
        let (secret, token) = ("a-very-secret-key", "a-very-secret-token");
        let config = Config::of_server("http://127.0.0.1:1", "s3mq", "key", secret).unwrap();
        let store = Store::connect(config.clone()).await.unwrap();
        let given =
            aws_credential_types::Credentials::new("key", secret, Some(token.to_owned()), None, "test");
        let adapted = ForObjectStore::new(SharedCredentialsProvider::new(given));
        let credential = adapted.get_credential().await.unwrap();
        assert_eq!(credential.token.as_deref(), Some(token));
        for shown in
            [format!("{config:?}"), format!("{store:?}"), format!("{adapted:?}"), format!("{credential:?}")]
        {
            assert!(!shown.contains(secret) && !shown.contains(token), "{shown}");
        }
    }
}
