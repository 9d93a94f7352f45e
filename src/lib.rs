//! A Delta Lake table on S3 as a message queue, and the measuring of it.
pub mod clock;
pub mod server;
pub mod storage;
pub mod units;
