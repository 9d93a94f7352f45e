//! What belongs to others stays as it is: no command deletes or writes over an object that s3mq didn't make.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[macro_use]
#[path = "../crates/queue/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

use common::streams::{PLAIN_PROTOCOL, add, put, send, table};
use common::{TestStore, fresh_path};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use s3mq_queue::{Lake, QueueError, empty_directory, mark_directory, refuse_foreign};
use uuid::Uuid;

on_every_store!(
    a_bench_ends_before_it_touches_what_others_have_below_its_prefix,
    a_bench_that_is_interrupted_leaves_what_others_put_there,
    tables_of_older_builds_are_emptied,
    what_emptying_left_half_done_is_emptied_by_the_next,
    a_marker_does_not_outlive_a_table_of_somebody_else,
    folders_of_a_console_are_no_hindrance,
    tables_below_a_benchs_tables_end_it_before_it_starts,
    a_foreign_table_is_written_to_only_by_its_owners_leave,
    no_table_is_created_among_files_of_others,
    a_check_leaves_what_others_have,
    whoever_takes_a_lock_over_asks_the_same,
    what_is_no_lock_is_not_taken_over,
    nothing_foreign_is_emptied_whatever_lies_together,
    no_command_removes_anything_foreign,
);

/// A bench of one rate, in a directory of its own.
fn bench(store: &TestStore, prefix: &str, rate: &str) -> Command {
    let mut command = s3mq(store, &format!("bench --range-start {rate} --range-end {rate} --range-step 1"));
    command.args([
        "--seconds-to-stream",
        "1",
        "--autocommit-duration-ms",
        "100",
        "--quiet",
        "--prefix",
        prefix,
    ]);
    command
}

fn s3mq(store: &TestStore, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mq"));
    let directory = std::env::temp_dir().join(format!("s3mq-ownership-{}", Uuid::new_v4()));
    std::fs::create_dir_all(&directory).unwrap();
    command.args(arguments.split_whitespace()).envs(store.environment()).current_dir(directory);
    command
}

/// Runs it to its end; what it said on standard error.
fn run(mut command: Command, expected: i32) -> String {
    let output: Output = command.output().unwrap();
    let directory = command.get_current_dir().unwrap().to_owned();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(expected), "{command:?}\n{stdout}\n{stderr}");
    std::fs::remove_dir_all(directory).unwrap();
    stderr.into_owned()
}

/// Everything below a prefix, with what tells one body from another. A lock that was given back is left out.
async fn objects(store: &TestStore, prefix: &str) -> BTreeMap<String, Option<String>> {
    let listing = store.store.objects().list(Some(&Path::from(prefix)));
    let objects = listing.map_ok(|object| (object.location.to_string(), object.e_tag));
    let mut objects: BTreeMap<_, _> = objects.try_collect().await.unwrap();
    let lock = format!("{prefix}/.s3mq-bench.lock");
    if objects.contains_key(&lock) {
        let holder =
            store.store.objects().get(&Path::from(lock.as_str())).await.unwrap().bytes().await.unwrap();
        if holder.starts_with(b"free, ") {
            objects.remove(&lock);
        }
    }
    objects
}

async fn put_all(store: &TestStore, keys: impl IntoIterator<Item = String>) {
    for key in keys {
        put(store, &Path::from(key), "somebody's").await;
    }
}

fn lake(store: &TestStore, prefix: &str) -> Lake {
    Lake::new(&store.store, prefix.parse().unwrap()).unwrap()
}

/// A table of another writer with the columns of ours, and one data file; its keys.
async fn foreign_table(store: &TestStore, prefix: &str) -> Vec<String> {
    let columns = [("data", "binary"), ("producer", "integer"), ("seq", "long")];
    let file = format!("part-{}.parquet", Uuid::new_v4());
    let entries = [table(PLAIN_PROTOCOL, &columns, "[]", "{}"), add(&file, 1)];
    for (version, entry) in entries.iter().enumerate() {
        put(store, &Path::from(format!("{prefix}/_delta_log/{version:020}.json")), entry).await;
    }
    put(store, &Path::from(format!("{prefix}/{file}")), "PAR1").await;
    objects(store, prefix).await.into_keys().collect()
}

