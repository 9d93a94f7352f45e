//! A task that ends with whoever waits for it.

use std::future::Future;

use tokio::task::JoinHandle;

use super::LayersError;

/// A spawned task; it is aborted when this is dropped.
#[derive(Debug)]
pub(super) struct Task<T>(JoinHandle<Result<T, LayersError>>);

impl<T: Send + 'static> Task<T> {
    pub(super) fn spawn(work: impl Future<Output = Result<T, LayersError>> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// What came of it.
    pub(super) async fn done(mut self) -> Result<T, LayersError> {
        (&mut self.0).await.map_err(|error| LayersError::TaskEnded(error.to_string()))?
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
