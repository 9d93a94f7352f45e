//! A Delta Lake table on S3 as a message queue, and the measuring of it.
//!
//! What `s3mq` measures with. The queue itself is the crate `s3mq-queue`, the embedded store `s3mq-server`. How they are
//! put together is described in ARCHITECTURE.md.

pub mod bench;
mod child;
pub mod cli;
pub mod config;
pub mod consumer;
pub mod events;
pub mod exit;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod hot;
pub mod machine;
pub mod measure;
pub mod producer;
pub mod report;
pub mod stop;
pub mod units;
