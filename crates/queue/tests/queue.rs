//! What the queue promises, tested on every store.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[macro_use]
mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::TestStore;
use common::streams::*;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use s3mq_queue::storage::Purpose;
use s3mq_queue::{
    Batch, Checkpoint, CheckpointOutcome, Consumer, ConsumerOptions, Lake, Notice, Poll, PreloadOptions,
    Producer, ProducerOptions, QueueError, Received, Start, preload,
};
use tokio::sync::mpsc;

on_every_store!(
    messages_come_as_they_were_sent,
    a_consumer_may_start_before_the_table_exists,
    two_producers_with_one_id_are_two_epochs,
    eight_producers_lose_and_double_nothing,
    consumers_start_where_they_are_told,
    a_gap_in_the_log_is_named,
    cleaned_versions_are_named,
    a_vanished_data_file_is_reported_and_the_rest_comes,
    a_broken_data_file_is_reported_and_the_rest_comes,
    a_broken_log_entry_is_named,
    files_that_are_no_commits_are_passed_over,
    a_version_that_removes_rows_stops_the_queue_unless_told_otherwise,
    a_table_of_unknown_features_is_refused_by_name,
    a_writer_that_changes_the_schema_is_noticed,
    a_producer_whose_log_was_deleted_says_so,
    a_producer_whose_log_was_cleaned_has_lost_nothing,
    bounds_do_not_block_files_larger_than_they_are,
    prefix_encoding_carries_the_same_messages,
    a_dead_table_costs_few_requests_to_watch,
    checkpoints_come_at_their_interval_and_are_counted_apart,
    two_producers_make_each_checkpoint_once,
    a_failing_checkpoint_does_not_fail_the_stream,
    a_checkpointed_table_goes_on_after_its_log_was_cleaned,
    a_checkpoint_follows_one_of_several_parts,
    a_preloaded_table_is_whole_and_goes_on_where_it_ends,
    a_preload_that_is_ended_early_leaves_no_holes,
);

async fn messages_come_as_they_were_sent(store: &TestStore) {
    let lake = lake(store, "plain");
    let by = send(&lake, 7, 25).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let (messages, others) = receive(&mut consumer, 1).await;
    assert!(others.is_empty());
    assert_eq!((by.producer, messages[&by].len()), (7, 250));
    assert_in_order(&messages[&by]);
}

async fn a_consumer_may_start_before_the_table_exists(store: &TestStore) {
    let lake = lake(store, "early");
    for start in [Start::Earliest, Start::Latest] {
        let lake = Lake::new(lake.store(), format!("{}-{start:?}", prefix(&lake)).parse().unwrap()).unwrap();
        let mut consumer = Consumer::open(&lake, ConsumerOptions { start, ..options() }).await.unwrap();
        let (received, by) = tokio::join!(receive(&mut consumer, 1), send(&lake, 0, 5));
        assert_in_order(&received.0[&by]);
        assert_eq!(received.0[&by].len(), 50);
    }
}

async fn two_producers_with_one_id_are_two_epochs(store: &TestStore) {
    let lake = lake(store, "restart");
    let (first, second) = (send(&lake, 3, 4).await, send(&lake, 3, 4).await);
    assert_ne!(first, second);
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let (messages, _) = receive(&mut consumer, 2).await;
    for by in [first, second] {
        assert_eq!(messages[&by].len(), 40);
        assert_in_order(&messages[&by]);
    }
}

async fn eight_producers_lose_and_double_nothing(store: &TestStore) {
    let lake = lake(store, "contended");
    send(&lake, -1, 1).await;
    let producers = (0..8).map(|id| {
        let lake = lake.clone();
        tokio::spawn(async move { send(&lake, id, 15).await })
    });
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let (sent, (messages, others)) =
        tokio::join!(futures::future::join_all(producers), receive(&mut consumer, 9));
    assert!(others.is_empty());
    for by in sent {
        let messages = &messages[&by.unwrap()];
        assert_eq!(messages.len(), 150);
        assert_in_order(messages);
    }
}

