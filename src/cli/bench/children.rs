//! What the roles are told that a bench starts.

use super::super::storage::{BackendArg, StorageArgs};
use super::super::stream::value_name;
use super::Args;
use crate::bench::ChildFlags;
use s3mq_queue::storage::{Backend, Config, Credentials};

impl Args {
    /// Flags and secrets of the roles, for this store.
    pub(super) fn child_flags(&self, store: &Config) -> ChildFlags {
        // The embedded store is an S3 server like any other to the roles.
        let s3_backend = if store.backend == Backend::S3 { BackendArg::S3 } else { BackendArg::Minio };
        let storage = StorageArgs {
            s3_backend: Some(s3_backend),
            endpoint: store.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            bucket: Some(store.bucket.clone()),
            region: Some(store.region.clone()),
            ..self.storage.clone()
        };
        let mut flags = ChildFlags { both: storage.flags(), ..ChildFlags::default() };
        if let Some(size) = self.message.message_size {
            flags.producer.extend(["--message-size".to_owned(), size.to_string()]);
        }
        let checkpoint_interval = self.checkpoint.checkpoint_interval.to_string();
        flags.producer.extend(["--checkpoint-interval".to_owned(), checkpoint_interval]);
        flags.producer.extend(["--arrival".to_owned(), value_name(&self.arrival.arrival)]);
        flags.producer.extend(["--seed".to_owned(), self.arrival.seed.to_string()]);
        flags.producer.extend(["--payload".to_owned(), value_name(&self.message.payload)]);
        flags.producer.extend(["--data-encoding".to_owned(), value_name(&self.message.data_encoding)]);
        flags.consumer.extend(["--percentiles".to_owned(), self.percentiles.percentiles.to_string()]);
        flags.consumer.extend(["--poll".to_owned(), value_name(&self.poll.poll)]);
        if let Some(interval_ms) = self.poll.poll_interval_ms {
            flags.consumer.extend(["--poll-interval-ms".to_owned(), interval_ms.to_string()]);
        }
        if let Credentials::Static { access_key, secret_key } = &store.credentials {
            let prefix = if store.backend == Backend::S3 { "AWS_S3" } else { "MINIO_S3" };
            flags.environment.push((format!("{prefix}_ACCESS_KEY"), access_key.clone()));
            flags.environment.push((format!("{prefix}_SECRET_ACCESS_KEY"), secret_key.clone()));
        }
        flags
    }
}
