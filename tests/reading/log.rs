//! Entries that can't be read, checkpoints that are stale or half-written, and what doesn't belong into a log.

use std::time::Duration;

use object_store::path::Path;
use s3mq_queue::storage::{Purpose, Store};
use s3mq_queue::{
    Batch, Consumer, ConsumerOptions, Lake, Poll, PreloadOptions, Producer, ProducerOptions, QueueError,
    Received, Start, make_checkpoint, preload,
};

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    entries_that_cannot_be_parsed_are_named,
    an_entry_of_many_megabytes_is_read,
    entries_without_rows_or_commit_info_are_passed,
    a_gap_is_named_at_open_too,
    a_beginning_that_is_missing_is_named,
    a_stale_or_broken_hint_of_the_last_checkpoint_is_no_hindrance,
    a_broken_checkpoint_of_a_whole_log_is_no_hindrance,
    a_cleaned_log_without_its_checkpoint_is_refused,
    strays_in_the_log_are_neither_versions_nor_hindrances,
    a_table_that_was_made_anew_is_noticed,
    requests_per_version_do_not_grow_with_the_table,
    no_checkpoint_is_made_that_nobody_asked_for,
);

fn log_file(lake: &Lake, name: &str) -> Path {
    Path::from(format!("{}/_delta_log/{name}", prefix(lake)))
}

async fn entries_that_cannot_be_parsed_are_named(store: &TestStore) {
    let broken: [&[u8]; 9] = [
        b"\x00\x01\xfe\xff garbage \x80",
        b"{\"add\":{\"path\":\"part-1.parq",
        b"",
        b" \n\n",
        b"{\"commitInfo\":{\"operation\":\"\xff\xfe\"}}",
        b"[1,2]",
        b"{\"add\":{\"path\":\"no-size.parquet\"}}",
        b"{\"add\":{\"path\":7,\"size\":7}}",
        b"{\"commitInfo\":{}}\n{\"add\":{\"path\":\"%ff\",\"size\":7,\"dataChange\":true}}",
    ];
    for bytes in broken {
        let text = String::from_utf8_lossy(bytes);
        let lake = lake(store, "unparsable");
        send(&lake, 0, 1).await;
        let mut early = Consumer::open(&lake, options()).await.unwrap();
        put_bytes(store, &entry(&lake, 3), bytes.to_vec()).await;
        let error = error_of(&mut early).await;
        assert!(matches!(error, QueueError::BadEntry { version: 3, .. }), "{text}: {error}");
        // Whoever opens the table later learns it at once or when it comes to it, and by the version's number.
        let error = match Consumer::open(&lake, options()).await {
            Ok(mut late) => error_of(&mut late).await,
            Err(error) => error,
        };
        assert!(matches!(error, QueueError::BadEntry { version: 3, .. }), "{text}: {error}");
    }
}

