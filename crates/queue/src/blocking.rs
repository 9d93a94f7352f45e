//! Work that would hold up the runtime: encoding and decoding of large batches.

use super::error::QueueError;

/// Up to this many bytes, encoding or decoding takes less time than the way to another thread and back.
pub(super) const QUICK_BYTES: usize = 64 << 10;

/// Runs `work` on a thread that may block.
pub(super) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, QueueError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| QueueError::TaskEnded(error.to_string()))
}
