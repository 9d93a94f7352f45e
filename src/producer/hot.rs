//! See [`crate::hot`].

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Schedule;
use super::arrivals::Arrival;
use super::pacer::Pacer;
use super::payload::{Padding, Payload};
use super::timeline::Timeline;
use crate::units::Rate;
use s3mq_clock::Anchor;
use s3mq_queue::Batch;

/// The pacer's work for `messages` that are all due already, so that it doesn't wait: their text, how late each was
/// handed over, the batch.
pub fn hand_over(rate: Rate, messages: u64) -> Option<Batch> {
    let (sender, mut batches) = mpsc::channel(1);
    let (intervals, _) = mpsc::unbounded_channel();
    let anchor = Anchor::now();
    let long = Duration::from_secs(3_600);
    Pacer {
        max_batch_bytes: super::MAX_BATCH_BYTES,
        schedule: Schedule::Paced { rate, messages, arrival: Arrival::Uniform, seed: 0 },
        start_ns: s3mq_clock::monotonic_ns() - rate.due_us(messages) as u64 * 1_000,
        // Over at once, or it would sleep until the next tick.
        interval_ns: 1,
        grace_ns: long.as_nanos() as u64,
        timeline: Timeline::new(&anchor, long, intervals),
        payload: Payload::new(None, Padding::Text, 1),
        anchor,
        stop: CancellationToken::new(),
        batches: sender,
    }
    .run();
    batches.try_recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_handed_over_at_once() {
        let rate = "100000".parse().unwrap();
        assert_eq!(hand_over(rate, 1_000).map(|batch| batch.len()), Some(1_000));
    }
}
