//! The raw loop: what the job costs with neither Delta nor Parquet.
//!
//! Its objects are below `_s3mq/`, which nobody else uses, in a directory with the marker of s3mq.
//! A batch is a data object of its messages, one after the other. Index objects are numbered; each names the
//! data objects that were stored since the one before it, a line each. The shape of the pipeline is the
//! queue's (see `queue/producer.rs` and `queue/consumer.rs`), so that what differs is what is carried.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;

use super::clients::Client;
use super::feed::Feed;
use super::reading::Reading;
use super::task::Task;
use super::{Job, Layer, LayersError, Outcome};
use s3mq_clock::{Anchor, Timer, monotonic_ns};
use s3mq_queue::storage::Prefix;

/// A reader to whom nothing came for this long has lost something.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Carries the job below `prefix`, which is empty.
pub(super) async fn run<C: Client>(
    layer: Layer,
    client: C,
    prefix: Prefix,
    job: Job,
) -> Result<Outcome, LayersError> {
    let anchor = Anchor::now();
    let reader =
        Task::spawn(read(client.clone(), prefix.clone(), Reading::new(layer, &job, &anchor), job.clone()));
    let writer = Task::spawn(write(client, prefix, job, anchor));
    let (reading, ()) = tokio::try_join!(reader.done(), writer.done())?;
    reading.outcome()
}

async fn write<C: Client>(client: C, prefix: Prefix, job: Job, anchor: Anchor) -> Result<(), LayersError> {
    let (batches, incoming) = mpsc::channel(1);
    let pipeline = Task::spawn(put(client, prefix, job.inflight(), incoming));
    let mut feed = Feed::start(&job, &anchor);
    loop {
        let mut batch = Vec::with_capacity(job.batch_bytes());
        if !feed.next(|payload, due_us| payload.write(due_us, &mut batch)).await
            || batches.send(Bytes::from(batch)).await.is_err()
        {
            break;
        }
    }
    drop(batches);
    pipeline.done().await
}

/// A data object on its way to being stored; its name.
type Upload = Pin<Box<dyn Future<Output = Result<String, LayersError>> + Send>>;

/// An index object on its way.
type Create = Pin<Box<dyn Future<Output = Result<(), LayersError>> + Send>>;

async fn put<C: Client>(
    client: C,
    prefix: Prefix,
    inflight: usize,
    mut incoming: mpsc::Receiver<Bytes>,
) -> Result<(), LayersError> {
    let mut uploads: FuturesOrdered<Upload> = FuturesOrdered::new();
    let mut stored: Vec<String> = Vec::new();
    let (mut index, mut indexing): (Option<Create>, usize) = (None, 0);
    let (mut data_objects, mut index_objects) = (0u64, 0u64);
    let mut open = true;
    loop {
        if index.is_none() && !stored.is_empty() {
            indexing = stored.len();
            let (client, key) = (client.clone(), index_key(&prefix, index_objects));
            let body = Bytes::from(std::mem::take(&mut stored).join("\n"));
            index = Some(Box::pin(async move { client.create(&key, body).await }));
            index_objects += 1;
        }
        let has_room = uploads.len() + stored.len() + indexing < inflight;
        tokio::select! {
            created = until_done(&mut index), if index.is_some() => {
                created?;
                (index, indexing) = (None, 0);
            }
            Some(name) = uploads.next(), if !uploads.is_empty() => stored.push(name?),
            batch = incoming.recv(), if open && has_room => match batch {
                Some(batch) => {
                    let (client, name) = (client.clone(), format!("data-{data_objects}"));
                    let key = data_key(&prefix, &name);
                    uploads.push_back(Box::pin(async move { client.put(&key, batch).await.map(|()| name) }));
                    data_objects += 1;
                }
                None => open = false,
            },
            else => return Ok(()),
        }
    }
}

async fn until_done(index: &mut Option<Create>) -> Result<(), LayersError> {
    match index {
        Some(index) => index.await,
        None => std::future::pending().await,
    }
}

async fn read<C: Client>(
    client: C,
    prefix: Prefix,
    mut reading: Reading,
    job: Job,
) -> Result<Reading, LayersError> {
    let (slots, mut incoming) = mpsc::channel(job.ahead());
    let message_bytes = job.payload().message_bytes();
    let follower = Task::spawn(follow(client, prefix, job.poll_interval, slots));
    while !reading.is_through() {
        let Ok(slot) = tokio::time::timeout(PATIENCE, incoming.recv()).await else {
            return Err(reading.not_whole("nothing came any more"));
        };
        let Some(slot) = slot else {
            // The follower has failed; it says why.
            return follower.done().await.map(|()| reading);
        };
        let data: Bytes = Task::done(slot).await?;
        let messages = data.chunks_exact(message_bytes);
        if !messages.remainder().is_empty() {
            return Err(reading.not_whole("a data object is cut off"));
        }
        reading.read(messages)?;
    }
    Ok(reading)
}

/// Asks for one index object after the other and has the data of each fetched.
async fn follow<C: Client>(
    client: C,
    prefix: Prefix,
    poll_interval: Duration,
    slots: mpsc::Sender<Task<Bytes>>,
) -> Result<(), LayersError> {
    let (mut next, mut ask_at_ns, mut timer) = (0, 0, Timer::new());
    loop {
        timer.until_ns(ask_at_ns).await;
        let Some(index) = client.get(&index_key(&prefix, next)).await? else {
            ask_at_ns = monotonic_ns() + poll_interval.as_nanos() as u64;
            continue;
        };
        for name in String::from_utf8_lossy(&index).lines() {
            // Room for it first: what is fetched ahead is bounded.
            let Ok(slot) = slots.reserve().await else { return Ok(()) };
            let (client, key) = (client.clone(), data_key(&prefix, name));
            slot.send(Task::spawn(async move {
                let gone =
                    || LayersError::Request { request: format!("GET of {key}"), detail: "it is gone".into() };
                client.get(&key).await?.ok_or_else(gone)
            }));
        }
        next += 1;
        ask_at_ns = 0;
    }
}

fn index_key(prefix: &Prefix, number: u64) -> object_store::path::Path {
    prefix.join(&format!("_s3mq/index/{number:020}"))
}

fn data_key(prefix: &Prefix, name: &str) -> object_store::path::Path {
    prefix.join(&format!("_s3mq/{name}"))
}
