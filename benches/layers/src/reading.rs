//! What reading a message is, for the raw and the queue loop, and the window in which it is measured.

use super::job::{Job, Outcome, not_whole};
use s3mq::cli::Failure;
use s3mq::consumer::due_us;
use s3mq::machine::cpu_seconds;
use s3mq::measure::{Latencies, LatencySummary};
use s3mq_clock::monotonic_ns;

/// The clock is read at least once for this many messages of a batch, as the consumer role does.
const MESSAGES_A_CLOCK_READ: u64 = 1_000;

/// Monotonic nanoseconds, and the processor time so far in seconds.
type Moment = (u64, f64);

fn now() -> Moment {
    (monotonic_ns(), cpu_seconds())
}

/// Counts messages and their bytes, in the window from the first delivery to the last message.
#[derive(Debug)]
pub(super) struct Reading {
    job: Job,
    messages: u64,
    bytes: u64,
    opened: Option<Moment>,
    closed: Option<Moment>,
    warm_from_us: Option<i64>,
    latencies: Latencies,
}

impl Reading {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            job: job.clone(),
            messages: 0,
            bytes: 0,
            opened: None,
            closed: None,
            warm_from_us: None,
            latencies: Latencies::default(),
        }
    }

    /// Something was delivered: the first time opens the window.
    pub(super) fn delivered(&mut self) {
        self.opened.get_or_insert_with(now);
    }

    /// Messages were read: the last of them closes the window.
    pub(super) fn count(&mut self, messages: u64) {
        self.messages += messages;
        if self.messages == self.job.messages {
            self.closed = Some(now());
        }
    }

    /// Reads a batch that has just been delivered.
    pub(super) fn read<'a>(&mut self, batch: impl Iterator<Item = &'a [u8]>) -> Result<(), Failure> {
        self.delivered();
        let (mut messages, mut bytes) = (0, 0);
        if self.job.is_paced {
            let (warmup_us, mut now_us) = (self.job.args.warmup().as_micros() as i64, 0);
            for message in batch {
                if messages % MESSAGES_A_CLOCK_READ == 0 {
                    now_us = self.job.anchor.now_us();
                }
                let due_us = due_us(message).ok_or_else(|| not_whole("a message has no readable stamp"))?;
                if due_us >= *self.warm_from_us.get_or_insert(due_us + warmup_us) {
                    self.latencies.record(now_us - due_us, 1);
                }
                (messages, bytes) = (messages + 1, bytes + message.len() as u64);
            }
        } else {
            // Nothing but counting, which a flood is measured by.
            for message in batch {
                (messages, bytes) = (messages + 1, bytes + message.len() as u64);
            }
        }
        self.bytes += bytes;
        self.count(messages);
        Ok(())
    }

    /// Whether as many messages came as were to be sent.
    pub(super) fn is_through(&self) -> bool {
        self.messages >= self.job.messages
    }

    /// What it came to, with the latencies that it took; an error where not exactly what was sent has come.
    pub(super) fn outcome(self) -> Result<Outcome, Failure> {
        let bytes = self.job.messages * self.job.message_bytes() as u64;
        if (self.messages, self.bytes) != (self.job.messages, bytes) {
            return Err(not_whole(format!(
                "{} messages of {} bytes in all came, {} of {bytes} were sent",
                self.messages, self.bytes, self.job.messages
            )));
        }
        self.window(self.latencies.summary())
    }

    /// What all messages came to, with these latencies.
    pub(super) fn window(&self, latency: Option<LatencySummary>) -> Result<Outcome, Failure> {
        let messages = self.messages.saturating_sub(self.job.batch_messages()) as f64;
        match self.opened.zip(self.closed) {
            Some(((from_ns, cpu_from), (to_ns, cpu_to))) if to_ns > from_ns && messages > 0.0 => {
                let seconds = (to_ns - from_ns) as f64 / 1e9;
                let cpu_us_per_message = (cpu_to - cpu_from) * 1e6 / messages;
                let messages_per_second = messages / seconds;
                Ok(Outcome { seconds, messages_per_second, cpu_us_per_message, latency })
            }
            _ => Err(not_whole("everything came at once; there is no window to measure")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::tests::job;
    use super::*;
    use s3mq::exit::Exit;

    fn flood() -> Job {
        job(false, 4, "--batch-messages 2")
    }

    const MESSAGE: &[u8] = b"1724403133.066217";

    fn reading(job: &Job, batches: &[usize]) -> Reading {
        let mut reading = Reading::new(job);
        for &count in batches {
            reading.read(std::iter::repeat_n(MESSAGE, count)).unwrap();
        }
        reading
    }

    #[test]
    fn what_came_whole_is_a_figure_without_the_batch_that_opened_the_window() {
        let outcome = reading(&flood(), &[2, 2]).outcome().unwrap();
        let messages = outcome.messages_per_second * outcome.seconds;
        assert_eq!((messages.round(), outcome.latency), (2.0, None));
        assert!(outcome.seconds > 0.0);
    }

    #[test]
    fn what_is_not_whole_is_no_figure() {
        assert!(!reading(&flood(), &[2, 1]).is_through());
        for batches in [&[2, 1][..], &[2, 3], &[]] {
            let error = reading(&flood(), batches).outcome().unwrap_err();
            assert_eq!(error.exit, Exit::Lossy, "{}", error.message);
        }
    }

    #[test]
    fn messages_of_another_length_are_no_figure() {
        let mut reading = Reading::new(&flood());
        reading.read([MESSAGE, MESSAGE, MESSAGE, b"short"].into_iter()).unwrap();
        assert!(reading.outcome().unwrap_err().message.contains("56 bytes"));
    }

    #[test]
    fn a_paced_job_has_latencies_after_its_warm_up_and_reads_stamps() {
        // A tenth of the seconds.
        let paced = |seconds| job(true, 4, &format!("--rate 100 --seconds {seconds}"));
        let outcome = reading(&paced("0.000001"), &[2, 2]).outcome().unwrap();
        assert!(outcome.latency.unwrap().p50_us > 1_000_000);
        let outcome = reading(&paced("10"), &[2, 2]).outcome().unwrap();
        assert_eq!(outcome.latency, None);
        let mut unreadable = Reading::new(&paced("10"));
        assert!(unreadable.read([&b"no stamp, but long"[..]].into_iter()).is_err());
    }
}
