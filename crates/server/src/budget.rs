//! What a server holds in memory for its clients, and its limit: bodies on their way in, parts of unfinished uploads,
//! objects in memory, and for each object or upload its key, its headers and a flat [`ENTRY_BYTES`]. Whoever holds such
//! a thing holds its [`Held`] too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

/// What an entry of an index takes beside its strings, rounded up.
pub(super) const ENTRY_BYTES: u64 = 1024;

#[derive(Debug)]
pub(super) struct Budget {
    max_bytes: u64,
    held: AtomicU64,
}

impl Budget {
    pub(super) fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(Self { max_bytes, held: AtomicU64::new(0) })
    }

    /// Sets bytes aside; [`io::ErrorKind::StorageFull`], as a full disk gives it, if there are not so many left.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> io::Result<Held> {
        let mut held = Held { budget: self.clone(), bytes: 0 };
        held.grow(bytes)?;
        Ok(held)
    }
}

/// Bytes that are set aside until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Held {
    /// Sets more aside, as [`Budget::take`] does; after an error it is as large as before.
    pub(super) fn grow(&mut self, bytes: u64) -> io::Result<()> {
        let max_bytes = self.budget.max_bytes;
        let room = |held: u64| held.checked_add(bytes).filter(|held| *held <= max_bytes);
        if self.budget.held.fetch_update(Relaxed, Relaxed, room).is_err() {
            let problem = format!(
                "it may hold {} MiB in memory, and what is there leaves no room for this (--data-dir keeps objects in \
                 files, --max-memory-mib of `s3mq serve` says how much it may be)",
                max_bytes >> 20
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, problem));
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// Bytes with what is set aside for them.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    pub(super) _held: Arc<Held>,
}

impl Piece {
    /// The concatenated `pieces`: a copy, if they are not a single one.
    pub(super) fn join(mut pieces: Vec<Self>, budget: &Arc<Budget>) -> io::Result<Self> {
        if pieces.len() == 1 {
            return Ok(pieces.remove(0));
        }
        let held = Arc::new(budget.take(pieces.iter().map(|piece| piece.bytes.len() as u64).sum())?);
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &*piece.bytes).collect();
        Ok(Self { bytes: Bytes::from(pieces.concat()), _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::new(100);
        let mut first = budget.take(60).unwrap();
        assert_eq!(budget.take(41).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let second = budget.take(30).unwrap();
        assert!(first.grow(11).is_err() && first.grow(u64::MAX).is_err());
        first.grow(10).unwrap();
        assert!(budget.take(1).is_err());
        drop(first);
        drop(budget.take(70).unwrap());
        drop(second);
        assert_eq!(budget.held.load(Relaxed), 0);
    }
}
