//! How much may be fetched and not delivered yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// What a file takes of the bounds, until it is dropped. None is `None`: the pools stay open.
pub(super) type InFlight = Box<[Option<OwnedSemaphorePermit>; 3]>;

/// Bounds on what is in flight: messages, bytes of data files, and bytes that these decode to.
#[derive(Debug)]
pub(super) struct Bounds {
    messages: Pool,
    bytes: Pool,
    decoded_bytes: Pool,
    /// When the file before the next one has its room.
    last: oneshot::Receiver<()>,
}

impl Bounds {
    pub(super) fn new(messages: usize, bytes: usize) -> Self {
        // Nobody is before the first.
        let (_, last) = oneshot::channel();
        let [bytes, decoded_bytes] = [bytes; 2].map(Pool::new);
        Self { messages: Pool::new(messages), bytes, decoded_bytes, last }
    }

    /// Waits until there is room to fetch a file. One that is larger than a bound takes all of it, and so is alone.
    pub(super) async fn take(&mut self, messages: u64, bytes: u64) -> Room {
        let fetched = [self.messages.take(messages).await, self.bytes.take(bytes).await];
        let (next, last) = oneshot::channel();
        let before = std::mem::replace(&mut self.last, last);
        Room { fetched, decoded: None, pool: self.decoded_bytes.clone(), before, next: Some(next) }
    }
}

/// A file's room to be fetched, and its turn to get room for what it decodes to. Turns come in the order of delivery: a
/// later file could hold room that an earlier one needs before anything can be delivered.
#[derive(Debug)]
pub(super) struct Room {
    fetched: [Option<OwnedSemaphorePermit>; 2],
    decoded: Option<OwnedSemaphorePermit>,
    pool: Pool,
    before: oneshot::Receiver<()>,
    next: Option<oneshot::Sender<()>>,
}

impl Room {
    /// Waits for the turn and for room for so many bytes; for all of it where it isn't known how many they are.
    pub(super) async fn decode(&mut self, bytes: Option<u64>) {
        if let Some(_passed_on) = self.next.take() {
            let _ = (&mut self.before).await;
            self.decoded = self.pool.take(bytes.unwrap_or(u64::MAX)).await;
        }
    }

    /// What the file takes until it is delivered.
    pub(super) fn into_in_flight(self) -> InFlight {
        let [messages, bytes] = self.fetched;
        Box::new([messages, bytes, self.decoded])
    }
}

#[derive(Clone, Debug)]
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
