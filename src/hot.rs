//! Private code that runs for each message or batch, for the benches in `benches/hot`. No part of the library.

pub use crate::consumer::hot::*;
pub use crate::producer::hot::*;
pub use s3mq_queue::hot::*;
