//! What a user runs: the producer and the consumer role, with everything that they do.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

use super::raw_loop::PATIENCE;
use super::reading::Window;
use super::task::Task;
use super::{Job, JobKind, Layer, LayersError, Outcome};
use s3mq::CancellationToken;
use s3mq::consumer::{self, Sink};
use s3mq::events::Event;
use s3mq::measure::{PercentileRow, Percentiles, Sample};
use s3mq::producer::{self, Arrival, MAX_BATCH_BYTES, Schedule};
use s3mq_clock::Anchor;
use s3mq_queue::{ConsumerOptions, Lake, Poll, ProducerOptions};

/// Longer than any flood: its batches are cut where they are full.
const NEVER: Duration = Duration::from_secs(3_600);

/// Carries the job through the table of `lake`, which isn't there yet.
pub(super) async fn run(lake: Lake, job: Job) -> Result<Outcome, LayersError> {
    let anchor = Anchor::now();
    let stop = CancellationToken::new();
    let (ready, is_ready) = oneshot::channel();
    let consumer = {
        let (lake, stop, config) = (lake.clone(), stop.clone(), consumer_config(&job, &anchor));
        let mut watch = Watch::of(&job, ready);
        Task::spawn(async move {
            let summary = consumer::run(config, &lake, stop, &mut watch).await?;
            Ok((summary, watch))
        })
    };
    let producer = {
        let config = producer_config(&job, &anchor);
        Task::spawn(async move {
            // The consumer that fails before is waited for, and says why.
            let _ = is_ready.await;
            Ok(producer::run(config, &lake, stop, |_| {}).await?)
        })
    };
    let ((received, watch), sent) = tokio::try_join!(consumer.done(), producer.done())?;
    let counts = (received.received, sent.committed);
    if counts != (job.messages, job.messages) || !received.is_whole() {
        return Err(LayersError::NotWhole {
            layer: Layer::Service.name(),
            detail: format!(
                "{} messages came, {} were committed, {} lost, {} were to be sent",
                received.received,
                sent.committed,
                received.lost(),
                job.messages
            ),
        });
    }
    let latency_us = match job.kind {
        JobKind::Flood { .. } => None,
        JobKind::Paced { .. } => received.latency.map(|latency| (latency.p50_us, latency.p99_us)),
    };
    watch.window.outcome(Layer::Service, &job, latency_us)
}

fn producer_config(job: &Job, anchor: &Anchor) -> producer::Config {
    let messages = job.messages;
    let (schedule, commit_interval, max_batch_bytes) = match job.kind {
        JobKind::Flood { .. } => (Schedule::Flood { messages }, NEVER, job.batch_bytes()),
        JobKind::Paced { rate, commit_interval, .. } => {
            let arrival = Arrival::Uniform;
            (Schedule::Paced { rate, messages, arrival, seed: 0 }, commit_interval, MAX_BATCH_BYTES)
        }
    };
    producer::Config {
        queue: ProducerOptions {
            data_encoding: job.data_encoding,
            checkpoint_interval: 0,
            anchor: anchor.clone(),
            ..ProducerOptions::default()
        },
        schedule,
        grace: PATIENCE,
        commit_interval,
        max_batch_bytes,
        message_size: job.message_size,
        padding: job.padding,
        interval: Duration::from_secs(1),
    }
}

fn consumer_config(job: &Job, anchor: &Anchor) -> consumer::Config {
    // A row each half second of messages, as the bench has it.
    let (log_frequency, warmup) = match job.kind {
        JobKind::Flood { half_a_second, .. } => (half_a_second, Duration::ZERO),
        JobKind::Paced { rate, warmup, .. } => ((rate.per_second() / 2.0) as u64, warmup),
    };
    consumer::Config {
        queue: ConsumerOptions {
            poll: Poll::Fixed { interval: job.poll_interval },
            anchor: anchor.clone(),
            ..ConsumerOptions::default()
        },
        expected_messages: None,
        producers: 1,
        log_frequency,
        warmup,
        wait_timeout: PATIENCE,
        drain_timeout: PATIENCE,
        commit_interval: job.poll_interval,
        interval: Duration::from_secs(1),
        percentiles: Percentiles::default(),
    }
}

/// Sees the first and the last message, and when the consumer is ready.
struct Watch {
    ready: Option<oneshot::Sender<()>>,
    left: u64,
    is_open: bool,
    window: Window,
}

impl Watch {
    fn of(job: &Job, ready: oneshot::Sender<()>) -> Self {
        Self { ready: Some(ready), left: job.messages, is_open: false, window: Window::default() }
    }
}

impl Sink for Watch {
    fn report(&mut self, event: Event) {
        if let (Event::Ready, Some(ready)) = (event, self.ready.take()) {
            let _ = ready.send(());
        }
    }

    fn row(&mut self, _: &PercentileRow) -> io::Result<()> {
        Ok(())
    }

    fn message(&mut self, _: i64, _: i64) -> io::Result<()> {
        if !self.is_open {
            self.is_open = true;
            self.window.open();
        }
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.window.close();
        }
        Ok(())
    }

    fn interval(&mut self, _: i64, _: i64, _: &Sample) -> io::Result<()> {
        Ok(())
    }
}