async fn a_bench_ends_before_it_touches_what_others_have_below_its_prefix(store: &TestStore) {
    let partition = "part-00000-3f0e9a52-8c1e-4a57-9d3c-0b7a3f0e9a52-c000.snappy.parquet";
    for (rate, keys) in [
        ("2024", vec![format!("2024/{partition}"), format!("2023/{partition}")]),
        ("500", vec!["500/report.txt".to_owned()]),
        // Beside the tables, not in one.
        ("500", vec!["notes.txt".to_owned(), "600/a/b.csv".to_owned(), "700/c".to_owned()]),
        // As s3mq names its own, where s3mq made nothing.
        ("500", vec![format!("500/part-{}.parquet", Uuid::new_v4())]),
    ] {
        let prefix = fresh_path("bench");
        put_all(store, keys.iter().map(|key| format!("{prefix}/{key}"))).await;
        let before = objects(store, &prefix).await;
        let said = run(bench(store, &prefix, rate), 2);
        let first = before.keys().next().unwrap();
        let count = format!("{} object", before.len());
        assert!([first, &count, "--prefix"].iter().all(|words| said.contains(*words)), "{said}");
        assert_eq!(objects(store, &prefix).await, before);
    }
    let prefix = fresh_path("bench");
    foreign_table(store, &format!("{prefix}/1000")).await;
    // One of ours beside it stays too: the bench ends before its first rate.
    send(&lake(store, &format!("{prefix}/500")), 0, 2).await;
    let before = objects(store, &prefix).await;
    let mut sweep = s3mq(store, "bench --range-start 500 --range-end 1000 --range-step 500");
    sweep.args(["--seconds-to-stream", "1", "--quiet", "--prefix", &prefix]);
    let said = run(sweep, 2);
    assert!(
        said.contains("1000/_delta_log/00000000000000000000.json") && said.contains("3 objects"),
        "{said}"
    );
    assert_eq!(objects(store, &prefix).await, before);
}

