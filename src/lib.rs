//! The benchmark of a Delta Lake table on S3 as a message queue. The queue itself is the crate `s3mq-queue`, the embedded
//! store `s3mq-server`. ARCHITECTURE.md describes how they are put together.

mod bench;
mod child;
pub mod cli;
pub mod config;
mod console;
pub mod consumer;
pub mod events;
pub mod exit;
mod first_process;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod hot;
pub mod machine;
pub mod measure;
pub mod producer;
pub mod report;
pub mod units;

pub use tokio_util::sync::CancellationToken;
