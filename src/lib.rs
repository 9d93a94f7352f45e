//! A Delta Lake table on S3 as a message queue, and the measuring of it.
pub mod server;
