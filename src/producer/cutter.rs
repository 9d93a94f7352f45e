//! Cutting the stream of messages into batches at the commit interval.

use tokio::sync::mpsc;

use super::payload::Payload;
use s3mq_clock::Anchor;
use s3mq_queue::Batch;

/// The most that a batch grows to by default: what a PUT and the memory of both roles should hold.
pub const MAX_BATCH_BYTES: usize = 32 << 20;

/// How long after a try that found no room the next one comes.
const RETRY_NS: u64 = 1_000_000;

/// The batch that is being filled, and where full ones go.
pub(super) struct Cutter {
    pub batch: Batch,
    /// When the messages that are being pushed are handed over.
    pub handed_over_us: i64,
    /// How long it has waited for room in the queue.
    pub held_up_ns: u64,
    pub anchor: Anchor,
    pub batches: mpsc::Sender<Batch>,
    /// The most that a batch grows to.
    pub max_batch_bytes: usize,
    pub interval_ns: u64,
    /// Boundaries lie at whole intervals after this.
    pub grid_start_ns: u64,
    /// When the batch is cut next.
    pub boundary_ns: u64,
}

/// The other side has gone; it knows why.
pub(super) struct Gone;

impl Cutter {
    /// Messages pushed from now on are handed over at `us`.
    pub(super) fn hand_over_at(&mut self, us: i64) {
        self.handed_over_us = us;
        self.batch.handed_over_at(us);
    }

    /// Adds a message; waits for the queue only where the batch is as large as it may become.
    pub(super) fn push(&mut self, payload: &mut Payload, due_us: i64) -> Result<(), Gone> {
        if self.batch.bytes() + payload.message_bytes() > self.max_batch_bytes && !self.batch.is_empty() {
            self.cut()?;
        }
        self.batch.push_with(|values| payload.write(due_us, values));
        Ok(())
    }

    /// Cuts the batch where its interval is over and the queue has room; else it goes on growing.
    pub(super) fn cut_if_due(&mut self, now_ns: u64) -> Result<(), Gone> {
        if now_ns < self.boundary_ns {
            return Ok(());
        }
        if self.batch.is_empty() {
            self.start_interval(now_ns);
            return Ok(());
        }
        if self.batches.is_closed() {
            return Err(Gone);
        }
        // Nobody else sends, so that there is still room when it is sent.
        if self.batches.capacity() == 0 {
            self.boundary_ns = now_ns + RETRY_NS;
            return Ok(());
        }
        let batch = self.take();
        self.batches.try_send(batch).map_err(|_| Gone)?;
        self.start_interval(now_ns);
        Ok(())
    }

    /// Hands the batch over, waiting for room.
    pub(super) fn cut(&mut self) -> Result<(), Gone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.take();
        let waits_from_ns = s3mq_clock::monotonic_ns();
        let sent = self.batches.blocking_send(batch).map_err(|_| Gone);
        self.held_up_ns += s3mq_clock::monotonic_ns() - waits_from_ns;
        sent
    }

    /// The next boundary that lies ahead, on the grid that began with the schedule.
    fn start_interval(&mut self, now_ns: u64) {
        let grid_ns = self.interval_ns;
        self.boundary_ns = self.grid_start_ns + ((now_ns - self.grid_start_ns) / grid_ns + 1) * grid_ns;
    }

    /// Takes the batch, closed now, and leaves an empty one with room for as much.
    fn take(&mut self) -> Batch {
        let mut successor = Batch::with_capacity(self.batch.len(), self.batch.bytes());
        // A batch may be cut in the middle of what is handed over at once.
        successor.handed_over_at(self.handed_over_us);
        self.batch.sealed_at(self.anchor.now_us());
        std::mem::replace(&mut self.batch, successor)
    }
}
