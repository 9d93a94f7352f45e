//! The same loop over the queue: its append in place of the PUTs, its tail in place of the GETs.

use super::feed::Feed;
use super::job::{Job, Outcome, not_whole, spawn};
use super::raw_loop::IDLE_TIMEOUT;
use super::reading::Reading;
use s3mq::cli::Failure;
use s3mq_queue::{Batch, Consumer, Lake, Producer, ProducerOptions, Received};

/// Carries the job through the table of `lake`, which isn't there yet.
pub(super) async fn run(lake: Lake, job: Job) -> Result<Outcome, Failure> {
    let options = ProducerOptions {
        data_encoding: job.args.message.data_encoding,
        anchor: job.anchor.clone(),
        checkpoint_interval: 0,
        ..ProducerOptions::default()
    };
    let producer = Producer::open(&lake, options).await?;
    let consumer = Consumer::open(&lake, job.consumer_options()).await?;
    let reader = spawn(read(consumer, Reading::new(&job)));
    let writer = spawn(write(producer, job));
    let (reading, ()) = tokio::try_join!(reader, writer)?;
    reading.outcome()
}

async fn write(mut producer: Producer, job: Job) -> Result<(), Failure> {
    let mut feed = Feed::start(&job);
    let empty = || Batch::with_capacity(job.batch_messages() as usize, job.batch_bytes());
    let mut batch = empty();
    while feed.next(|payload, due_us| batch.push_with(|values| payload.write(due_us, values))).await {
        producer.append(std::mem::replace(&mut batch, empty())).await?;
    }
    producer.finish().await?;
    Ok(())
}

/// Reads to the end of the stream, which comes after the window has closed.
async fn read(mut consumer: Consumer, mut reading: Reading) -> Result<Reading, Failure> {
    loop {
        let Ok(received) = tokio::time::timeout(IDLE_TIMEOUT, consumer.next()).await else {
            return Err(not_whole("nothing came any more"));
        };
        match received? {
            Received::Batch(batch) => reading.read(batch.messages())?,
            Received::End(_) => return Ok(reading),
            Received::Lost(file) => return Err(not_whole(file.reason)),
        }
    }
}
