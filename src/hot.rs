//! Private code that runs for each message or batch, for the benches in `benches/hot`. No part of the library.

pub use crate::consumer::due_us;
pub use crate::producer::hot::*;
pub use s3mq_queue::hot::*;
