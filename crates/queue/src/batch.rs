//! Messages on their way in: one buffer and the offsets into it, which Arrow and Parquet take over without a copy.

/// Messages that are appended together; they become one data file.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) values: Vec<u8>,
    /// Where each message ends, after a leading 0.
    pub(super) offsets: Vec<i32>,
    /// From which message on which hand-over time holds.
    pub(super) handed_over: Vec<(u64, i64)>,
    pub(super) sealed_us: Option<i64>,
}

impl Batch {
    /// The payload bytes that one batch takes at most: a single PUT on every store, and within Arrow's offsets.
    pub const MAX_BYTES: usize = 512 << 20;

    /// An empty batch with room for `messages` of `bytes` in all.
    pub fn with_capacity(messages: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(messages + 1);
        offsets.push(0);
        Self { values: Vec::with_capacity(bytes), offsets, handed_over: Vec::new(), sealed_us: None }
    }

    /// Adds a message.
    pub fn push(&mut self, message: &[u8]) {
        self.push_with(|values| values.extend_from_slice(message));
    }

    /// Adds a message that `write` appends to the buffer of them all. It must only append.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.values);
        // Batches beyond MAX_BYTES are refused before an offset could be read back.
        self.offsets.push(self.values.len() as i32);
    }

    /// Notes that the messages pushed from now on were handed over at `us`, in Unix microseconds.
    pub fn handed_over_at(&mut self, us: i64) {
        let from = self.len() as u64;
        match self.handed_over.last_mut() {
            Some(last) if last.0 == from => last.1 = us,
            _ => self.handed_over.push((from, us)),
        }
    }

    /// Notes that the batch was closed at `us`, in Unix microseconds; by default when it is appended.
    pub fn sealed_at(&mut self, us: i64) {
        self.sealed_us = Some(us);
    }

    /// How many messages.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Payload bytes.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl<M: AsRef<[u8]>> FromIterator<M> for Batch {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        let mut batch = Self::default();
        for message in messages {
            batch.push(message.as_ref());
        }
        batch
    }
}