async fn a_bench_that_is_interrupted_leaves_what_others_put_there(store: &TestStore) {
    let prefix = fresh_path("interrupted");
    let mut long =
        s3mq(store, "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 50");
    let mut bench = long.args(["--quiet", "--prefix", &prefix]).spawn().unwrap();
    let table = format!("{prefix}/100");
    while objects(store, &table).await.len() < 3 {
        assert_eq!(bench.try_wait().unwrap(), None, "it ended early");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let theirs = format!("{table}/report.txt");
    put_all(store, [theirs.clone()]).await;
    let pid = rustix::process::Pid::from_raw(bench.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    assert_eq!(objects(store, &prefix).await.into_keys().collect::<Vec<_>>(), [theirs]);
}

async fn tables_of_older_builds_are_emptied(store: &TestStore) {
    let prefix = fresh_path("older");
    let table_prefix = format!("{prefix}/200");
    let columns = [("data", "binary"), ("producer", "integer"), ("seq", "long")];
    let properties = r#"{"delta.appendOnly":"true","delta.enableExpiredLogCleanup":"false"}"#;
    let first = Path::from(format!("{table_prefix}/_delta_log/00000000000000000000.json"));
    put(store, &first, &table(PLAIN_PROTOCOL, &columns, "[]", properties)).await;
    send(&lake(store, &table_prefix), 0, 3).await;
    run(bench(store, &prefix, "200"), 0);
    assert_eq!(objects(store, &prefix).await, BTreeMap::new());
}

async fn what_emptying_left_half_done_is_emptied_by_the_next(store: &TestStore) {
    let prefix = fresh_path("half");
    let place = lake(store, &prefix);
    send(&place, 0, 3).await;
    // It is marked first and the marker goes last, so it may have been left off at any key.
    mark_directory(&place).await.unwrap();
    let keys: Vec<_> =
        objects(store, &prefix).await.into_keys().filter(|key| !key.contains("_s3mq/")).collect();
    for key in &keys[..keys.len() - 1] {
        store.store.objects().delete(&Path::from(key.as_str())).await.unwrap();
    }
    assert_eq!(empty_directory(&place).await.unwrap(), None);
    assert_eq!(objects(store, &prefix).await, BTreeMap::new());
    // And where it was no table.
    mark_directory(&place).await.unwrap();
    put_all(store, [format!("{prefix}/_s3mq/index/00000000000000000000")]).await;
    assert_eq!(empty_directory(&place).await.unwrap(), None);
    assert_eq!(objects(store, &prefix).await, BTreeMap::new());
}

/// The marker of a run that was killed says nothing of a table that somebody made there since, even if its log was
/// cleaned.
async fn a_marker_does_not_outlive_a_table_of_somebody_else(store: &TestStore) {
    let prefix = fresh_path("marker");
    let place = lake(store, &prefix);
    mark_directory(&place).await.unwrap();
    foreign_table(store, &prefix).await;
    let checkpoint = format!("checkpoint --at-version 1 --append-to-existing --lake-path {prefix}");
    run(s3mq(store, &checkpoint), 0);
    store.store.objects().delete(&Path::from(format!("{prefix}/_delta_log/{:020}.json", 0))).await.unwrap();
    let before = objects(store, &prefix).await;
    assert!(matches!(empty_directory(&place).await, Err(QueueError::Foreign { .. })));
    assert_eq!(objects(store, &prefix).await, before);
}

/// What a console or another client makes for a folder is an empty object with a slash at its end.
async fn folders_of_a_console_are_no_hindrance(store: &TestStore) {
    let prefix = fresh_path("folders");
    let (client, bucket) = (store.store.admin().client(), &store.store.config().bucket);
    for folder in ["", "200/"] {
        client.put_object().bucket(bucket).key(format!("{prefix}/{folder}")).send().await.unwrap();
    }
    run(bench(store, &prefix, "200"), 0);
    run(s3mq(store, &format!("producer --rate max --messages 5 --quiet --lake-path {prefix}")), 0);
}

/// A queue below a table that would be emptied is somebody's.
async fn tables_below_a_benchs_tables_end_it_before_it_starts(store: &TestStore) {
    let prefix = fresh_path("nested");
    for path in ["500", "500/1000", "600"] {
        let producer = format!("producer --rate max --messages 5 --quiet --lake-path {prefix}/{path}");
        run(s3mq(store, &format!("{producer} --append-to-existing")), 0);
    }
    let before = objects(store, &prefix).await;
    let said = run(bench(store, &prefix, "500"), 2);
    assert!(said.contains("500/1000/_delta_log/00000000000000000000.json"), "{said}");
    assert_eq!(objects(store, &prefix).await, before);
}

async fn a_foreign_table_is_written_to_only_by_its_owners_leave(store: &TestStore) {
    let path = fresh_path("foreign");
    foreign_table(store, &path).await;
    let before = objects(store, &path).await;
    let producer = format!("producer --rate max --messages 5 --quiet --lake-path {path}");
    let preload = format!("preload --versions 2 --quiet --lake-path {path}");
    let checkpoint = format!("checkpoint --at-version 1 --lake-path {path}");
    for command in [&producer, &preload, &checkpoint] {
        let said = run(s3mq(store, command), 2);
        assert!(said.contains("not created by s3mq") && said.contains("--append-to-existing"), "{said}");
    }
    assert_eq!(objects(store, &path).await, before);
    for command in [&producer, &preload, &checkpoint] {
        run(s3mq(store, &format!("{command} --append-to-existing")), 0);
    }
    let after = objects(store, &path).await;
    assert!(before.iter().all(|(key, e_tag)| after.get(key) == Some(e_tag)), "{after:?}");
    assert!(after.keys().any(|key| key.ends_with("1.checkpoint.parquet")), "{after:?}");
}

async fn no_table_is_created_among_files_of_others(store: &TestStore) {
    let path = fresh_path("among");
    put_all(store, [format!("{path}/part-00000.parquet"), format!("{path}/sub/x.csv")]).await;
    let before = objects(store, &path).await;
    let producer = format!("producer --rate max --messages 5 --quiet --lake-path {path}");
    let said = run(s3mq(store, &producer), 2);
    assert!(said.contains("2 objects") && said.contains("part-00000.parquet"), "{said}");
    assert_eq!(objects(store, &path).await, before);
    run(s3mq(store, &format!("{producer} --append-to-existing")), 0);
}

async fn a_check_leaves_what_others_have(store: &TestStore) {
    let prefix = fresh_path("check");
    put_all(store, [format!("{prefix}/raw/data-0"), format!("{prefix}/queue/x.parquet")]).await;
    let before = objects(store, &prefix).await;
    run(s3mq(store, &format!("check --round-trips 2 --prefix {prefix}")), 0);
    assert_eq!(objects(store, &prefix).await, before);
    // Nor does it leave anything of its own, where it is interrupted.
    let mut check = s3mq(store, &format!("check --round-trips 60000 --prefix {prefix}")).spawn().unwrap();
    while objects(store, &prefix).await.len() < before.len() + 50 {
        assert_eq!(check.try_wait().unwrap(), None, "it ended early");
    }
    let pid = rustix::process::Pid::from_raw(check.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(check.wait().unwrap().code(), Some(130));
    assert_eq!(objects(store, &prefix).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stays_behind_in_a_versioned_bucket_is_said() {
    use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
    let Some(store) = TestStore::seaweedfs().await else { return };
    let (client, bucket) = (store.store.admin().client(), format!("versioned-{}", Uuid::new_v4()));
    client.create_bucket().bucket(&bucket).send().await.unwrap();
    let said = |store: &TestStore| {
        let mut command = bench(store, &fresh_path("versioned"), "200");
        let output = command.env("MINIO_S3_BUCKET", &bucket).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!said(&store).contains("versioned:"));
    let versioning = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    client.put_bucket_versioning().bucket(&bucket).versioning_configuration(versioning).send().await.unwrap();
    assert!(said(&store).contains("old versions behind delete markers"));
    // They are there, indeed.
    let versions = client.list_object_versions().bucket(&bucket).send().await.unwrap();
    assert!(!versions.delete_markers().is_empty() && !versions.versions().is_empty());
}

fn lock(holder: &str) -> String {
    format!("{holder}, {}", Uuid::new_v4())
}

async fn whoever_takes_a_lock_over_asks_the_same(store: &TestStore) {
    let prefix = fresh_path("lock");
    put(store, &Path::from(format!("{prefix}/.s3mq-bench.lock")), &lock("process 1 since 1 s Unix time"))
        .await;
    put_all(store, [format!("{prefix}/500/report.txt")]).await;
    // A lock is abandoned when its holder hasn't been heard of for half a minute.
    tokio::time::sleep(Duration::from_secs(32)).await;
    let before = objects(store, &prefix).await;
    let said = run(bench(store, &prefix, "500"), 2);
    assert!(said.contains("500/report.txt"), "{said}");
    assert_eq!(objects(store, &prefix).await, before);
    store.store.objects().delete(&Path::from(format!("{prefix}/500/report.txt"))).await.unwrap();
    assert!(run(bench(store, &prefix, "500"), 0).contains("taking over the lock"));
    assert_eq!(objects(store, &prefix).await, BTreeMap::new());
}

async fn what_is_no_lock_is_not_taken_over(store: &TestStore) {
    let prefix = fresh_path("lock");
    put_all(store, [format!("{prefix}/.s3mq-bench.lock")]).await;
    let before = objects(store, &prefix).await;
    let said = run(bench(store, &prefix, "500"), 1);
    assert!(said.contains(".s3mq-bench.lock") && said.contains("--prefix"), "{said}");
    assert_eq!(objects(store, &prefix).await, before);
}

/// A key of somebody else, many of them close to one of ours.
fn foreign_key() -> impl Strategy<Value = String> {
    let id = || any::<u128>().prop_map(|id| Uuid::from_u128(id).to_string());
    let directory = prop_oneof![
        Just(String::new()),
        Just("500/".to_owned()),
        Just("500/sub/".to_owned()),
        Just("1000/".to_owned()),
        "[a-z]{1,8}/".prop_map(|name| name),
    ];
    let name = prop_oneof![
        "[a-z]{1,8}(\\.txt|\\.csv|\\.parquet)".prop_map(|name| name),
        id().prop_map(|id| format!("part-00000-{id}-c000.snappy.parquet")),
        id().prop_map(|id| format!("part-{id}.parquet.crc")),
        id().prop_map(|id| format!("part-{}.parquet", id.replace('-', ""))),
        (0u64..30).prop_map(|version| format!("_delta_log/{version:020}.json.bak")),
        (0u64..30).prop_map(|version| format!("_delta_log/{version}.json")),
        "[a-z]{1,8}".prop_map(|name| format!("_delta_log/{name}/00000000000000000001.json")),
        "[a-z]{1,8}".prop_map(|name| format!("{name}_s3mq/marker.json")),
        "[a-z]{1,8}".prop_map(|name| format!(".s3mq-preflight/{name}")),
        "[a-z]{1,8}".prop_map(|name| format!(".s3mq-clock-{name}")),
    ];
    (directory, name).prop_map(|(directory, name)| directory + &name)
}

/// What a prefix has: keys of others, whether somebody's table is at 1000, whether one of ours is at 500.
fn contents() -> impl Strategy<Value = (Vec<String>, bool, bool)> {
    (prop::collection::vec(foreign_key(), 0..6), any::<bool>(), any::<bool>())
}

fn samples(count: usize, seed: u8) -> Vec<(Vec<String>, bool, bool)> {
    let rng = TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..count).map(|_| contents().new_tree(&mut runner).unwrap().current()).collect()
}

/// Lays them out; the keys that are somebody else's.
async fn lay_out(store: &TestStore, prefix: &str, sample: &(Vec<String>, bool, bool)) -> Vec<String> {
    let (keys, theirs, ours) = sample;
    let mut foreign: Vec<_> = keys.iter().map(|key| format!("{prefix}/{key}")).collect();
    if *ours {
        send(&lake(store, &format!("{prefix}/500")), 0, 2).await;
    }
    if *theirs {
        foreign.extend(foreign_table(store, &format!("{prefix}/1000")).await);
    }
    put_all(store, keys.iter().map(|key| format!("{prefix}/{key}"))).await;
    foreign.sort();
    foreign.dedup();
    foreign
}

async fn nothing_foreign_is_emptied_whatever_lies_together(store: &TestStore) {
    for sample in samples(24, 1) {
        let prefix = fresh_path("random");
        let foreign = lay_out(store, &prefix, &sample).await;
        match (refuse_foreign(&lake(store, &prefix), &[]).await, foreign.first()) {
            (Ok(()), None) => {}
            (Err(QueueError::Foreign { foreign: found, .. }), Some(first)) => {
                assert_eq!((&found.first, found.count), (first, foreign.len() as u64), "{sample:?}");
            }
            (refused, _) => panic!("{refused:?} {sample:?}"),
        }
        for directory in ["500", "1000", "500/sub"] {
            match empty_directory(&lake(store, &format!("{prefix}/{directory}"))).await {
                Ok(_) | Err(QueueError::Foreign { .. }) => {}
                Err(error) => panic!("{error} {sample:?}"),
            }
        }
        let left: Vec<_> = objects(store, &prefix).await.into_keys().collect();
        assert_eq!(left, foreign, "{sample:?}");
    }
}

async fn no_command_removes_anything_foreign(store: &TestStore) {
    for sample in samples(4, 2) {
        let prefix = fresh_path("commands");
        let foreign = lay_out(store, &prefix, &sample).await;
        let before = objects(store, &prefix).await;
        let refused = if foreign.is_empty() { 0 } else { 2 };
        run(bench(store, &prefix, "500"), refused);
        for (command, may_exit) in [
            (format!("check --round-trips 2 --prefix {prefix}"), [0, 0]),
            (format!("check --round-trips 2 --prefix {prefix}/500"), [0, 0]),
            (format!("preload --versions 2 --quiet --lake-path {prefix}/1000"), [0, 2]),
            (format!("producer --rate max --messages 5 --quiet --lake-path {prefix}/500"), [0, 2]),
            (format!("checkpoint --at-version 1 --lake-path {prefix}/1000"), [1, 2]),
        ] {
            let mut command = s3mq(store, &command);
            let output = command.output().unwrap();
            std::fs::remove_dir_all(command.get_current_dir().unwrap()).unwrap();
            let exit = output.status.code().unwrap();
            assert!(may_exit.contains(&exit), "{command:?} {output:?} {sample:?}");
        }
        let after = objects(store, &prefix).await;
        for key in &foreign {
            assert_eq!(after.get(key), before.get(key), "{key} {sample:?}");
        }
    }
}
