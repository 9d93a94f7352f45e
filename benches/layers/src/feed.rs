//! Where the raw and the queue loop have their batches from: the producer role's schedule and batch boundaries,
//! without its thread, its records and its timeline.

use super::job::Job;
use s3mq::producer::Payload;
use s3mq_clock::{Timer, monotonic_ns};

/// Gives a job's messages, batch by batch.
#[derive(Debug)]
pub(super) struct Feed {
    job: Job,
    payload: Payload,
    start_ns: u64,
    /// The message that comes next.
    next: u64,
    /// Paced: when the next batch is closed.
    boundary_ns: u64,
    timer: Timer,
}

impl Feed {
    /// The first message is due now.
    pub(super) fn start(job: &Job) -> Self {
        let start_ns = monotonic_ns();
        let boundary_ns = start_ns + job.args.commit_interval().as_nanos() as u64;
        let payload = Payload::new(Some(job.message_bytes()), job.args.message.payload, 1);
        Self { job: job.clone(), payload, start_ns, next: 0, boundary_ns, timer: Timer::new() }
    }

    /// Waits until the next batch is to be closed and pushes its messages; `push` has each one's due time. Gives
    /// whether there was one.
    pub(super) async fn next(&mut self, mut push: impl FnMut(&mut Payload, i64)) -> bool {
        let (rate, messages, before) = (self.job.args.rate, self.job.messages, self.next);
        if !self.job.is_paced {
            let stamp_us = self.job.anchor.now_us();
            self.next = (before + self.job.batch_messages()).min(messages);
            (before..self.next).for_each(|_| push(&mut self.payload, stamp_us));
        }
        let start_us = self.job.anchor.at_us(self.start_ns);
        let interval_ns = self.job.args.commit_interval().as_nanos() as u64;
        // What is left at the end isn't kept until its interval is over.
        let last_due_ns = self.start_ns + rate.due_us(messages - 1) as u64 * 1_000;
        while self.next == before && self.next < messages {
            self.timer.until_ns(self.boundary_ns.min(last_due_ns)).await;
            let elapsed_ns = monotonic_ns() - self.start_ns;
            while self.next < messages && rate.due_us(self.next) <= (elapsed_ns / 1_000) as i64 {
                push(&mut self.payload, start_us + rate.due_us(self.next));
                self.next += 1;
            }
            self.boundary_ns = self.start_ns + (elapsed_ns / interval_ns + 1) * interval_ns;
        }
        before < self.next
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::tests::job;
    use super::*;
    use s3mq::units::Rate;

    async fn batches(job: &Job) -> Vec<Vec<i64>> {
        let mut feed = Feed::start(job);
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
        let flood = job(false, 250, "--batch-messages 100");
        let sizes: Vec<_> = batches(&flood).await.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
    }

    #[tokio::test]
    async fn paced_messages_are_due_by_the_schedule_however_batches_fall() {
        let rate: Rate = "2000".parse().unwrap();
        let paced = job(true, 101, "--rate 2000 --autocommit-duration-ms 10");
        let due = batches(&paced).await.concat();
        assert_eq!(due.len(), 101);
        assert!(due.iter().enumerate().all(|(i, us)| us - due[0] == rate.due_us(i as u64)));
    }
}
