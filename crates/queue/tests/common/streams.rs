//! Streams for the tests to send and receive, and what lies in the store for them to damage.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use s3mq_queue::{
    Batch, Consumer, ConsumerOptions, Lake, Notice, Poll, Producer, ProducerEpoch, ProducerOptions,
    QueueError, Received,
};
use tokio::sync::mpsc;

use super::{TestStore, fresh_path};

pub const DEADLINE: Duration = Duration::from_secs(60);

pub fn lake(store: &TestStore, name: &str) -> Lake {
    Lake::new(&store.store, fresh_path(name).parse().unwrap()).unwrap()
}

pub fn options() -> ConsumerOptions {
    ConsumerOptions {
        poll: Poll::Adaptive { expected: Duration::from_millis(20) },
        ..ConsumerOptions::default()
    }
}

pub async fn producer(lake: &Lake, producer_id: i32) -> Producer {
    Producer::open(lake, ProducerOptions { producer_id, ..ProducerOptions::default() }).await.unwrap()
}

pub async fn send(lake: &Lake, producer_id: i32, batches: usize) -> ProducerEpoch {
    let mut producer = producer(lake, producer_id).await;
    for batch in 0..batches {
        producer.append(Batch::from_iter((0..10).map(|n| format!("{batch}.{n}")))).await.unwrap();
    }
    let by = producer.epoch();
    assert_eq!(producer.finish().await.unwrap().messages, batches as u64 * 10);
    by
}

/// Everything up to the `ends`-th end of stream: the messages by producer, and what else came.
pub async fn receive(
    consumer: &mut Consumer,
    ends: usize,
) -> (BTreeMap<ProducerEpoch, Vec<(i64, String)>>, Vec<Received>) {
    let (mut messages, mut others, mut ended) = (BTreeMap::new(), Vec::new(), 0);
    while ended < ends {
        match next(consumer).await.unwrap() {
            Received::Batch(batch) => {
                let stream: &mut Vec<_> = messages.entry(batch.origin.unwrap().by).or_default();
                let texts = batch.messages().map(|message| String::from_utf8(message.to_vec()).unwrap());
                stream.extend(batch.sequences().flatten().copied().zip(texts));
            }
            Received::End(end) => {
                assert_eq!(
                    messages.get(&end.by).map_or(0, Vec::len) as u64,
                    end.count,
                    "count of {:?}",
                    end.by
                );
                ended += 1;
            }
            other => {
                others.push(other);
                // Its stream's count won't be met; the caller looks.
                return (messages, others);
            }
        }
    }
    (messages, others)
}

pub async fn next(consumer: &mut Consumer) -> Result<Received, QueueError> {
    tokio::time::timeout(DEADLINE, consumer.next()).await.expect("the consumer came to something")
}

pub async fn error_of(consumer: &mut Consumer) -> QueueError {
    loop {
        if let Err(error) = next(consumer).await {
            return error;
        }
    }
}

/// A producer, and who hears of its commits.
pub async fn telling(lake: &Lake) -> (Producer, mpsc::UnboundedReceiver<Notice>) {
    let (notices, told) = mpsc::unbounded_channel();
    let options =
        ProducerOptions { checkpoint_interval: 0, notices: Some(notices), ..ProducerOptions::default() };
    (Producer::open(lake, options).await.unwrap(), told)
}

/// Appends batches of ten messages, each a commit of its own.
pub async fn append_one_by_one(
    producer: &mut Producer,
    told: &mut mpsc::UnboundedReceiver<Notice>,
    batches: usize,
) {
    for batch in 0..batches {
        producer.append(Batch::from_iter((0..10).map(|n| format!("{batch}.{n}")))).await.unwrap();
        while !matches!(told.recv().await.unwrap(), Notice::Committed { .. }) {}
    }
}

/// Sends like [`send`], with a version for each batch.
pub async fn send_each(lake: &Lake, batches: usize) -> ProducerEpoch {
    let (mut producer, mut told) = telling(lake).await;
    append_one_by_one(&mut producer, &mut told, batches).await;
    let by = producer.epoch();
    producer.finish().await.unwrap();
    by
}

pub fn assert_in_order(messages: &[(i64, String)]) {
    for (expected, (seq, text)) in messages.iter().enumerate() {
        assert_eq!(
            (*seq as usize, text.as_str()),
            (expected, format!("{}.{}", expected / 10, expected % 10).as_str())
        );
    }
}

pub fn entry(lake: &Lake, version: u64) -> Path {
    Path::from(format!("{}/_delta_log/{version:020}.json", prefix(lake)))
}

pub fn prefix(lake: &Lake) -> String {
    lake.describe().splitn(4, '/').nth(3).unwrap().to_owned()
}

pub async fn put(store: &TestStore, path: &Path, body: &str) {
    store.store.objects().put(path, PutPayload::from(body.to_owned())).await.unwrap();
}

pub async fn data_files(store: &TestStore, lake: &Lake) -> Vec<Path> {
    let prefix = Path::from(prefix(lake));
    let mut files: Vec<_> = store.store.objects().list(Some(&prefix)).try_collect().await.unwrap();
    files.retain(|file| file.location.as_ref().ends_with(".parquet"));
    files.into_iter().map(|file| file.location).collect()
}

pub async fn put_bytes(store: &TestStore, path: &Path, body: impl Into<PutPayload>) {
    store.store.objects().put(path, body.into()).await.unwrap();
}

/// Deletes the entries of these versions, as a cleanup of the log does.
pub async fn clean(store: &TestStore, lake: &Lake, versions: std::ops::Range<u64>) {
    for version in versions {
        store.store.objects().delete(&entry(lake, version)).await.unwrap();
    }
}

/// An entry that adds a data file of another writer: its path as the log has it, and how many rows it says.
pub fn add(path: &str, rows: u64) -> String {
    let stats = format!(r#"{{\"numRecords\":{rows}}}"#);
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":1000,"modificationTime":1,"dataChange":true,"stats":"{stats}"}}}}"#
    )
}

/// The first entry of a table of another writer, with these fields, partitions and properties (JSON).
pub fn table(protocol: &str, fields: &[(&str, &str)], partitions: &str, properties: &str) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, kind)| {
            format!(r#"{{\"name\":\"{name}\",\"type\":\"{kind}\",\"nullable\":true,\"metadata\":{{}}}}"#)
        })
        .collect();
    let schema = format!(r#"{{\"type\":\"struct\",\"fields\":[{}]}}"#, fields.join(","));
    format!(
        "{{\"protocol\":{protocol}}}\n{{\"metaData\":{{\"id\":\"x\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":{partitions},\"configuration\":{properties}}}}}"
    )
}

pub const PLAIN_PROTOCOL: &str = r#"{"minReaderVersion":1,"minWriterVersion":2}"#;
