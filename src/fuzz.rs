//! Private code that reads bytes and texts from outside, for the fuzz targets. No part of the library.

pub use crate::cli::fuzz::*;
pub use s3mq_queue::fuzz::*;