async fn consumers_start_where_they_are_told(store: &TestStore) {
    let lake = lake(store, "start");
    send(&lake, 1, 3).await;
    let mut latest =
        Consumer::open(&lake, ConsumerOptions { start: Start::Latest, ..options() }).await.unwrap();
    let from = latest.first_version();
    let second = send(&lake, 2, 3).await;
    let (messages, _) = receive(&mut latest, 1).await;
    assert_eq!(messages.keys().collect::<Vec<_>>(), [&second]);

    let version = ConsumerOptions { start: Start::Version(from), ..options() };
    let mut version = Consumer::open(&lake, version).await.unwrap();
    let (messages, _) = receive(&mut version, 1).await;
    assert_eq!(messages.keys().collect::<Vec<_>>(), [&second]);

    let mut earliest = Consumer::open(&lake, options()).await.unwrap();
    assert_eq!((earliest.first_version(), earliest.missing_history()), (0, None));
    let (messages, _) = receive(&mut earliest, 2).await;
    assert_eq!(messages.len(), 2);
}

async fn a_gap_in_the_log_is_named(store: &TestStore) {
    let lake = lake(store, "gap");
    send(&lake, 0, 1).await;
    for _ in 0..3 {
        send(&lake, 0, 1).await;
    }
    store.store.objects().delete(&entry(&lake, 3)).await.unwrap();
    // Opened at a version: delta-rs itself refuses to open a log with a gap.
    let at = |version| ConsumerOptions { start: Start::Version(version), ..options() };
    let error = match Consumer::open(&lake, at(0)).await {
        Ok(mut consumer) => error_of(&mut consumer).await,
        Err(error) => error,
    };
    assert!(error.to_string().contains('3'), "{error}");
}

