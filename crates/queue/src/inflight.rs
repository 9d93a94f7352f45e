//! How much may be fetched and not delivered yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a file that is fetched takes of the bounds, until it is dropped. Neither is `None`: the pools stay open.
pub(super) type InFlight = [Option<OwnedSemaphorePermit>; 2];

/// Bounds on what is in flight: messages, and bytes of data files.
#[derive(Debug)]
pub(super) struct Bounds {
    messages: Pool,
    bytes: Pool,
}

impl Bounds {
    pub(super) fn new(messages: usize, bytes: usize) -> Self {
        Self { messages: Pool::new(messages), bytes: Pool::new(bytes) }
    }

    /// Waits until there is room for a file. One that is larger than a bound takes all of it, and so is alone.
    pub(super) async fn take(&self, messages: u64, bytes: u64) -> InFlight {
        [self.messages.take(messages).await, self.bytes.take(bytes).await]
    }
}

#[derive(Debug)]
struct Pool {
    semaphore: Arc<Semaphore>,
    size: u32,
}

impl Pool {
    fn new(size: usize) -> Self {
        let size = size.clamp(1, u32::MAX as usize) as u32;
        Self { semaphore: Arc::new(Semaphore::new(size as usize)), size }
    }

    async fn take(&self, amount: u64) -> Option<OwnedSemaphorePermit> {
        let amount = amount.min(u64::from(self.size)) as u32;
        self.semaphore.clone().acquire_many_owned(amount).await.ok()
    }
}
