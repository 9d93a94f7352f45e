//! Work that would hold up the runtime: encoding and decoding of large batches.

use super::error::QueueError;

/// Up to this many bytes, encoding or decoding takes less time than a switch to another thread and back.
const QUICK_BYTES: usize = 64 << 10;

/// Does work on so many bytes, on a thread that may block where they are many.
pub(super) async fn off_the_runtime<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, QueueError> {
    if bytes <= QUICK_BYTES {
        return Ok(work());
    }
    Ok(tokio::task::spawn_blocking(work).await?)
}
