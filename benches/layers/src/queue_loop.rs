//! The same loop over the queue: its append in place of the PUTs, its tail in place of the GETs.

use super::feed::Feed;
use super::raw_loop::PATIENCE;
use super::reading::Reading;
use super::task::Task;
use super::{Job, Layer, LayersError, Outcome};
use s3mq_clock::Anchor;
use s3mq_queue::{Batch, Consumer, ConsumerOptions, Lake, Poll, Producer, ProducerOptions, Received};

/// Carries the job through the table of `lake`, which isn't there yet.
pub(super) async fn run(lake: Lake, job: Job) -> Result<Outcome, LayersError> {
    let anchor = Anchor::now();
    let producer = ProducerOptions {
        data_encoding: job.data_encoding,
        max_inflight_batches: job.inflight(),
        anchor: anchor.clone(),
        checkpoint_interval: 0,
        ..ProducerOptions::default()
    };
    let producer = Producer::open(&lake, producer).await?;
    let consumer = ConsumerOptions {
        poll: Poll::Fixed { interval: job.poll_interval },
        anchor: anchor.clone(),
        ..ConsumerOptions::default()
    };
    let consumer = Consumer::open(&lake, consumer).await?;
    let reader = Task::spawn(read(consumer, Reading::new(Layer::Queue, &job, &anchor)));
    let writer = Task::spawn(write(producer, job, anchor));
    let (reading, ()) = tokio::try_join!(reader.done(), writer.done())?;
    reading.outcome()
}

async fn write(mut producer: Producer, job: Job, anchor: Anchor) -> Result<(), LayersError> {
    let mut feed = Feed::start(&job, &anchor);
    loop {
        let mut batch = Batch::with_capacity(job.batch_messages() as usize, job.batch_bytes());
        if !feed.next(|payload, due_us| batch.push_with(|values| payload.write(due_us, values))).await {
            break;
        }
        producer.append(batch).await?;
    }
    producer.finish().await?;
    Ok(())
}

/// Reads to the end of the stream, which comes after the window has closed.
async fn read(mut consumer: Consumer, mut reading: Reading) -> Result<Reading, LayersError> {
    loop {
        let Ok(received) = tokio::time::timeout(PATIENCE, consumer.next()).await else {
            return Err(reading.not_whole("nothing came any more"));
        };
        match received? {
            Received::Batch(batch) => reading.read(batch.messages())?,
            Received::End(_) => return Ok(reading),
            Received::Lost(file) => return Err(reading.not_whole(&file.reason)),
        }
    }
}
