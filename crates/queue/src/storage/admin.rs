//! Bucket administration through the AWS SDK: the things `object_store` has no words for.

use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration};

use super::config::{Backend, Config};
use super::error::StorageError;
use super::lake_path::Prefix;

/// Administers the one bucket of a [`super::Store`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    pub(super) client: Client,
    pub(super) config: Arc<Config>,
}

impl Admin {
    /// The SDK's own client, for whoever compares with it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Asks for one key below `prefix`: whether the store answers, knows the credentials and has the bucket; if not, says
    /// what to do about it. The answer to a HEAD of the bucket would have no body to say why.
    pub async fn probe(&self, prefix: &Prefix) -> Result<(), StorageError> {
        self.client
            .list_objects_v2()
            .bucket(&self.config.bucket)
            .prefix(prefix.directory())
            .max_keys(1)
            .send()
            .await
            .map(drop)
            .map_err(|error| StorageError::from_sdk(self.config.describe(), &error))
    }

    /// Creates the bucket; one that is already ours is fine. Fails when the store refuses.
    pub async fn create_bucket(&self) -> Result<(), StorageError> {
        let mut request = self.client.create_bucket().bucket(&self.config.bucket);
        let Config { backend, endpoint, region, .. } = &*self.config;
        // AWS wants the region spelled out everywhere but in us-east-1; other servers don't know theirs.
        if *backend == Backend::S3 && endpoint.is_none() && region != "us-east-1" {
            let place = BucketLocationConstraint::from(region.as_str());
            request = request.create_bucket_configuration(
                CreateBucketConfiguration::builder().location_constraint(place).build(),
            );
        }
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(|e| e.is_bucket_already_owned_by_you()) => {
                Ok(())
            }
            Err(error) => Err(StorageError::from_sdk(self.config.describe(), &error)),
        }
    }
}
