//! How long it takes to catch up once the store answers again: until a message is delivered that was due after the
//! store's first answer.

use std::time::Duration;

use s3mq_clock::Anchor;
use s3mq_queue::Lake;

/// Follows the stalls of a store.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) threshold: Duration,
    /// Outages of the store that were looked at.
    seen: usize,
    /// The first answers after the stalls that it hasn't caught up with, in Unix microseconds.
    behind_us: Vec<i64>,
    longest_us: Option<i64>,
}

impl Recovery {
    /// Of outages of more than `threshold`.
    pub(super) fn new(threshold: Duration) -> Self {
        Self { threshold, seen: 0, behind_us: Vec::new(), longest_us: None }
    }

    /// A batch was delivered at `now_ns`; its last message had been due at `due_us`.
    pub(super) fn delivered(&mut self, lake: &Lake, anchor: &Anchor, due_us: Option<i64>, now_ns: u64) {
        let (seen, stalls) = lake.store().availability().ended_since(self.seen, self.threshold);
        self.seen = seen;
        self.behind_us.extend(stalls.iter().map(|stall| anchor.at_us(stall.until_ns)));
        if let Some(due_us) = due_us {
            self.take(due_us, anchor.at_us(now_ns));
        }
    }

    fn take(&mut self, due_us: i64, now_us: i64) {
        for answered_us in self.behind_us.extract_if(.., |answered_us| *answered_us <= due_us) {
            self.longest_us = self.longest_us.max(Some(now_us - answered_us));
        }
    }

    /// The longest that it took, in seconds; `None` without a stall, or where it has not caught up with one.
    pub(super) fn longest_seconds(&self) -> Option<f64> {
        self.longest_us.filter(|_| self.behind_us.is_empty()).map(|us| us as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store answered again at these times.
    fn behind(answered_us: &[i64]) -> Recovery {
        Recovery { behind_us: answered_us.to_vec(), ..Recovery::new(Duration::from_secs(1)) }
    }

    #[test]
    fn it_has_caught_up_with_the_first_message_that_was_due_after_the_answer() {
        assert_eq!(behind(&[]).longest_seconds(), None, "there was no stall");
        let mut recovery = behind(&[20_000_000]);
        recovery.take(12_000_000, 21_000_000);
        assert_eq!(recovery.longest_seconds(), None, "it is still behind");
        recovery.take(21_000_000, 23_000_000);
        assert_eq!(recovery.longest_seconds(), Some(3.0));
        recovery.take(90_000_000, 99_000_000);
        assert_eq!(recovery.longest_seconds(), Some(3.0), "that was no recovery any more");
    }

    #[test]
    fn the_longest_recovery_counts_and_none_where_one_is_missing() {
        let mut recovery = behind(&[20_000_000, 30_000_000]);
        recovery.take(22_000_000, 31_000_000);
        assert_eq!(recovery.longest_seconds(), None, "caught up with the first of two");
        recovery.take(31_000_000, 32_000_000);
        assert_eq!(recovery.longest_seconds(), Some(11.0));
    }
}
