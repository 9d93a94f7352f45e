//! Data files of other writers: where they are, how they are encoded, and what is wrong with them.

use std::process::Command;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int64Array, LargeBinaryArray,
    LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use object_store::path::Path;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use s3mq_queue::{Consumer, Lake, LostFile, Received};

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    every_compression_and_encoding_is_read,
    every_type_that_delta_calls_binary_or_string_is_read,
    many_row_groups_and_many_files_a_commit_come_in_order,
    paths_are_decoded_once_and_may_be_absolute,
    files_that_are_not_there_are_lost_by_name,
    a_file_with_other_rows_than_the_log_says_is_lost,
    files_of_random_bytes_are_lost_and_the_rest_comes,
    lost_files_count_towards_the_expected_messages,
    absurd_counts_and_paths_are_not_repeated,
);

fn messages(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("message {n}")).collect()
}

fn parquet(data: ArrayRef, properties: WriterProperties) -> Vec<u8> {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..data.len() as i64));
    let rows = RecordBatch::try_from_iter_with_nullable([("n", n, true), ("data", data, true)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

fn plain(texts: &[String]) -> Vec<u8> {
    parquet(Arc::new(StringArray::from_iter_values(texts)), WriterProperties::builder().build())
}

/// A table of another writer: a number and `data`.
async fn foreign(store: &TestStore, name: &str) -> Lake {
    let lake = lake(store, name);
    let table = table(PLAIN_PROTOCOL, &[("n", "long"), ("data", "string")], "[]", "{}");
    put(store, &entry(&lake, 0), &table).await;
    lake
}

async fn put_file(store: &TestStore, lake: &Lake, name: &str, bytes: Vec<u8>) {
    put_bytes(store, &Path::parse(format!("{}/{name}", prefix(lake))).unwrap(), bytes).await;
}

async fn texts(consumer: &mut Consumer) -> Vec<String> {
    match next(consumer).await.unwrap() {
        Received::Batch(batch) => {
            batch.messages().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn lost(consumer: &mut Consumer) -> LostFile {
    match next(consumer).await.unwrap() {
        Received::Lost(lost) => lost,
        other => panic!("{other:?}"),
    }
}

async fn every_compression_and_encoding_is_read(store: &TestStore) {
    let lake = foreign(store, "codecs").await;
    // Of few distinct values, so that a dictionary stays one.
    let sent: Vec<String> = (0..3_000).map(|n| format!("value {}", n % 50)).collect();
    let data: ArrayRef = Arc::new(StringArray::from_iter_values(&sent));
    let mut kinds = Vec::new();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let builder =
                || WriterProperties::builder().set_compression(compression).set_writer_version(version);
            kinds.push(builder().build());
            for encoding in [Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY] {
                kinds.push(
                    builder()
                        .set_dictionary_enabled(false)
                        .set_column_encoding("data".into(), encoding)
                        .build(),
                );
            }
        }
    }
    for (kind, properties) in kinds.iter().enumerate() {
        put_file(store, &lake, &format!("{kind}.parquet"), parquet(data.clone(), properties.clone())).await;
        put(store, &entry(&lake, kind as u64 + 1), &add(&format!("{kind}.parquet"), 3_000)).await;
    }
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for properties in &kinds {
        assert_eq!(texts(&mut consumer).await, sent, "{properties:?}");
    }
}

async fn every_type_that_delta_calls_binary_or_string_is_read(store: &TestStore) {
    let lake = foreign(store, "types").await;
    let sent = messages(500);
    let arrays: [ArrayRef; 6] = [
        Arc::new(StringArray::from_iter_values(&sent)),
        Arc::new(LargeStringArray::from_iter_values(&sent)),
        Arc::new(StringViewArray::from_iter_values(&sent)),
        Arc::new(BinaryArray::from_iter_values(&sent)),
        Arc::new(LargeBinaryArray::from_iter_values(&sent)),
        Arc::new(BinaryViewArray::from_iter_values(&sent)),
    ];
    let build = || WriterProperties::builder().build();
    for (kind, array) in arrays.iter().enumerate() {
        put_file(store, &lake, &format!("{kind}.parquet"), parquet(array.clone(), build())).await;
        put(store, &entry(&lake, kind as u64 + 1), &add(&format!("{kind}.parquet"), 500)).await;
    }
    let fixed: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(["abc", "def"].iter()).unwrap());
    put_file(store, &lake, "fixed.parquet", parquet(fixed, build())).await;
    put(store, &entry(&lake, 7), &add("fixed.parquet", 2)).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for _ in arrays {
        assert_eq!(texts(&mut consumer).await, sent);
    }
    assert_eq!(texts(&mut consumer).await, ["abc", "def"]);
}

async fn many_row_groups_and_many_files_a_commit_come_in_order(store: &TestStore) {
    let lake = foreign(store, "groups").await;
    let sent = messages(2_000);
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
    put_file(
        store,
        &lake,
        "0.parquet",
        parquet(Arc::new(StringArray::from_iter_values(&sent[..1_000])), groups),
    )
    .await;
    let mut commit = vec![add("0.parquet", 1_000)];
    for file in 0..20 {
        let part = &sent[1_000 + file * 50..1_050 + file * 50];
        let name = format!("{}.parquet", file + 1);
        put_file(store, &lake, &name, plain(part)).await;
        commit.push(add(&name, 50));
    }
    put_file(store, &lake, "none.parquet", plain(&[])).await;
    commit.push(add("none.parquet", 0));
    put(store, &entry(&lake, 1), &commit.join("\n")).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let mut came = Vec::new();
    for _ in 0..commit.len() {
        came.extend(texts(&mut consumer).await);
    }
    assert_eq!(came, sent);
}

async fn paths_are_decoded_once_and_may_be_absolute(store: &TestStore) {
    let lake = foreign(store, "paths").await;
    let bucket = &store.store.config().bucket;
    let here = format!("s3://{bucket}/{}", prefix(&lake));
    let sent = messages(3);
    let mut version = 0;
    for (key, path) in [
        ("plain name.parquet", "plain%20name.parquet".to_owned()),
        ("a%20b.parquet", "a%2520b.parquet".to_owned()),
        ("100%.parquet", "100%25.parquet".to_owned()),
        ("day=2024-01-01 00%3A00/x.parquet", "day=2024-01-01%2000%253A00/x.parquet".to_owned()),
        ("grüße-日本.parquet", "gr%C3%BC%C3%9Fe-%E6%97%A5%E6%9C%AC.parquet".to_owned()),
        ("naïve.parquet", "naïve.parquet".to_owned()),
        ("a+b&c=d.parquet", "a+b&c=d.parquet".to_owned()),
        ("absolute.parquet", format!("{here}/absolute.parquet")),
        ("absolute two.parquet", format!("{here}/absolute%20two.parquet")),
        ("hadoop.parquet", format!("{}/hadoop.parquet", here.replacen("s3:", "s3a:", 1))),
    ] {
        version += 1;
        put_file(store, &lake, key, plain(&sent)).await;
        put(store, &entry(&lake, version), &add(&path, 3)).await;
    }
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for _ in 0..version {
        assert_eq!(texts(&mut consumer).await, sent);
    }
}

async fn files_that_are_not_there_are_lost_by_name(store: &TestStore) {
    let lake = foreign(store, "not-there").await;
    let paths = ["vanished.parquet", "../sibling/x.parquet"];
    let adds: Vec<_> = paths.iter().map(|path| add(path, 7)).collect();
    put(store, &entry(&lake, 1), &adds.join("\n")).await;
    put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
    put(store, &entry(&lake, 2), &add("there.parquet", 3)).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for path in paths {
        let lost = lost(&mut consumer).await;
        assert_eq!((lost.path.as_str(), lost.rows, lost.version), (path, Some(7), 1));
        assert!(lost.reason.contains("no longer there"), "{path}: {}", lost.reason);
    }
    assert_eq!(texts(&mut consumer).await, messages(3));
}

async fn a_file_with_other_rows_than_the_log_says_is_lost(store: &TestStore) {
    let lake = foreign(store, "other-rows").await;
    put_file(store, &lake, "less.parquet", plain(&messages(5))).await;
    put(store, &entry(&lake, 1), &[add("less.parquet", 8), add("less.parquet", 5)].join("\n")).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    let lost = lost(&mut consumer).await;
    assert_eq!(lost.rows, Some(8));
    assert!(lost.reason.contains("5 rows instead of 8"), "{}", lost.reason);
    assert_eq!(texts(&mut consumer).await, messages(5));
}

async fn files_of_random_bytes_are_lost_and_the_rest_comes(store: &TestStore) {
    let lake = foreign(store, "random").await;
    let whole = plain(&messages(50));
    let mut commit = Vec::new();
    for file in 0..60_usize {
        let bytes = match file % 3 {
            0 => (0..file * 40).map(|_| rand::random()).collect(),
            1 => whole[..whole.len() * file / 60].to_vec(),
            // The frame of a Parquet file with nothing sensible in it.
            _ => {
                let inner: Vec<u8> = (0..200).map(|_| rand::random()).collect();
                [b"PAR1", inner.as_slice(), &(180 + file as u32).to_le_bytes(), b"PAR1"].concat()
            }
        };
        put_file(store, &lake, &format!("{file}.parquet"), bytes).await;
        commit.push(add(&format!("{file}.parquet"), 50));
    }
    put_file(store, &lake, "whole.parquet", whole).await;
    commit.push(add("whole.parquet", 50));
    put(store, &entry(&lake, 1), &commit.join("\n")).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for _ in 0..60 {
        lost(&mut consumer).await;
    }
    assert_eq!(texts(&mut consumer).await, messages(50));
}

/// Runs a consumer that expects ten messages of the table and loses some; what it wrote to both outputs.
fn loses_some_of_ten(store: &TestStore, lake: &Lake) -> (String, String) {
    let consumer = Command::new(env!("CARGO_BIN_EXE_s3mq"))
        .args(["consumer", "--expected-messages", "10", "--lake-path", &prefix(lake)])
        .args(["--drain-timeout-seconds", "600"])
        .envs(store.environment())
        .output();
    let output = tokio::task::block_in_place(|| consumer).unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(output.status.code(), Some(3), "{stdout}\n{stderr}");
    (stdout, stderr)
}

async fn lost_files_count_towards_the_expected_messages(store: &TestStore) {
    let lake = foreign(store, "lost-and-expected").await;
    put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
    put(store, &entry(&lake, 1), &[add("gone.parquet", 7), add("there.parquet", 3)].join("\n")).await;
    // Nobody ends this stream, and nothing more comes. Without counting what is lost it would wait a minute.
    let (stdout, _) = loses_some_of_ten(store, &lake);
    let summary: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (summary["received"].as_u64(), summary["lost_untracked"].as_u64()),
        (Some(3), Some(7)),
        "{summary}"
    );
    assert_eq!((summary["ended"].as_str(), summary["lost_files"].as_u64()), (Some("expected"), Some(1)));
}

async fn absurd_counts_and_paths_are_not_repeated(store: &TestStore) {
    let lake = foreign(store, "absurd").await;
    put_file(store, &lake, "there.parquet", plain(&messages(3))).await;
    let long = format!("{}%0A%1B.parquet", "x".repeat(100_000));
    let adds = [
        add("there.parquet", u64::MAX),
        add("gone.parquet", u64::MAX),
        add("gone.parquet", 7),
        add("there.parquet", 3),
    ];
    put(store, &entry(&lake, 1), &adds.join("\n")).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    for rows in [None, None, Some(7)] {
        let lost = lost(&mut consumer).await;
        assert_eq!(lost.rows, rows, "{lost}");
        let said = lost.to_string();
        assert!(said.len() < 800 && !said.contains(char::is_control), "{said}");
        assert!(
            said.ends_with(": 7 messages") || said.ends_with(": an unknown number of messages"),
            "{said}"
        );
    }
    assert_eq!(texts(&mut consumer).await, messages(3));

    // A key that no client can ask for isn't lost, and can't be read.
    put(store, &entry(&lake, 2), &add(&long, 3)).await;
    let said = next(&mut consumer).await.unwrap_err().to_string();
    assert!(said.len() < 800 && !said.contains(char::is_control) && said.contains("version 2"), "{said}");
    // What can be counted is, and nothing overflows; the command ends before it comes to that key.
    let (_, stderr) = loses_some_of_ten(store, &lake);
    assert!(stderr.contains("7 lost, 3 files unreadable"), "{stderr}");
    assert!(stderr.lines().all(|line| line.len() < 1_000), "{stderr}");
}