async fn cleaned_versions_are_named(store: &TestStore) {
    let lake = lake(store, "cleaned");
    send(&lake, 0, 1).await;
    // Awaits version 3, which will never be its to see.
    let options = ConsumerOptions { start: Start::Latest, ..options() };
    let mut slow = Consumer::open(&lake, options).await.unwrap();
    assert_eq!(slow.first_version(), 3);
    put(store, &entry(&lake, 6), r#"{"commitInfo":{}}"#).await;
    for version in 0..3 {
        store.store.objects().delete(&entry(&lake, version)).await.unwrap();
    }
    let error = error_of(&mut slow).await;
    assert!(matches!(error, QueueError::CleanedAway { ref gone, oldest: 6 } if *gone == (3..=5)), "{error}");
}

async fn loses_one_file_and_goes_on(lake: &Lake, reason: &str) {
    let second = send(lake, 2, 1).await;
    let mut consumer = Consumer::open(lake, options()).await.unwrap();
    let (_, others) = receive(&mut consumer, 2).await;
    match others.as_slice() {
        [Received::Lost(lost)] => {
            assert_eq!((lost.version, lost.rows), (1, Some(10)));
            assert!(lost.reason.contains(reason), "{}", lost.reason);
        }
        other => panic!("{other:?}"),
    }
    // The end of the stream that lost a file, then the second stream whole.
    assert!(matches!(next(&mut consumer).await.unwrap(), Received::End(end) if end.count == 10));
    let (messages, _) = receive(&mut consumer, 1).await;
    assert_eq!(messages[&second].len(), 10);
}

async fn a_vanished_data_file_is_reported_and_the_rest_comes(store: &TestStore) {
    let lake = lake(store, "vanished");
    send(&lake, 1, 1).await;
    store.store.objects().delete(&data_files(store, &lake).await[0]).await.unwrap();
    loses_one_file_and_goes_on(&lake, "no longer there").await;
}

async fn a_broken_data_file_is_reported_and_the_rest_comes(store: &TestStore) {
    let lake = lake(store, "broken-file");
    send(&lake, 1, 1).await;
    put(store, &data_files(store, &lake).await[0], "these are no Parquet bytes").await;
    loses_one_file_and_goes_on(&lake, "").await;
}

async fn a_broken_log_entry_is_named(store: &TestStore) {
    let lake = lake(store, "broken-entry");
    send(&lake, 1, 1).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    put(store, &entry(&lake, 3), "{\"add\": half a line").await;
    let error = error_of(&mut consumer).await;
    assert!(matches!(error, QueueError::BadEntry { version: 3, .. }), "{error}");
}

async fn files_that_are_no_commits_are_passed_over(store: &TestStore) {
    let lake = lake(store, "stray");
    send(&lake, 1, 1).await;
    // Opened before: delta-rs itself stumbles over some of these.
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let mut producer = producer(&lake, 2).await;
    for stray in [
        "00000000000000000009.crc",
        "00000000000000000000.00000000000000000009.compacted.json",
        "_commit_9b2c.json.tmp",
        "00000000000000000009.json.tmp",
        "9.json",
    ] {
        put(store, &Path::from(format!("{}/_delta_log/{stray}", prefix(&lake))), "stray").await;
    }
    receive(&mut consumer, 1).await;
    // Long enough for the idle log to be listed, which must not take a stray file for a version.
    assert!(tokio::time::timeout(Duration::from_secs(3), consumer.next()).await.is_err());
    producer.append(Batch::from_iter(["after"])).await.unwrap();
    let second = producer.epoch();
    producer.finish().await.unwrap();
    assert_eq!(receive(&mut consumer, 1).await.0[&second].len(), 1);
}

async fn a_version_that_removes_rows_stops_the_queue_unless_told_otherwise(store: &TestStore) {
    let lake = lake(store, "remove");
    send(&lake, 1, 1).await;
    let mut strict = Consumer::open(&lake, options()).await.unwrap();
    let mut lenient =
        Consumer::open(&lake, ConsumerOptions { ignore_removes: true, ..options() }).await.unwrap();
    let compacted = r#"{"remove":{"path":"x","dataChange":false}}"#;
    let removed = r#"{"remove":{"path":"x","dataChange":true}}"#;
    put(store, &entry(&lake, 3), compacted).await;
    put(store, &entry(&lake, 4), removed).await;
    let error = error_of(&mut strict).await;
    assert!(matches!(error, QueueError::RowsRemoved { version: 4 }), "{error}");
    put(store, &entry(&lake, 5), r#"{"commitInfo":{"s3mq.end":{"producer":5,"epoch":"67e55044-10b1-426f-9247-bb680e5fe0c8","count":0}}}"#).await;
    receive(&mut lenient, 2).await;
}

async fn a_table_of_unknown_features_is_refused_by_name(store: &TestStore) {
    let lake = lake(store, "features");
    let mut early = Consumer::open(&lake, options()).await.unwrap();
    let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"data\",\"type\":\"binary\",\"nullable\":true,\"metadata\":{}}]}"#;
    let table = format!(
        "{{\"protocol\":{{\"minReaderVersion\":3,\"minWriterVersion\":7,\"readerFeatures\":[\"madeUp\"],\"writerFeatures\":[\"madeUp\"]}}}}\n\
         {{\"metaData\":{{\"id\":\"x\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}}}}}}"
    );
    put(store, &entry(&lake, 0), &table).await;
    let error = error_of(&mut early).await;
    assert!(error.to_string().contains("madeUp"), "{error}");
    let error = Consumer::open(&lake, options()).await.unwrap_err();
    assert!(error.to_string().contains("madeUp"), "{error}");
    let error = Producer::open(&lake, ProducerOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("madeUp"), "{error}");
}

async fn a_writer_that_changes_the_schema_is_noticed(store: &TestStore) {
    let lake = lake(store, "schema");
    send(&lake, 1, 1).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let mut producer = producer(&lake, 2).await;
    let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"other\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;
    let change = format!(
        "{{\"metaData\":{{\"id\":\"x\",\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}}}}}}"
    );
    put(store, &entry(&lake, 3), &change).await;
    producer.append(Batch::from_iter(["x"])).await.unwrap();
    let error = producer.finish().await.unwrap_err();
    assert!(matches!(error, QueueError::Unsupported { action: "write to", .. }), "{error}");
    let error = error_of(&mut consumer).await;
    assert!(matches!(error, QueueError::Unsupported { action: "read", .. }), "{error}");
}

async fn a_producer_whose_log_was_deleted_says_so(store: &TestStore) {
    // After its last batch, or while it goes on.
    for (before, after) in [(3, 0), (2, 2)] {
        let lake = lake(store, "deleted");
        let (mut producer, mut told) = telling(&lake).await;
        append_one_by_one(&mut producer, &mut told, before).await;
        clean(store, &lake, 0..before as u64 + 1).await;
        append_one_by_one(&mut producer, &mut told, after).await;
        let error = producer.finish().await.unwrap_err();
        let last = before as u64;
        assert!(matches!(&error, QueueError::Vanished { gone, .. } if *gone == (1..=last)), "{error}");
        assert!(error.to_string().contains("was deleted or made anew while it ran"), "{error}");
    }
    // Made anew by somebody else meanwhile.
    let lake = lake(store, "deleted-and-made-anew");
    let (mut producer, mut told) = telling(&lake).await;
    append_one_by_one(&mut producer, &mut told, 5).await;
    clean(store, &lake, 0..6).await;
    send(&lake, 2, 1).await;
    let error = producer.finish().await.unwrap_err();
    assert!(matches!(&error, QueueError::Vanished { gone, .. } if *gone == (1..=1)), "{error}");
}

async fn a_producer_whose_log_was_cleaned_has_lost_nothing(store: &TestStore) {
    let lake = lake(store, "cleaned-under-a-producer");
    let (mut producer, mut told) = telling(&lake).await;
    append_one_by_one(&mut producer, &mut told, 4).await;
    s3mq_queue::make_checkpoint(&lake, 3, Default::default()).await.1.unwrap();
    clean(store, &lake, 0..3).await;
    append_one_by_one(&mut producer, &mut told, 1).await;
    assert_eq!(producer.finish().await.unwrap().messages, 50);
}

async fn bounds_do_not_block_files_larger_than_they_are(store: &TestStore) {
    let lake = lake(store, "permits");
    let by = send(&lake, 1, 12).await;
    let narrow = ConsumerOptions { max_inflight_messages: 3, max_inflight_bytes: 10, ..options() };
    let mut consumer = Consumer::open(&lake, narrow).await.unwrap();
    assert_in_order(&receive(&mut consumer, 1).await.0[&by]);
}

async fn prefix_encoding_carries_the_same_messages(store: &TestStore) {
    let lake = lake(store, "prefix");
    let options_of_producer =
        ProducerOptions { data_encoding: s3mq_queue::DataEncoding::Prefix, ..ProducerOptions::default() };
    let mut producer = Producer::open(&lake, options_of_producer).await.unwrap();
    let by = producer.epoch();
    producer.append(Batch::from_iter((0..10).map(|n| format!("0.{n}")))).await.unwrap();
    producer.finish().await.unwrap();
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    assert_in_order(&receive(&mut consumer, 1).await.0[&by]);
}

async fn a_dead_table_costs_few_requests_to_watch(store: &TestStore) {
    let lake = lake(store, "idle");
    send(&lake, 1, 1).await;
    let watched = s3mq_queue::storage::Store::connect(store.store.config().clone()).await.unwrap();
    let lake = Lake::new(&watched, prefix(&lake).parse().unwrap()).unwrap();
    let idle = ConsumerOptions { poll: Poll::Fixed { interval: Duration::from_millis(100) }, ..options() };
    let mut consumer = Consumer::open(&lake, idle).await.unwrap();
    receive(&mut consumer, 1).await;
    let before = watched.requests().total();
    assert!(tokio::time::timeout(Duration::from_secs(2), consumer.next()).await.is_err());
    let asked = watched.requests().total() - before;
    // Twenty intervals: a question each, and the listings of the idle log.
    assert!(asked <= 24, "{asked} requests in 2 s at 100 ms");
}

/// A producer that tells of its commits and checkpoints.
async fn telling_checkpoints(
    lake: &Lake,
    checkpoint_interval: u64,
) -> (Producer, mpsc::UnboundedReceiver<Notice>) {
    let (notices, told) = mpsc::unbounded_channel();
    let options =
        ProducerOptions { checkpoint_interval, notices: Some(notices), ..ProducerOptions::default() };
    (Producer::open(lake, options).await.unwrap(), told)
}

/// Appends batches one by one, each a commit of its own, and finishes; gives what the producer told.
async fn commit_each(
    (mut producer, mut told): (Producer, mpsc::UnboundedReceiver<Notice>),
    batches: usize,
    checkpoint_interval: u64,
) -> Vec<Notice> {
    let mut heard = Vec::new();
    for batch in 0..batches {
        producer.append(Batch::from_iter((0..10).map(|n| format!("{batch}.{n}")))).await.unwrap();
        // Until its commit is told of, and the checkpoint that it made due.
        let (mut committed, mut due) = (false, false);
        while !committed || due {
            let notice = told.recv().await.unwrap();
            match &notice {
                Notice::Committed { version, .. } => {
                    committed = true;
                    due = version % checkpoint_interval == 0;
                }
                Notice::Checkpoint(_) => due = false,
            }
            heard.push(notice);
        }
    }
    assert_eq!(producer.finish().await.unwrap().messages, batches as u64 * 10);
    while let Some(notice) = told.recv().await {
        heard.push(notice);
    }
    heard
}

fn checkpoints(notices: &[Notice]) -> Vec<&Checkpoint> {
    notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Checkpoint(checkpoint) => Some(checkpoint),
            Notice::Committed { .. } => None,
        })
        .collect()
}

