//! The one key pair a server accepts.

use std::fmt;

use rand::distr::{Alphanumeric, SampleString};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

/// An access key and its secret. `Debug` does not show the secret.
#[derive(Clone)]
pub struct Credentials {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: String,
}

impl Credentials {
    /// Draws a pair nobody can guess, from the thread's cryptographic generator.
    pub(super) fn random() -> Self {
        let draw = |length| Alphanumeric.sample_string(&mut rand::rng(), length);
        Self { access_key: draw(16), secret_key: draw(40) }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Looks a secret up for `s3s`. Its own `SimpleAuth` answers an unknown key unlike S3.
pub(super) struct OnePair(pub(super) Credentials);

#[async_trait::async_trait]
impl S3Auth for OnePair {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.0.access_key {
            Ok(SecretKey::from(self.0.secret_key.as_str()))
        } else {
            Err(s3_error!(InvalidAccessKeyId, "The access key is not this server's."))
        }
    }
}
