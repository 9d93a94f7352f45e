//! `--raw-output`: the due and received time of every message, for recomputing any figure.
//!
//! Header `due_us,received_us`; Unix microseconds. The warm-up is in it: whoever recomputes applies the
//! same rule (due at least the warm-up after the first line's due time).

use std::io::{self, Write};

/// Writes one line a message.
#[derive(Debug)]
pub struct RawCsv<W: Write> {
    inner: W,
}

impl<W: Write> RawCsv<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn new(mut inner: W) -> io::Result<Self> {
        inner.write_all(b"due_us,received_us\n")?;
        Ok(Self { inner })
    }

    /// Writes a message's times.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn message(&mut self, due_us: i64, received_us: i64) -> io::Result<()> {
        writeln!(self.inner, "{due_us},{received_us}")
    }

    /// Gives the file back, for finishing.
    pub fn into_inner(self) -> W {
        self.inner
    }
}