/// The versions that have a checkpoint file.
async fn checkpoint_files(store: &TestStore, lake: &Lake) -> BTreeSet<u64> {
    let log = Path::from(format!("{}/_delta_log", prefix(lake)));
    let objects: Vec<_> = store.store.objects().list(Some(&log)).try_collect().await.unwrap();
    let names = objects.iter().filter_map(|object| object.location.filename());
    names
        .filter_map(|name| name.strip_suffix(".checkpoint.parquet"))
        .map(|version| version.parse().unwrap())
        .collect()
}

async fn checkpoints_come_at_their_interval_and_are_counted_apart(store: &TestStore) {
    let lake = lake(store, "checkpoints");
    let counted = s3mq_queue::storage::Store::connect(store.store.config().clone()).await.unwrap();
    let counted_lake = Lake::new(&counted, prefix(&lake).parse().unwrap()).unwrap();
    let notices = commit_each(telling_checkpoints(&counted_lake, 5).await, 12, 5).await;

    // Version 0 is the table, the last one the end of stream.
    let commits: Vec<_> = notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Committed { version, took_us } => Some((*version, *took_us > 0)),
            Notice::Checkpoint(_) => None,
        })
        .collect();
    assert_eq!(commits, (1..=13).map(|version| (version, true)).collect::<Vec<_>>());
    let made = checkpoints(&notices);
    assert_eq!(made.iter().map(|checkpoint| checkpoint.version).collect::<Vec<_>>(), [5, 10]);
    assert!(made.iter().all(|checkpoint| checkpoint.outcome == CheckpointOutcome::Made), "{made:?}");
    assert_eq!(checkpoint_files(store, &lake).await, BTreeSet::from([5, 10]));

    for checkpoint in made {
        assert!(checkpoint.requests.attempts(Purpose::Checkpoint) >= 2, "{checkpoint:?}");
        assert!(checkpoint.requests.attempts(Purpose::CommitGetHit) > 0, "{checkpoint:?}");
    }
    // The producer's own requests are its data and its commits, and what opening the table took.
    let requests = counted.requests();
    assert_eq!((requests.attempts(Purpose::DataPut), requests.attempts(Purpose::CommitPut)), (12, 14));
    let own = counted.requests().rows;
    assert!(
        own.iter().all(|row| row.purpose != Purpose::Checkpoint || row.bytes_sent == 0),
        "no checkpoint among {own:?}"
    );

    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    assert!(consumer.cold_open().is_some());
    let (messages, _) = receive(&mut consumer, 1).await;
    assert_in_order(messages.values().next().unwrap());
}

