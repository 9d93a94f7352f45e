//! What a user runs: the producer and the consumer role, with everything that they do.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

use super::job::{Job, Outcome, not_whole, spawn};
use super::raw_loop::IDLE_TIMEOUT;
use super::reading::Reading;
use s3mq::CancellationToken;
use s3mq::cli::Failure;
use s3mq::consumer::{self, Sink};
use s3mq::events::Event;
use s3mq::measure::{PercentileRow, Percentiles, Sample};
use s3mq::producer::{self, Arrival, MAX_BATCH_BYTES, Schedule};
use s3mq_queue::{Lake, ProducerOptions};

/// Longer than any flood: its batches are cut where they are full.
const NEVER: Duration = Duration::from_secs(3_600);

/// Carries the job through the table of `lake`, which isn't there yet.
pub(super) async fn run(lake: Lake, job: Job) -> Result<Outcome, Failure> {
    let stop = CancellationToken::new();
    let (ready, is_ready) = oneshot::channel();
    let (table, stop_too, config) = (lake.clone(), stop.clone(), consumer_config(&job));
    let mut watch = Watch { ready: Some(ready), reading: Reading::new(&job) };
    let consumer = spawn(async move {
        let summary = consumer::run(config, &table, stop_too, &mut watch).await?;
        Ok::<_, Failure>((summary, watch.reading))
    });
    let config = producer_config(&job);
    let producer = spawn(async move {
        // The consumer that fails before is waited for, and says why.
        let _ = is_ready.await;
        producer::run(config, &lake, stop, |_| {}).await.map_err(Failure::from)
    });
    let ((received, reading), sent) = tokio::try_join!(consumer, producer)?;
    let counts = (received.received, sent.committed);
    if counts != (job.messages, job.messages) || !received.is_whole() {
        return Err(not_whole(format!(
            "{} messages came, {} were committed, {} lost, {} were to be sent",
            received.received,
            sent.committed,
            received.lost(),
            job.messages
        )));
    }
    reading.window(received.latency.filter(|_| job.is_paced))
}

fn producer_config(job: &Job) -> producer::Config {
    let (args, messages) = (&job.args, job.messages);
    let (schedule, commit_interval, max_batch_bytes) = if job.is_paced {
        let schedule = Schedule::Paced { rate: args.rate, messages, arrival: Arrival::Uniform, seed: 0 };
        (schedule, args.commit_interval(), MAX_BATCH_BYTES)
    } else {
        (Schedule::Flood { messages }, NEVER, job.batch_bytes())
    };
    producer::Config {
        queue: ProducerOptions {
            data_encoding: args.message.data_encoding,
            checkpoint_interval: 0,
            anchor: job.anchor.clone(),
            ..ProducerOptions::default()
        },
        schedule,
        grace: IDLE_TIMEOUT,
        commit_interval,
        max_batch_bytes,
        message_size: args.message.message_size,
        padding: args.message.payload,
        interval: Duration::from_secs(1),
    }
}

fn consumer_config(job: &Job) -> consumer::Config {
    consumer::Config {
        queue: job.consumer_options(),
        expected_messages: None,
        producers: 1,
        // A row each half second or so, as in a bench.
        log_frequency: (job.messages as f64 / job.args.seconds.as_f64() / 2.0).max(1.0) as u64,
        warmup: if job.is_paced { job.args.warmup() } else { Duration::ZERO },
        measured: None,
        wait_timeout: IDLE_TIMEOUT,
        drain_timeout: IDLE_TIMEOUT,
        commit_interval: job.args.poll_interval(),
        interval: Duration::from_secs(1),
        percentiles: Percentiles::default(),
    }
}

/// Sees the first and the last message, and when the consumer is ready.
struct Watch {
    ready: Option<oneshot::Sender<()>>,
    reading: Reading,
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
        self.reading.delivered();
        self.reading.count(1);
        Ok(())
    }

    fn interval(&mut self, _: i64, _: i64, _: &Sample) -> io::Result<()> {
        Ok(())
    }
}
