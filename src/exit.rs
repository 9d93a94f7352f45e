//! The exit codes, and which one wins where several hold.

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All well. A rate that collapsed is a result, not a failure.
    Ok,
    /// A gate (`--assert`, `compare`) failed.
    Gate,
    /// Committed messages were skipped, unreadable, doubled or reordered.
    Lossy,
    /// A runtime failure.
    Failed,
    /// Bad usage or configuration.
    Usage,
    /// SIGINT or SIGTERM.
    Interrupted,
}

impl Exit {
    /// The code given to the operating system.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Lossy => 3,
            Self::Gate => 4,
            Self::Interrupted => 130,
        }
    }

    /// The one of two that tells more: 130, 2, 1, 3, 4, 0 in this order.
    pub fn or_worse(self, other: Self) -> Self {
        if (self as u8) < (other as u8) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_of_two_wins() {
        let ascending = [Exit::Ok, Exit::Gate, Exit::Lossy, Exit::Failed, Exit::Usage, Exit::Interrupted];
        for (i, &a) in ascending.iter().enumerate() {
            for &b in &ascending[i..] {
                assert_eq!((a.or_worse(b), b.or_worse(a)), (b, b));
            }
        }
        assert_eq!(ascending.map(Exit::code), [0, 4, 3, 1, 2, 130]);
    }
}
