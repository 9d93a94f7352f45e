//! The pieces that run for each message or batch, for the benches in `benches/hot` to measure. They are private
//! to their parts; this gives the benches a door and makes nothing else public. No part of the library.

pub use crate::consumer::hot::*;
pub use crate::producer::hot::*;
pub use s3mq_queue::hot::*;