async fn an_entry_of_many_megabytes_is_read(store: &TestStore) {
    let lake = lake(store, "huge-entry");
    send(&lake, 0, 1).await;
    let huge = format!(r#"{{"commitInfo":{{"userMetadata":"{}"}}}}"#, "x".repeat(12 << 20));
    put(store, &entry(&lake, 3), &huge).await;
    let by = send(&lake, 1, 2).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let (messages, others) = receive(&mut consumer, 2).await;
    assert!(others.is_empty());
    assert_in_order(&messages[&by]);
}

async fn entries_without_rows_or_commit_info_are_passed(store: &TestStore) {
    let lake = lake(store, "empty-commits");
    send(&lake, 0, 1).await;
    for (version, text) in [
        (3, r#"{"commitInfo":{"operation":"WRITE"}}"#),
        (4, r#"{"txn":{"appId":"x","version":1}}"#),
        (5, r#"{"somethingNew":{"a":1}}"#),
        (6, r#"{}"#),
    ] {
        put(store, &entry(&lake, version), text).await;
    }
    let by = send(&lake, 1, 2).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    assert_in_order(&receive(&mut consumer, 2).await.0[&by]);
}

async fn a_gap_is_named_at_open_too(store: &TestStore) {
    let lake = lake(store, "gap-at-open");
    send(&lake, 0, 1).await;
    send(&lake, 0, 1).await;
    clean(store, &lake, 3..4).await;
    let names_it =
        |error: &QueueError| matches!(error, QueueError::Gap { missing, next: 4 } if *missing == (3..=3));
    let error = match Consumer::open(&lake, options()).await {
        Ok(mut consumer) => error_of(&mut consumer).await,
        Err(error) => error,
    };
    assert!(names_it(&error), "{error}");
    let error = Producer::open(&lake, ProducerOptions::default()).await.unwrap_err();
    assert!(names_it(&error), "{error}");
}

async fn a_beginning_that_is_missing_is_named(store: &TestStore) {
    for (gone, said) in [(0..1, "version 0 is missing, while 1 exists"), (0..3, "versions 0-2 are missing")] {
        let lake = lake(store, "no-beginning");
        send_each(&lake, 3).await;
        clean(store, &lake, gone.clone()).await;
        for start in [Start::Earliest, Start::Latest, Start::Version(4)] {
            let error = Consumer::open(&lake, ConsumerOptions { start, ..options() }).await.unwrap_err();
            let names_it = matches!(&error, QueueError::Gap { missing, next }
                if *missing == (0..=gone.end - 1) && *next == gone.end);
            assert!(names_it && error.is_loss(), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

/// A table of versions 0 to 4, with the checkpoint of version 2.
async fn checkpointed(store: &TestStore, name: &str) -> Lake {
    let lake = lake(store, name);
    send(&lake, 0, 1).await;
    make_checkpoint(&lake, 2, Default::default()).await.1.unwrap();
    send(&lake, 0, 1).await;
    lake
}

/// Whether the table still takes messages and gives all of them.
async fn works(lake: &Lake, streams: usize, about: &str) {
    let producer = Producer::open(lake, ProducerOptions::default()).await;
    let mut producer = producer.unwrap_or_else(|error| panic!("{about}: {error}"));
    producer.append(Batch::from_iter(["0.0"])).await.unwrap();
    let by = producer.epoch();
    producer.finish().await.unwrap();
    let consumer = Consumer::open(lake, options()).await;
    let mut consumer = consumer.unwrap_or_else(|error| panic!("{about}: {error}"));
    let (messages, others) = receive(&mut consumer, streams + 1).await;
    assert_eq!((messages[&by].len(), others.len()), (1, 0), "{about}");
}

async fn a_stale_or_broken_hint_of_the_last_checkpoint_is_no_hindrance(store: &TestStore) {
    for hint in [
        "not JSON",
        "",
        "{\"version\":",
        r#"{"version":9999,"size":7}"#,
        r#"{"version":3,"size":7}"#,
        r#"{"version":1,"size":7}"#,
        r#"{"version":2,"size":7,"parts":3}"#,
        r#"{"version":-1,"size":-7}"#,
    ] {
        let lake = checkpointed(store, "stale-hint").await;
        put(store, &log_file(&lake, "_last_checkpoint"), hint).await;
        works(&lake, 2, hint).await;
    }
}

async fn a_broken_checkpoint_of_a_whole_log_is_no_hindrance(store: &TestStore) {
    let name = format!("{:020}.checkpoint.parquet", 2);
    let part = |part: u32| format!("{:020}.checkpoint.{part:010}.0000000002.parquet", 4);
    let whole = checkpointed(store, "whole-checkpoint").await;
    let file = store.store.objects();
    let file = object_store::ObjectStoreExt::get(file, &log_file(&whole, &name)).await.unwrap();
    let file = file.bytes().await.unwrap();
    for (about, name, bytes) in [
        ("cut off", name.clone(), file[..file.len() / 2].to_vec()),
        ("empty", name.clone(), vec![]),
        ("no Parquet", name.clone(), b"no Parquet bytes at all, but some of them".to_vec()),
        ("one part of two", part(1), file.to_vec()),
    ] {
        let lake = checkpointed(store, "broken-checkpoint").await;
        put_bytes(store, &log_file(&lake, &name), bytes).await;
        works(&lake, 2, about).await;
    }
}

async fn a_cleaned_log_without_its_checkpoint_is_refused(store: &TestStore) {
    let lake = checkpointed(store, "cleaned-blind").await;
    put(store, &log_file(&lake, &format!("{:020}.checkpoint.parquet", 2)), "no Parquet").await;
    clean(store, &lake, 0..2).await;
    // Its schema and what it asks of readers are known to nobody any more.
    let error = Consumer::open(&lake, options()).await.unwrap_err();
    assert!(matches!(error, QueueError::Table { action: "open", .. }), "{error}");
    assert!(error.to_string().contains("versions 0-1 are missing"), "{error}");
    let error = Producer::open(&lake, ProducerOptions::default()).await.unwrap_err();
    assert!(matches!(error, QueueError::Table { action: "open", .. }), "{error}");
}

async fn strays_in_the_log_are_neither_versions_nor_hindrances(store: &TestStore) {
    let lake = lake(store, "strays");
    send(&lake, 1, 1).await;
    let mut early = Consumer::open(&lake, options()).await.unwrap();
    let whole = format!("{:020}.json", 9);
    for stray in [
        "00000000000000000009.crc",
        "00000000000000000000.00000000000000000002.compacted.json",
        "_commit_9b2c.json.tmp",
        ".s3-optimization-0",
        "9.json",
        "notes.txt",
        // A copy that somebody kept.
        &format!("backup/{whole}"),
        &format!("_staged_commits/{:020}.8b1a7c57-3b6a-4cf5-8d5b-6a4bd6bd1f2e.json", 9),
        &format!("000/{whole}"),
    ] {
        put(store, &log_file(&lake, stray), "stray").await;
    }
    receive(&mut early, 1).await;
    // Long enough for the silence to be looked into, which must not take a stray file for a version.
    assert!(tokio::time::timeout(Duration::from_secs(5), early.next()).await.is_err());
    works(&lake, 1, "with strays").await;
    assert_eq!(receive(&mut early, 1).await.0.len(), 1);
}

async fn a_table_that_was_made_anew_is_noticed(store: &TestStore) {
    let lake = lake(store, "anew");
    send_each(&lake, 3).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    receive(&mut consumer, 1).await;
    clean(store, &lake, 0..5).await;
    send(&lake, 2, 1).await;
    // Its versions 0 to 2 are behind the consumer, which would wait for version 5 in silence.
    let error = error_of(&mut consumer).await;
    assert!(matches!(error, QueueError::MadeAnew { known: 4, .. }), "{error}");
}

async fn requests_per_version_do_not_grow_with_the_table(store: &TestStore) {
    const COMMITS: usize = 20;
    let mut asked = Vec::new();
    for versions in [100, 5_000] {
        let lake = lake(store, "aged");
        let ageing = PreloadOptions {
            versions,
            checkpoint_interval: 0,
            append_to_existing: false,
            anchor: s3mq_clock::Anchor::now(),
        };
        preload(&lake, ageing, || Some(b"1".to_vec()), |_| {}).await.unwrap();
        make_checkpoint(
            &lake,
            versions,
            s3mq_queue::CheckpointOptions { requests_at_once: 16, ..Default::default() },
        )
        .await
        .1
        .unwrap();
        let (mut producer, mut told) = telling(&lake).await;
        append_one_by_one(&mut producer, &mut told, COMMITS).await;
        let commits = producer.finish().await.unwrap().commits;

        let counted = Store::connect(store.store.config().clone()).await.unwrap();
        let counted_lake = Lake::new(&counted, prefix(&lake).parse().unwrap()).unwrap();
        let options = ConsumerOptions {
            start: Start::Version(versions + 1),
            poll: Poll::Fixed { interval: Duration::from_secs(60) },
            ..options()
        };
        let mut consumer = Consumer::open(&counted_lake, options).await.unwrap();
        receive(&mut consumer, 1).await;
        // Opening reads the checkpoint and what is after it; following begins at once, so the two are counted together.
        let requests = counted.requests();
        assert_eq!(requests.attempts(Purpose::DataGet), COMMITS as u64);
        assert!((commits..=2 * commits).contains(&requests.attempts(Purpose::CommitGetHit)), "{requests:?}");
        asked.push(requests.total());
    }
    assert!(asked[1] <= asked[0] + 10, "opening and following took {asked:?} requests");
}

async fn no_checkpoint_is_made_that_nobody_asked_for(store: &TestStore) {
    use futures::TryStreamExt;
    let lake = lake(store, "no-checkpoints");
    // Past 10 and 100 versions, the intervals of others.
    let options = ProducerOptions { checkpoint_interval: 0, ..ProducerOptions::default() };
    for _ in 0..55 {
        let mut producer = Producer::open(&lake, options.clone()).await.unwrap();
        producer.append(Batch::from_iter(["x"])).await.unwrap();
        producer.finish().await.unwrap();
    }
    let mut consumer = Consumer::open(&lake, self::options()).await.unwrap();
    for _ in 0..110 {
        assert!(matches!(next(&mut consumer).await.unwrap(), Received::Batch(_) | Received::End(_)));
    }
    let log = Path::from(format!("{}/_delta_log", prefix(&lake)));
    let files: Vec<_> = store.store.objects().list(Some(&log)).try_collect().await.unwrap();
    let names: Vec<_> = files.iter().filter_map(|file| file.location.filename()).collect();
    assert_eq!(names.len(), 111, "{names:?}");
    assert!(names.iter().all(|name| name.len() == 25 && name.ends_with(".json")), "{names:?}");
}