async fn two_producers_make_each_checkpoint_once(store: &TestStore) {
    let lake = lake(store, "checkpoints-of-two");
    let (one, other) = (telling_checkpoints(&lake, 4).await, telling_checkpoints(&lake, 4).await);
    let (first, second) = tokio::join!(commit_each(one, 10, 4), commit_each(other, 10, 4));
    let mut versions: Vec<_> = checkpoints(&first)
        .iter()
        .chain(&checkpoints(&second))
        .map(|checkpoint| checkpoint.version)
        .collect();
    versions.sort_unstable();
    // Versions 1 to 22: the commits of both and their ends.
    assert_eq!(versions, [4, 8, 12, 16, 20]);
}

async fn a_failing_checkpoint_does_not_fail_the_stream(store: &TestStore) {
    let lake = lake(store, "failing-checkpoint");
    send(&lake, 1, 1).await;
    let (producer, told) = telling_checkpoints(&lake, 4).await;
    let by = producer.epoch();
    // What says that it is the checkpoint to start from is none.
    let broken = Path::from(format!("{}/_delta_log/{:020}.checkpoint.parquet", prefix(&lake), 2));
    put(store, &broken, "no Parquet").await;
    let notices = commit_each((producer, told), 6, 4).await;
    let outcomes: Vec<_> =
        checkpoints(&notices).iter().map(|checkpoint| (checkpoint.version, checkpoint.outcome)).collect();
    assert_eq!(outcomes, [(4, CheckpointOutcome::Failed), (8, CheckpointOutcome::Failed)]);

    store.store.objects().delete(&broken).await.unwrap();
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    assert_in_order(&receive(&mut consumer, 2).await.0[&by]);
}

