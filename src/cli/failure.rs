//! Why a command failed, and which exit code says so.

use crate::bench::BenchError;
use crate::consumer::ConsumerError;
use crate::exit::Exit;
use s3mq_queue::QueueError;
use s3mq_queue::storage::{ConfigError, StorageError};
use s3mq_server::ServerError;

/// One line for people, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// One line.
    pub message: String,
}

impl Failure {
    /// Bad usage or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// A runtime failure.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::runtime(error.to_string())
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        Self::runtime(error.to_string())
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        let exit = if error.is_foreign() { Exit::Usage } else { Exit::Failed };
        Self { exit, message: error.to_string() }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let exit = match &error {
            BenchError::Interrupted => Exit::Interrupted,
            BenchError::Queue(error) if error.is_foreign() => Exit::Usage,
            _ => Exit::Failed,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<ConsumerError> for Failure {
    fn from(error: ConsumerError) -> Self {
        let lossy = matches!(&error, ConsumerError::Queue(error) if error.is_loss());
        let exit = if lossy { Exit::Lossy } else { Exit::Failed };
        Self { exit, message: error.to_string() }
    }
}
