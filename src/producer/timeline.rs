//! What was handed over, interval by interval.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::events::SentInterval;
use crate::machine::rss_bytes;
use crate::measure::Latencies;
use s3mq_clock::Anchor;

/// Counts hand-overs and reports each interval when it is over.
#[derive(Debug)]
pub(super) struct Timeline {
    anchor: Anchor,
    interval_us: i64,
    ended: UnboundedSender<SentInterval>,
    index: i64,
    messages: u64,
    delays: Latencies,
    /// Those of the intervals that have ended.
    ended_delays: Latencies,
}

impl Timeline {
    pub(super) fn new(anchor: &Anchor, interval: Duration, ended: UnboundedSender<SentInterval>) -> Self {
        let interval_us = (interval.as_micros() as i64).max(1);
        let index = anchor.since_us(anchor.now_us()).div_euclid(interval_us);
        Self {
            anchor: anchor.clone(),
            interval_us,
            ended,
            index,
            messages: 0,
            delays: Latencies::default(),
            ended_delays: Latencies::default(),
        }
    }

    /// It is `now_ns` by the monotonic clock: an interval may be over.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let index = self.anchor.since_us(self.anchor.at_us(now_ns)).div_euclid(self.interval_us);
        if index != self.index {
            self.end();
            self.index = index;
        }
    }

    /// `count` messages were handed over, each this long after it was due; `None` without a schedule.
    pub(super) fn record(&mut self, delay_us: Option<i64>, count: u64) {
        self.messages += count;
        if let Some(delay_us) = delay_us {
            self.delays.record(delay_us, count);
        }
    }

    /// All delays so far.
    pub(super) fn delays(&self) -> Latencies {
        let mut delays = self.ended_delays.clone();
        delays.merge(&self.delays);
        delays
    }

    /// Reports the interval as far as it went.
    fn end(&mut self) {
        let delays = std::mem::take(&mut self.delays);
        self.ended_delays.merge(&delays);
        let messages = std::mem::take(&mut self.messages);
        // A role that has ended doesn't listen any more.
        let _ = self.ended.send(SentInterval {
            index: self.index,
            messages,
            send_delay: delays.summary(),
            rss_bytes: rss_bytes(),
        });
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.end();
    }
}
