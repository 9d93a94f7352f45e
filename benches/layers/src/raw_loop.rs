//! The raw loop: what the job costs with neither Delta nor Parquet.
//!
//! A data object holds the messages of a batch, one after the other. Index objects are numbered; each names the data
//! objects that were stored since the one before it, a line each. Stages and bounds are those of the queue (`producer.rs`
//! and `consumer.rs` in `crates/queue`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::RemoteHandle;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::PutMode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::clients::Client;
use super::feed::Feed;
use super::job::{Job, Outcome, not_whole, spawn};
use super::reading::Reading;
use s3mq::cli::Failure;
use s3mq_clock::{Timer, monotonic_ns};

/// A reader to whom nothing came for this long has lost something.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Carries the job below the prefix of `client`, which is empty.
pub(super) async fn run(client: Client, job: Job) -> Result<Outcome, Failure> {
    let reader = spawn(read(client.clone(), job.clone()));
    let writer = spawn(write(client, job));
    let (reading, ()) = tokio::try_join!(reader, writer)?;
    reading.outcome()
}

/// Uploads as many batches at once as the queue does; one counts until the index has it.
async fn write(client: Client, job: Job) -> Result<(), Failure> {
    let room = Arc::new(Semaphore::new(job.max_inflight()));
    let (uploads, uploading) = mpsc::channel(job.max_inflight());
    let index = spawn(index(client.clone(), uploading));
    let mut feed = Feed::start(&job);
    let mut batch = Vec::with_capacity(job.batch_bytes());
    let mut number = 0u64;
    while feed.next(|payload, due_us| payload.write(due_us, &mut batch)).await {
        let full = Bytes::from(std::mem::replace(&mut batch, Vec::with_capacity(job.batch_bytes())));
        let (client, name) = (client.clone(), format!("data-{number}"));
        let Ok(place) = room.clone().acquire_owned().await else { break };
        let upload = async move { client.put(&name, full, PutMode::Overwrite).await.map(|()| (name, place)) };
        if uploads.send(spawn(upload)).await.is_err() {
            break;
        }
        number += 1;
    }
    drop(uploads);
    index.await
}

/// A data object on its way: its name, and its place among those.
type Upload = RemoteHandle<Result<(String, OwnedSemaphorePermit), Failure>>;

/// Creates index objects in order, one at a time; each names the data objects that were stored meanwhile.
async fn index(client: Client, mut uploads: mpsc::Receiver<Upload>) -> Result<(), Failure> {
    let max_inflight = uploads.max_capacity();
    let uploads = stream::poll_fn(|context| uploads.poll_recv(context));
    let mut stored = uploads.buffered(max_inflight).ready_chunks(max_inflight);
    let mut number = 0;
    while let Some(stored) = stored.next().await {
        let (names, _places): (Vec<_>, Vec<_>) = stored.into_iter().collect::<Result<_, _>>()?;
        client.put(&index_name(number), names.join("\n").into(), PutMode::Create).await?;
        number += 1;
    }
    Ok(())
}

async fn read(client: Client, job: Job) -> Result<Reading, Failure> {
    let mut reading = Reading::new(&job);
    let mut data = pin!(data(client, &job));
    while !reading.is_through() {
        let Ok(Some(data)) = tokio::time::timeout(IDLE_TIMEOUT, data.next()).await else {
            return Err(not_whole("nothing came any more"));
        };
        let data = data?;
        let messages = data.chunks_exact(job.message_bytes());
        if !messages.remainder().is_empty() {
            return Err(not_whole("a data object is cut off"));
        }
        reading.read(messages)?;
    }
    Ok(reading)
}

/// The data objects in the order of the index, fetched ahead as far as the job allows.
fn data(client: Client, job: &Job) -> impl Stream<Item = Result<Bytes, Failure>> + use<> {
    let poll_ns = job.args.poll_interval().as_nanos() as u64;
    let start = (client.clone(), 0, Timer::new());
    let index_objects = stream::try_unfold(start, move |(client, number, mut timer)| async move {
        let name = index_name(number);
        let index = loop {
            match client.get(&name).await? {
                Some(index) => break index,
                None => timer.until_ns(monotonic_ns() + poll_ns).await,
            }
        };
        let names: Vec<_> = String::from_utf8_lossy(&index).lines().map(|name| Ok(name.to_owned())).collect();
        Ok::<_, Failure>(Some((stream::iter(names), (client, number + 1, timer))))
    });
    let fetch = move |name: String| {
        let client = client.clone();
        spawn(async move {
            let gone = || Failure::runtime(format!("GET of {name} failed: it is gone"));
            client.get(&name).await?.ok_or_else(gone)
        })
    };
    index_objects.try_flatten().map_ok(fetch).try_buffered(job.max_ahead())
}

fn index_name(number: u64) -> String {
    format!("index/{number:020}")
}
