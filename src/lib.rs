//! A Delta Lake table on S3 as a message queue, and the measuring of it.
//!
//! Another program can use [`queue`] and [`storage`]; the rest is what `s3mq` measures with. The
//! folders and the one direction in which they know each other are described in ARCHITECTURE.md.

pub mod bench;
pub mod cli;
pub mod clock;
pub mod consumer;
pub mod events;
pub mod exit;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod hot;
pub mod layers;
pub mod machine;
pub mod measure;
pub mod producer;
pub mod queue;
pub mod report;
pub mod server;
pub mod stop;
pub mod storage;
pub mod toml;
pub mod units;
