//! Where the raw and the queue loop have their batches from: the producer role's schedule and batch
//! boundaries, without its thread, its records and its timeline.

use super::{Job, JobKind};
use s3mq::producer::Payload;
use s3mq_clock::{Anchor, Timer};

/// Gives a job's messages, batch by batch.
#[derive(Debug)]
pub(super) struct Feed {
    job: Job,
    payload: Payload,
    anchor: Anchor,
    start_ns: u64,
    /// The message that comes next.
    next: u64,
    /// Paced: when the next batch is closed.
    boundary_ns: u64,
    timer: Timer,
}

impl Feed {
    /// The first message is due now.
    pub(super) fn start(job: &Job, anchor: &Anchor) -> Self {
        let start_ns = s3mq_clock::monotonic_ns();
        let mut feed = Self {
            job: job.clone(),
            payload: job.payload(),
            anchor: anchor.clone(),
            start_ns,
            next: 0,
            boundary_ns: start_ns,
            timer: Timer::new(),
        };
        feed.advance_boundary(start_ns);
        feed
    }

    /// Waits until the next batch is to be closed and pushes its messages; `push` has each one's due time. Gives
    /// whether there was one.
    pub(super) async fn next(&mut self, mut push: impl FnMut(&mut Payload, i64)) -> bool {
        match self.job.kind {
            JobKind::Flood { batch_messages, .. } => {
                let stamp_us = self.anchor.now_us();
                let end = (self.next + batch_messages).min(self.job.messages);
                (self.next..end).for_each(|_| push(&mut self.payload, stamp_us));
                std::mem::replace(&mut self.next, end) < end
            }
            JobKind::Paced { rate, .. } => {
                let before = self.next;
                while self.next == before && self.next < self.job.messages {
                    // What is left at the end isn't kept until its interval is over.
                    let last_due_ns = self.start_ns + rate.due_us(self.job.messages - 1) as u64 * 1_000;
                    self.timer.until_ns(self.boundary_ns.min(last_due_ns)).await;
                    let now_ns = s3mq_clock::monotonic_ns();
                    let start_us = self.anchor.at_us(self.start_ns);
                    let elapsed_us = ((now_ns - self.start_ns) / 1_000) as i64;
                    while self.next < self.job.messages && rate.due_us(self.next) <= elapsed_us {
                        push(&mut self.payload, start_us + rate.due_us(self.next));
                        self.next += 1;
                    }
                    self.advance_boundary(now_ns);
                }
                before < self.next
            }
        }
    }

    fn advance_boundary(&mut self, now_ns: u64) {
        if let JobKind::Paced { commit_interval, .. } = self.job.kind {
            let grid_ns = (commit_interval.as_nanos() as u64).max(1);
            self.boundary_ns = self.start_ns + ((now_ns - self.start_ns) / grid_ns + 1) * grid_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use s3mq::producer::Padding;
    use s3mq::units::Rate;
    use s3mq_queue::DataEncoding;

    fn job(kind: JobKind, messages: u64) -> Job {
        Job {
            kind,
            messages,
            message_size: None,
            padding: Padding::Text,
            data_encoding: DataEncoding::Plain,
            poll_interval: Duration::from_millis(1),
        }
    }

    async fn batches(job: &Job) -> Vec<Vec<i64>> {
        let mut feed = Feed::start(job, &Anchor::now());
        let mut batches = Vec::new();
        loop {
            let mut due = Vec::new();
            if !feed.next(|_, due_us| due.push(due_us)).await {
                assert!(due.is_empty());
                return batches;
            }
            batches.push(due);
        }
    }

    #[tokio::test]
    async fn a_flood_comes_in_equal_batches_and_a_rest() {
        let kind = JobKind::Flood { batch_messages: 100, half_a_second: 1 };
        let sizes: Vec<_> = batches(&job(kind, 250)).await.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
    }

    #[tokio::test]
    async fn paced_messages_are_due_by_the_schedule_however_batches_fall() {
        let rate: Rate = "2000".parse().unwrap();
        let kind =
            JobKind::Paced { rate, commit_interval: Duration::from_millis(10), warmup: Duration::ZERO };
        let due = batches(&job(kind, 101)).await.concat();
        assert_eq!(due.len(), 101);
        assert!(due.iter().enumerate().all(|(i, us)| us - due[0] == rate.due_us(i as u64)));
    }
}
