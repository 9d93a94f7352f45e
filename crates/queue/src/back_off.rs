//! Pauses between attempts.

use std::time::Duration;

/// Each pause is up to twice as long as the one before, and drawn from nothing to the whole: contenders that lost to
/// the same commit must not meet again.
#[derive(Debug)]
pub(super) struct BackOff(Duration);

impl BackOff {
    /// The first pause is at most this long.
    pub(super) fn from(first: Duration) -> Self {
        Self(first)
    }

    /// Pauses. The next pause is at most `longest`.
    pub(super) async fn pause(&mut self, longest: Duration) {
        tokio::time::sleep(self.0.mul_f64(rand::random::<f64>())).await;
        self.0 = (self.0 * 2).min(longest);
    }
}
