//! The flags and secrets that name the store to the children of a bench.

use super::super::storage::{BackendArg, StorageArgs};
use super::Args;
use crate::bench::StoreFlags;
use s3mq_queue::storage::{Backend, Config, Credentials};

impl Args {
    /// What says to the children that it is this store.
    pub(super) fn store_flags(&self, store: &Config) -> StoreFlags {
        // The embedded store is an S3 server like any other to the roles.
        let s3_backend = if store.backend == Backend::S3 { BackendArg::S3 } else { BackendArg::Minio };
        let storage = StorageArgs {
            s3_backend: Some(s3_backend),
            endpoint: store.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            bucket: Some(store.bucket.clone()),
            region: Some(store.region.clone()),
            ..self.storage.clone()
        };
        let mut environment = Vec::new();
        if let Credentials::Static { access_key, secret_key } = &store.credentials {
            let prefix = if store.backend == Backend::S3 { "AWS_S3" } else { "MINIO_S3" };
            environment.push((format!("{prefix}_ACCESS_KEY"), access_key.clone()));
            environment.push((format!("{prefix}_SECRET_ACCESS_KEY"), secret_key.clone()));
        }
        StoreFlags { flags: storage.flags(), environment }
    }
}
