//! Tables of other writers as they are found: schemas that come later, columns that were added, files elsewhere, and
//! files that decode to far more than they are.

use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use s3mq_queue::{
    CheckpointOptions, Consumer, ConsumerOptions, Lake, QueueError, Received, Start, make_checkpoint,
};
use serde_json::Value;

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    a_schema_that_comes_a_commit_later_is_waited_for,
    a_table_without_any_schema_is_refused_at_open,
    a_column_that_was_added_later_is_null_in_older_files,
    a_foreign_table_read_to_its_end_is_no_loss,
    files_elsewhere_are_refused_by_name,
    odd_paths_that_are_there_are_read,
    an_incomplete_checkpoint_beside_an_older_whole_one_is_passed_over,
    what_is_decoded_and_not_delivered_yet_is_bounded,
    one_version_may_add_ten_thousand_files,
    features_that_change_nothing_for_a_reader_are_no_hindrance,
);

const FIELDS: [(&str, &str); 2] = [("n", "long"), ("data", "string")];

fn messages(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

fn parquet(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let properties =
        WriterProperties::builder().set_compression(compression).set_dictionary_enabled(false).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

fn plain(texts: &[String]) -> Vec<u8> {
    parquet(vec![("data", Arc::new(StringArray::from_iter_values(texts)))], Compression::UNCOMPRESSED)
}

fn numbers(count: i64) -> (&'static str, ArrayRef) {
    ("n", Arc::new(Int64Array::from_iter_values(0..count)))
}

async fn put_file(store: &TestStore, lake: &Lake, name: &str, bytes: Vec<u8>) {
    put_bytes(store, &Path::parse(format!("{}/{name}", prefix(lake))).unwrap(), bytes).await;
}

/// A table of another writer with these columns.
async fn foreign(store: &TestStore, name: &str, fields: &[(&str, &str)]) -> Lake {
    let lake = lake(store, name);
    put(store, &entry(&lake, 0), &table(PLAIN_PROTOCOL, fields, "[]", "{}")).await;
    lake
}

async fn batch(consumer: &mut Consumer) -> (Vec<String>, u64) {
    match next(consumer).await.unwrap() {
        Received::Batch(batch) => {
            let texts = batch.messages().map(|message| String::from_utf8(message.to_vec()).unwrap());
            (texts.collect(), batch.nulls)
        }
        other => panic!("{other:?}"),
    }
}

/// Runs `s3mq consumer` on the table; its exit code, its last event and what it said on standard error.
fn consumer(store: &TestStore, lake: &Lake, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let consumer = Command::new(env!("CARGO_BIN_EXE_s3mq"))
        .args(["consumer", "--lake-path", &prefix(lake)])
        .args(arguments)
        .envs(store.environment())
        .output();
    let output = tokio::task::block_in_place(|| consumer).unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let event = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    (output.status.code(), event, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The `metaData` of a table that has no schema yet, as Delta Live Tables write it.
fn without_schema() -> String {
    let whole = table(PLAIN_PROTOCOL, &FIELDS, "[]", "{}");
    let (protocol, metadata) = whole.split_once('\n').unwrap();
    let mut metadata: Value = serde_json::from_str(metadata).unwrap();
    metadata["metaData"].as_object_mut().unwrap().remove("schemaString");
    format!("{protocol}\n{metadata}")
}

async fn a_schema_that_comes_a_commit_later_is_waited_for(store: &TestStore) {
    let lake = lake(store, "late-schema");
    let mut early = Consumer::open(&lake, options()).await.unwrap();
    put(store, &entry(&lake, 0), &without_schema()).await;
    let metadata = table(PLAIN_PROTOCOL, &FIELDS, "[]", "{}");
    put(store, &entry(&lake, 1), metadata.lines().nth(1).unwrap()).await;
    put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
    put(store, &entry(&lake, 2), &add("there.parquet", 3)).await;
    assert_eq!(batch(&mut early).await.0, messages(3));
    let mut late = Consumer::open(&lake, options()).await.unwrap();
    assert_eq!(batch(&mut late).await.0, messages(3));
}

async fn a_table_without_any_schema_is_refused_at_open(store: &TestStore) {
    let lake = lake(store, "no-schema");
    put(store, &entry(&lake, 0), &without_schema()).await;
    put(store, &entry(&lake, 1), r#"{"commitInfo":{}}"#).await;
    let error = Consumer::open(&lake, options()).await.unwrap_err();
    assert!(matches!(error, QueueError::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains("schema"), "{error}");
}

async fn a_column_that_was_added_later_is_null_in_older_files(store: &TestStore) {
    // `data` is there from the beginning, or comes with version 2.
    for fields in [&FIELDS[..], &FIELDS[..1]] {
        let lake = foreign(store, "column-added", fields).await;
        put_file(store, &lake, "old.parquet", parquet(vec![numbers(50)], Compression::UNCOMPRESSED)).await;
        put(store, &entry(&lake, 1), &add("old.parquet", 50)).await;
        let wider = table(PLAIN_PROTOCOL, &FIELDS, "[]", "{}");
        put(store, &entry(&lake, 2), wider.lines().nth(1).unwrap()).await;
        put_file(store, &lake, "new.parquet", plain(&messages(3))).await;
        put(store, &entry(&lake, 3), &add("new.parquet", 3)).await;
        let mut reader = Consumer::open(&lake, options()).await.unwrap();
        assert_eq!(batch(&mut reader).await, (Vec::new(), 50));
        assert_eq!(batch(&mut reader).await, (messages(3), 0));
        let (code, summary, said) = consumer(store, &lake, &["--expected-messages", "3"]);
        assert_eq!(code, Some(0), "{summary} {said}");
        assert_eq!((&summary["received"], &summary["lost_files"]), (&3.into(), &0.into()), "{summary}");
    }
}

/// Messages that carry no stamp, and nulls, are counted and said. They are no loss.
async fn a_foreign_table_read_to_its_end_is_no_loss(store: &TestStore) {
    let lake = foreign(store, "foreign-whole", &FIELDS).await;
    let texts: ArrayRef = Arc::new(StringArray::from_iter((0..56).map(|n| (n < 6).then_some("no stamp"))));
    put_file(store, &lake, "there.parquet", parquet(vec![("data", texts)], Compression::UNCOMPRESSED)).await;
    put(store, &entry(&lake, 1), &add("there.parquet", 56)).await;
    let (code, summary, said) = consumer(store, &lake, &["--expected-messages", "6"]);
    assert_eq!(code, Some(0), "{summary} {said}");
    assert_eq!(summary["received"], 6, "{summary}");
    assert!(said.contains("56") && said.contains("stamp"), "{said}");
}

/// Delta allows a log to name files by absolute URIs. Those that this reader can't reach are refused, and nothing of
/// them is called lost.
async fn files_elsewhere_are_refused_by_name(store: &TestStore) {
    for path in [
        "s3://another-bucket/x.parquet",
        "s3a://another-bucket/x.parquet",
        "gs://bucket/x.parquet",
        "abfss://container@account.dfs.core.windows.net/x.parquet",
        "file:///tmp/x.parquet",
        "https://host/x.parquet",
    ] {
        let lake = foreign(store, "elsewhere", &FIELDS).await;
        put(store, &entry(&lake, 1), &add(path, 7)).await;
        let mut reader = Consumer::open(&lake, options()).await.unwrap();
        let error = error_of(&mut reader).await;
        assert!(matches!(error, QueueError::Unsupported { .. }), "{path}: {error:?}");
        assert!(error.to_string().contains(path), "{error}");
        let (code, _, said) = consumer(store, &lake, &[]);
        assert_eq!(code, Some(1), "{path}: {said}");
        assert!(said.contains(path) && !said.contains("lost"), "{said}");
    }
}

async fn odd_paths_that_are_there_are_read(store: &TestStore) {
    let lake = foreign(store, "odd-paths", &FIELDS).await;
    let name = prefix(&lake).rsplit('/').next().unwrap().to_owned();
    let paths = [
        ("here.parquet", "./here.parquet".to_owned()),
        ("a/here.parquet", "a/b/../here.parquet".to_owned()),
        ("back.parquet", format!("../{name}/back.parquet")),
    ];
    for (version, (key, path)) in (1..).zip(&paths) {
        put_file(store, &lake, key, plain(&messages(3))).await;
        put(store, &entry(&lake, version), &add(path, 3)).await;
    }
    let mut reader = Consumer::open(&lake, options()).await.unwrap();
    for (_, path) in &paths {
        assert_eq!(batch(&mut reader).await.0, messages(3), "{path}");
    }
}

/// The protocol lets a reader take the latest checkpoint that is whole; the hint may name one that isn't.
async fn an_incomplete_checkpoint_beside_an_older_whole_one_is_passed_over(store: &TestStore) {
    let lake = lake(store, "incomplete-checkpoint");
    let by = send_each(&lake, 8).await;
    make_checkpoint(&lake, 4, CheckpointOptions::default()).await.1.unwrap();
    let log = format!("{}/_delta_log", prefix(&lake));
    put(
        store,
        &Path::from(format!("{log}/{:020}.checkpoint.{:010}.{:010}.parquet", 7, 1, 2)),
        "the first of two parts",
    )
    .await;
    let hint = r#"{"version":7,"size":10,"parts":2}"#;
    put(store, &Path::from(format!("{log}/_last_checkpoint")), hint).await;
    clean(store, &lake, 0..4).await;
    for start in [Start::Version(5), Start::Earliest] {
        let mut reader = Consumer::open(&lake, ConsumerOptions { start, ..options() }).await.unwrap();
        match next(&mut reader).await.unwrap() {
            Received::Batch(batch) => assert_eq!(batch.origin.unwrap().by, by),
            other => panic!("{other:?}"),
        }
    }
}

/// A file of a few kilobytes may decode to hundreds of megabytes.
async fn what_is_decoded_and_not_delivered_yet_is_bounded(store: &TestStore) {
    const ROWS: usize = 64;
    let lake = foreign(store, "decoded", &FIELDS).await;
    let large: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|_| "x".repeat(1 << 20))));
    let file = parquet(vec![("data", large)], Compression::ZSTD(ZstdLevel::default()));
    assert!(file.len() < 1 << 18, "{} bytes", file.len());
    put_file(store, &lake, "large.parquet", file).await;
    let adds: Vec<_> = (0..24).map(|_| add("large.parquet", ROWS as u64)).collect();
    // The statistics say nothing, or nothing of use.
    put(store, &entry(&lake, 1), &adds.join("\n")).await;
    let expected = (24 * ROWS).to_string();
    let (code, summary, said) =
        consumer(store, &lake, &["--expected-messages", &expected, "--max-inflight-bytes", "67108864"]);
    assert_eq!(code, Some(0), "{summary} {said}");
    assert_eq!(summary["received"], 24 * ROWS, "{summary}");
    // Two files of 64 MiB, and what decoding one takes besides; 24 would be 1.5 GiB.
    let peak = summary["resources"]["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak < 600 << 20, "{} MiB", peak >> 20);
}

async fn one_version_may_add_ten_thousand_files(store: &TestStore) {
    let lake = foreign(store, "many-adds", &FIELDS).await;
    put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
    let adds: Vec<_> = (0..10_000).map(|_| add("there.parquet", 3)).collect();
    put(store, &entry(&lake, 1), &adds.join("\n")).await;
    let mut reader = Consumer::open(&lake, options()).await.unwrap();
    for _ in 0..10_000 {
        assert_eq!(batch(&mut reader).await.0.len(), 3);
    }
}

/// Generated and identity columns, change data feed, row tracking, liquid clustering: all of them writers' affairs.
async fn features_that_change_nothing_for_a_reader_are_no_hindrance(store: &TestStore) {
    let features = [
        "generatedColumns",
        "identityColumns",
        "changeDataFeed",
        "rowTracking",
        "domainMetadata",
        "clustering",
        "inCommitTimestamp",
        "allowColumnDefaults",
        "checkConstraints",
        "icebergCompatV2",
    ];
    for feature in features {
        let protocol = format!(
            r#"{{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["{feature}","appendOnly","invariants"]}}"#
        );
        let lake = lake(store, "writer-feature");
        put(store, &entry(&lake, 0), &table(&protocol, &FIELDS, "[]", "{}")).await;
        put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
        // Change data beside the data, an action nobody knows, and a tag.
        let version_1 = [
            add("there.parquet", 3),
            r#"{"cdc":{"path":"_change_data/c.parquet","partitionValues":{},"size":1,"dataChange":false}}"#
                .to_owned(),
            r#"{"domainMetadata":{"domain":"delta.clustering","configuration":"{}","removed":false}}"#
                .to_owned(),
        ];
        put(store, &entry(&lake, 1), &version_1.join("\n")).await;
        let reader = Consumer::open(&lake, options()).await;
        let mut reader = reader.unwrap_or_else(|error| panic!("{feature}: {error}"));
        assert_eq!(batch(&mut reader).await.0, messages(3), "{feature}");
    }
}
