//! The exit codes.

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All well. A rate that collapsed is a result, not a failure.
    Ok = 0,
    /// A runtime failure.
    Failed = 1,
    /// Bad usage or configuration.
    Usage = 2,
    /// Committed messages were skipped, unreadable, doubled or reordered.
    Lossy = 3,
    /// SIGINT or SIGTERM.
    Interrupted = 130,
}

impl Exit {
    /// The code given to the operating system.
    pub fn code(self) -> u8 {
        self as u8
    }
}
