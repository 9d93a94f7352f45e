//! A bench's own store: what goes with it alone, and its server.

use super::super::failure::Failure;
use super::super::storage::BackendArg;
use super::Args;
use crate::units::{Rate, grouped};
use s3mq_queue::storage;
use s3mq_server::{Faults, Model, Server};

/// Its bucket.
const BUCKET: &str = "s3mq";

/// How the embedded store differs from one as it is.
pub(super) struct Injected {
    pub(super) model: Option<Model>,
    pub(super) faults: Option<Faults>,
}

impl Args {
    /// Reads the model and the faults. Refuses flags of the embedded store if that isn't the backend.
    pub(super) fn injected(&self) -> Result<Injected, Failure> {
        let embedded_only = |flag: &str, is_given: bool, hint: &str| match self.storage.backend() {
            BackendArg::Minio | BackendArg::S3 if is_given => {
                Err(Failure::usage(format!("{flag} goes with --s3-backend embedded{hint}")))
            }
            _ => Ok(()),
        };
        embedded_only("--data-dir", self.data_dir.is_some(), "")?;
        let model = self.model.model()?;
        embedded_only("--store-model", model.is_some(), "")?;
        let faults = self.faults.faults()?;
        let hint = "; `s3mq serve --proxy` puts faults before another store";
        embedded_only("--faults", faults.is_some(), hint)?;
        Ok(Injected { model, faults })
    }

    /// Starts the server.
    pub(super) async fn embedded_server(&self, injected: Injected) -> Result<Server, Failure> {
        let Injected { model, faults } = injected;
        let data_dir = self.data_dir.clone();
        let config =
            s3mq_server::Config { data_dir, model, faults, ..s3mq_server::Config::in_memory(BUCKET) };
        Ok(Server::start(config).await?)
    }

    /// A bench that would fill the memory would measure swapping, or be killed.
    pub(super) fn refuse_too_much_memory(&self, rates: &[Rate]) -> Result<(), Failure> {
        // What the Parquet file of a batch adds to each message, measured at 17-byte messages.
        const OVERHEAD_BYTES: u64 = 5;
        // What a preloaded version takes: its data file, its entry, its part of the checkpoints.
        const VERSION_BYTES: u64 = 4096;
        let (None, Some(memory)) = (&self.data_dir, s3mq_limits::memory_bytes()) else {
            return Ok(());
        };
        let held = rates.iter().map(|rate| rate.messages_in(self.run.seconds_to_stream));
        let messages =
            if self.output.keep_data { held.fold(0, u64::saturating_add) } else { held.max().unwrap_or(0) };
        let tables = if self.output.keep_data { rates.len() as u64 } else { 1 };
        let needed = messages
            .saturating_mul(self.message.bytes() as u64 + OVERHEAD_BYTES)
            .saturating_add(self.run.preload_versions.saturating_mul(tables * VERSION_BYTES));
        if needed <= memory / 2 {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the embedded store would hold {} MB, more than half of the {} MB of memory that it may have; \
             give --data-dir to keep it on disk, or a shorter --seconds-to-stream",
            grouped(needed >> 20),
            grouped(memory >> 20)
        )))
    }

    /// The embedded server as a store, with the deadlines that were given.
    pub(super) fn embedded_store(&self, server: &Server) -> Result<storage::Config, Failure> {
        let keys = server.credentials();
        let store =
            storage::Config::of_server(&server.endpoint(), BUCKET, &keys.access_key, &keys.secret_key)?;
        Ok(storage::Config {
            stall_timeout: self.storage.deadlines.stall_timeout_seconds.as_duration(),
            region: self.storage.region.clone().unwrap_or_else(|| store.region.clone()),
            ..store.with_timeouts(
                self.storage.deadlines.request_timeout_seconds.as_duration(),
                self.storage.deadlines.retry_timeout_seconds.as_duration(),
            )
        })
    }
}