async fn a_checkpointed_table_goes_on_after_its_log_was_cleaned(store: &TestStore) {
    let lake = lake(store, "cleaned-checkpoint");
    commit_each(telling_checkpoints(&lake, 5).await, 7, 5).await;
    for version in 0..5 {
        store.store.objects().delete(&entry(&lake, version)).await.unwrap();
    }
    // Without the checkpoint nobody could tell the table's schema any more.
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    assert_eq!((consumer.first_version(), consumer.missing_history()), (5, Some(0..=4)));
    let second = send(&lake, 2, 3).await;
    loop {
        match next(&mut consumer).await.unwrap() {
            Received::End(end) if end.by == second => break,
            Received::Batch(_) | Received::End(_) => {}
            lost @ Received::Lost(_) => panic!("{lost:?}"),
        }
    }
}

fn ageing(versions: u64, checkpoint_interval: u64) -> PreloadOptions {
    PreloadOptions {
        versions,
        checkpoint_interval,
        append_to_existing: false,
        anchor: s3mq_clock::Anchor::now(),
    }
}

/// Fewer requests may be on their way at once than the checkpoint before has parts.
async fn a_checkpoint_follows_one_of_several_parts(store: &TestStore) {
    let lake = lake(store, "parts");
    send_each(&lake, 11).await;
    s3mq_queue::make_checkpoint(&lake, 10, Default::default()).await.1.unwrap();
    let log = |name: String| Path::from(format!("{}/_delta_log/{name}", prefix(&lake)));
    let whole = log(format!("{:020}.checkpoint.parquet", 10));
    let file = store.store.objects().get(&whole).await.unwrap().bytes().await.unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    let rows = arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap();
    for part in 0..3 {
        let slice = rows
            .slice(part * rows.num_rows() / 3, (part + 1) * rows.num_rows() / 3 - part * rows.num_rows() / 3);
        let mut writer = ArrowWriter::try_new(Vec::new(), slice.schema(), None).unwrap();
        writer.write(&slice).unwrap();
        let name = format!("{:020}.checkpoint.{:010}.{:010}.parquet", 10, part + 1, 3);
        put_bytes(store, &log(name), writer.into_inner().unwrap()).await;
    }
    store.store.objects().delete(&whole).await.unwrap();
    let hint = format!(r#"{{"version":10,"size":{},"parts":3}}"#, rows.num_rows());
    put(store, &log("_last_checkpoint".to_owned()), &hint).await;
    clean(store, &lake, 0..10).await;
    send_each(&lake, 3).await;
    let made = tokio::time::timeout(DEADLINE, s3mq_queue::make_checkpoint(&lake, 14, Default::default()));
    made.await.expect("it waits for itself").1.unwrap();
    let hint = store.store.objects().get(&log("_last_checkpoint".to_owned())).await.unwrap();
    let hint: serde_json::Value = serde_json::from_slice(&hint.bytes().await.unwrap()).unwrap();
    assert_eq!((hint["version"].as_u64(), hint["numOfAddFiles"].as_u64()), (Some(14), Some(13)), "{hint}");
}

async fn a_preloaded_table_is_whole_and_goes_on_where_it_ends(store: &TestStore) {
    let lake = lake(store, "preloaded");
    let mut heard = Vec::new();
    let message = || Some(b"1724403133.066217".to_vec());
    let done = preload(&lake, ageing(25, 10), message, |versions| heard.push(versions)).await.unwrap();
    assert_eq!((done.last_version, done.checkpoints), (25, 3));
    assert_eq!(heard, (1..=25).collect::<Vec<_>>());
    assert_eq!(checkpoint_files(store, &lake).await, BTreeSet::from([10, 20, 25]));
    // On a table that is there it adds to it.
    let done = preload(&lake, ageing(5, 0), message, |_| {}).await.unwrap();
    assert_eq!((done.last_version, done.checkpoints), (30, 0));

    let by = send(&lake, 1, 2).await;
    let after = ConsumerOptions { start: Start::Version(31), ..options() };
    let mut consumer = Consumer::open(&lake, after).await.unwrap();
    let (messages, _) = receive(&mut consumer, 1).await;
    assert_eq!(messages.keys().copied().collect::<Vec<_>>(), [by]);
    let mut whole = Consumer::open(&lake, options()).await.unwrap();
    let (messages, _) = receive(&mut whole, 1).await;
    assert_eq!(messages.values().map(Vec::len).sum::<usize>(), 25 + 5 + 20);
}

async fn a_preload_that_is_ended_early_leaves_no_holes(store: &TestStore) {
    let lake = lake(store, "preload-ended");
    let mut left = 33;
    let message = || {
        left -= 1;
        (left >= 0).then(|| b"1724403133.066217".to_vec())
    };
    let done = preload(&lake, ageing(100, 0), message, |_| {}).await.unwrap();
    assert_eq!(done.last_version, 33);
    for version in 0..=33 {
        assert!(store.store.objects().head(&entry(&lake, version)).await.is_ok(), "version {version}");
    }
    assert!(store.store.objects().head(&entry(&lake, 34)).await.is_err());
}
