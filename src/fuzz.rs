//! What reads bytes and texts from outside and is private to its part, for the fuzz targets in `fuzz/` and for
//! `tests/corpus.rs`. A door as [`crate::hot`] is one; no part of the library.

pub use crate::cli::fuzz::*;
pub use s3mq_queue::fuzz::*;
