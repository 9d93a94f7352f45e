//! What reading a message is, for the raw and the queue loop, and the window in which it is measured.

use super::{Job, JobKind, Layer, LayersError, Outcome};
use s3mq::consumer::due_us;
use s3mq::machine;
use s3mq::measure::Latencies;
use s3mq_clock::Anchor;

/// The clock is read at least once for this many messages of a batch, as the consumer role does.
const MESSAGES_A_CLOCK_READ: usize = 1_000;

/// From the first delivery to the last message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    opened: Option<Moment>,
    closed: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    ns: u64,
    cpu_seconds: f64,
}

impl Moment {
    fn now() -> Self {
        Self { ns: s3mq_clock::monotonic_ns(), cpu_seconds: machine::cpu_seconds() }
    }
}

impl Window {
    pub(super) fn open(&mut self) {
        self.opened = Some(Moment::now());
    }

    pub(super) fn close(&mut self) {
        self.closed = Some(Moment::now());
    }

    /// What it came to, in a job that was carried whole.
    pub(super) fn outcome(
        &self,
        layer: Layer,
        job: &Job,
        latency_us: Option<(u64, u64)>,
    ) -> Result<Outcome, LayersError> {
        let messages = job.messages.saturating_sub(job.batch_messages());
        match (self.opened, self.closed) {
            (Some(opened), Some(closed)) if closed.ns > opened.ns && messages > 0 => Ok(Outcome {
                seconds: (closed.ns - opened.ns) as f64 / 1e9,
                messages,
                cpu_seconds: closed.cpu_seconds - opened.cpu_seconds,
                latency_us,
            }),
            _ => Err(LayersError::NotWhole {
                layer: layer.name(),
                detail: "everything came at once; there is no window to measure".to_owned(),
            }),
        }
    }
}

/// Reads messages: counts them and their bytes and, in a paced job, takes each one's latency from its stamp.
#[derive(Debug)]
pub(super) struct Reading {
    layer: Layer,
    job: Job,
    anchor: Anchor,
    window: Window,
    messages: u64,
    bytes: u64,
    warm_from_us: Option<i64>,
    latencies: Latencies,
}

impl Reading {
    pub(super) fn new(layer: Layer, job: &Job, anchor: &Anchor) -> Self {
        Self {
            layer,
            job: job.clone(),
            anchor: anchor.clone(),
            window: Window::default(),
            messages: 0,
            bytes: 0,
            warm_from_us: None,
            latencies: Latencies::default(),
        }
    }

    /// Reads the messages of a batch that has just been delivered.
    pub(super) fn read<'a>(&mut self, messages: impl Iterator<Item = &'a [u8]>) -> Result<(), LayersError> {
        if self.messages == 0 {
            self.window.open();
        }
        match self.job.kind {
            JobKind::Flood { .. } => {
                for message in messages {
                    self.messages += 1;
                    self.bytes += message.len() as u64;
                }
            }
            JobKind::Paced { warmup, .. } => {
                let mut now_us = 0;
                for (index, message) in messages.enumerate() {
                    if index % MESSAGES_A_CLOCK_READ == 0 {
                        now_us = self.anchor.now_us();
                    }
                    let Some(due_us) = due_us(message) else {
                        return Err(self.not_whole("a message has no readable stamp"));
                    };
                    let warm_from_us = *self.warm_from_us.get_or_insert(due_us + warmup.as_micros() as i64);
                    if due_us >= warm_from_us {
                        self.latencies.record(now_us - due_us, 1);
                    }
                    self.messages += 1;
                    self.bytes += message.len() as u64;
                }
            }
        }
        if self.is_through() {
            self.window.close();
        }
        Ok(())
    }

    /// Whether as many messages came as were to be sent.
    pub(super) fn is_through(&self) -> bool {
        self.messages >= self.job.messages
    }

    /// What it came to.
    ///
    /// # Errors
    /// When not exactly what was sent has come.
    pub(super) fn outcome(self) -> Result<Outcome, LayersError> {
        let bytes = self.job.messages * self.job.payload().message_bytes() as u64;
        if (self.messages, self.bytes) != (self.job.messages, bytes) {
            return Err(self.not_whole(&format!(
                "{} messages of {} bytes in all came, {} of {bytes} were sent",
                self.messages, self.bytes, self.job.messages
            )));
        }
        let percentile = |percentile| self.latencies.percentile_us(percentile);
        self.window.outcome(self.layer, &self.job, percentile(50.0).zip(percentile(99.0)))
    }

    /// The error that the layer is not whole.
    pub(super) fn not_whole(&self, detail: &str) -> LayersError {
        LayersError::NotWhole { layer: self.layer.name(), detail: detail.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use s3mq::producer::Padding;
    use s3mq_queue::DataEncoding;

    fn job(kind: JobKind) -> Job {
        Job {
            kind,
            messages: 4,
            message_size: None,
            padding: Padding::Text,
            data_encoding: DataEncoding::Plain,
            poll_interval: Duration::from_millis(1),
        }
    }

    fn flood() -> Job {
        job(JobKind::Flood { batch_messages: 2, half_a_second: 1 })
    }

    const MESSAGE: &[u8] = b"1724403133.066217";

    fn reading(job: &Job, batches: &[usize]) -> Reading {
        let mut reading = Reading::new(Layer::Raw, job, &Anchor::now());
        for &count in batches {
            reading.read(std::iter::repeat_n(MESSAGE, count)).unwrap();
        }
        reading
    }

    #[test]
    fn what_came_whole_is_a_figure_without_the_batch_that_opened_the_window() {
        let outcome = reading(&flood(), &[2, 2]).outcome().unwrap();
        assert_eq!((outcome.messages, outcome.latency_us), (2, None));
        assert!(outcome.seconds > 0.0);
    }

    #[test]
    fn what_is_not_whole_is_no_figure() {
        assert!(!reading(&flood(), &[2, 1]).is_through());
        for batches in [&[2, 1][..], &[2, 3], &[]] {
            let error = reading(&flood(), batches).outcome().unwrap_err();
            assert!(matches!(error, LayersError::NotWhole { layer: "raw", .. }), "{error}");
        }
    }

    #[test]
    fn messages_of_another_length_are_no_figure() {
        let mut reading = Reading::new(Layer::Raw, &flood(), &Anchor::now());
        reading.read([MESSAGE, MESSAGE, MESSAGE, b"short"].into_iter()).unwrap();
        assert!(reading.outcome().unwrap_err().to_string().contains("56 bytes"));
    }

    #[test]
    fn a_paced_job_has_latencies_after_its_warm_up_and_reads_stamps() {
        let rate = "100".parse().unwrap();
        let paced = |warmup| job(JobKind::Paced { rate, commit_interval: Duration::from_millis(20), warmup });
        let outcome = reading(&paced(Duration::ZERO), &[2, 2]).outcome().unwrap();
        assert!(outcome.latency_us.unwrap().0 > 1_000_000);
        let outcome = reading(&paced(Duration::from_secs(1)), &[2, 2]).outcome().unwrap();
        assert_eq!(outcome.latency_us, None);
        let mut unreadable = Reading::new(Layer::Queue, &paced(Duration::ZERO), &Anchor::now());
        assert!(unreadable.read([&b"no stamp, but long"[..]].into_iter()).is_err());
    }
}
