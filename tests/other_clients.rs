//! Other people's readers and writers as the oracle, and the examples: what s3mq writes, the `deltalake`
//! Python package reads, and the other way round.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../crates/queue/tests/common/mod.rs"]
mod common;

use std::process::{Command, Output};

use common::streams::*;
use common::{TestStore, fresh_path, is_set_up};
use s3mq_queue::{Consumer, ConsumerOptions, Received};
use s3mq_server::{Config, Faults, Server};

/// Runs Python with `deltalake`; `None` where that isn't set up. The script gets the table's URI and the
/// storage options as `uri` and `options`.
fn python(store: &TestStore, path: &str, script: &str) -> Option<String> {
    if !is_set_up("S3MQ_TEST_PYTHON", "Python with the package deltalake") {
        return None;
    }
    let prelude = r#"
import os, sys
from deltalake import DeltaTable, write_deltalake
import pyarrow as pa
uri = "s3://" + os.environ["MINIO_S3_BUCKET"] + "/" + sys.argv[1]
options = {
    "AWS_ENDPOINT_URL": os.environ["MINIO_S3_ENDPOINT"], "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": os.environ["MINIO_S3_ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY": os.environ["MINIO_S3_SECRET_ACCESS_KEY"],
    "AWS_CONDITIONAL_PUT": "etag",
}
"#;
    let mut command = Command::new(std::env::var_os("S3MQ_TEST_PYTHON").unwrap());
    // At once: pyarrow's threads now and then abort the interpreter's own way out, when all is done.
    let end = "\nsys.stdout.flush()\nos._exit(0)\n";
    command.args(["-c", &format!("{prelude}{script}{end}"), path]).envs(store.environment());
    Some(stdout(run(&mut command), 0))
}

fn s3mq(store: &TestStore, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mq"));
    command.args(arguments).envs(store.environment());
    command
}

fn run(command: &mut Command) -> (String, Output) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    (format!("{command:?}"), output)
}

fn stdout((command, output): (String, Output), expected: i32) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{command}\n--- stdout\n{}\n--- stderr\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn last_event(stdout: &str) -> serde_json::Value {
    serde_json::from_str(stdout.lines().last().expect("an event")).unwrap()
}

async fn python_reads_every_row_that_a_producer_wrote(store: &TestStore) {
    for flags in
        [[].as_slice(), &["--message-size", "60", "--payload", "random"], &["--data-encoding", "prefix"]]
    {
        let path = fresh_path("read-by-python");
        let mut arguments = vec![
            "producer",
            "--lake-path",
            &path,
            "--rate",
            "5000",
            "--messages",
            "2345",
            "--producer-id",
            "4",
        ];
        arguments.extend(["--autocommit-duration-ms", "50"].iter().chain(flags));
        stdout(run(&mut s3mq(store, &arguments)), 0);
        let script = r#"
table = DeltaTable(uri, storage_options=options)
rows = table.to_pyarrow_table().sort_by("seq")
stamps = [float(data.split(b" ")[0]) for data in rows["data"].to_pylist()]
assert rows["seq"].to_pylist() == list(range(len(rows))), "seq"
assert set(rows["producer"].to_pylist()) == {4}, "producer"
assert stamps == sorted(stamps) and 0.4 < stamps[-1] - stamps[0] < 0.6, "stamps"
assert table.protocol().min_reader_version == 1 and table.protocol().min_writer_version == 2, table.protocol()
assert table.metadata().configuration["delta.appendOnly"] == "true"
print(len(rows), sum(n or 0 for n in table.get_add_actions(flatten=True).column("num_records").to_pylist()), len(table.history()) == table.version() + 1)
"#;
        if let Some(counted) = python(store, &path, script) {
            assert_eq!(counted.trim(), "2345 2345 True", "{flags:?}");
        }
    }
}

async fn python_reads_a_preloaded_table_with_its_checkpoints(store: &TestStore) {
    let path = fresh_path("preloaded-for-python");
    let preload = ["preload", "--lake-path", &path, "--versions", "30", "--checkpoint-interval", "10"];
    let event = last_event(&stdout(run(&mut s3mq(store, &preload)), 0));
    assert_eq!((event["last_version"].as_u64(), event["checkpoints"].as_u64()), (Some(30), Some(3)));
    // Versions 31 to 50 are messages, one or more each; the last commit ends the stream.
    let produce = ["producer", "--lake-path", &path, "--rate", "1000", "--messages", "200"];
    let flags = ["--autocommit-duration-ms", "10", "--checkpoint-interval", "8"];
    let event = last_event(&stdout(run(&mut s3mq(store, &[produce.as_slice(), &flags].concat())), 0));
    assert!(event["checkpoints"]["made"].as_u64() > Some(0), "{event}");
    let script = r#"
table = DeltaTable(uri, storage_options=options)
print(table.version() > 31, len(table.to_pyarrow_table()), len(DeltaTable(uri, version=30, storage_options=options).to_pyarrow_table()))
"#;
    if let Some(counted) = python(store, &path, script) {
        assert_eq!(counted.trim(), "True 230 30");
    }
}

async fn a_consumer_reads_what_python_wrote(store: &TestStore) {
    let binary = r#"[f"17244031{i:02}.5".encode() for i in range(50)], pa.binary()"#;
    let string = r#"[f"17244031{i:02}.5" for i in range(50)], pa.string()"#;
    for payload in [binary, string] {
        for with_diff in [false, true] {
            let path = fresh_path("written-by-python");
            // Three appends; with `diff`, as Pathway writes it, one of them retracts.
            let columns = if with_diff {
                r#", "time": pa.array([1] * 50), "diff": pa.array([-1] * extra + [1] * (50 - extra))"#
            } else {
                ""
            };
            let script = format!(
                r#"
for extra in (0, 0, 7):
    write_deltalake(uri, pa.table({{"data": pa.array({payload}){columns}}}), mode="append", storage_options=options)
"#
            );
            if python(store, &path, &script).is_none() {
                return;
            }
            let expected: u64 = if with_diff { 143 } else { 150 };
            let count = expected.to_string();
            let out =
                run(&mut s3mq(store, &["consumer", "--lake-path", &path, "--expected-messages", &count]));
            let event = last_event(&stdout(out, 0));
            assert_eq!(event["event"], "consumed");
            assert_eq!(event["received"], expected);
            assert_eq!(event["retractions"], if with_diff { 7 } else { 0 });
            assert_eq!((event["unreadable"].as_u64(), event["lost_files"].as_u64()), (Some(0), Some(0)));
        }
    }
}

async fn a_table_that_python_optimizes_is_delivered_once(store: &TestStore) {
    let path = fresh_path("optimized");
    let produce = |messages: &'static str| {
        [
            "producer",
            "--lake-path",
            &path,
            "--rate",
            "1000",
            "--messages",
            messages,
            "--autocommit-duration-ms",
            "20",
        ]
        .map(str::to_owned)
    };
    for messages in ["200", "100"] {
        let arguments = produce(messages);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        stdout(run(&mut s3mq(store, &arguments)), 0);
        let script = "print(DeltaTable(uri, storage_options=options).optimize.compact()['numFilesAdded'])";
        match python(store, &path, script) {
            Some(added) => assert_eq!(added.trim(), "1"),
            None => return,
        }
    }
    let out = run(&mut s3mq(store, &["consumer", "--lake-path", &path, "--producers", "2"]));
    let event = last_event(&stdout(out, 0));
    assert_eq!(event["received"], 300);
}

async fn a_table_that_is_compacted_and_vacuumed_while_read_is_delivered_once_or_counted(store: &TestStore) {
    let lake = lake(store, "vacuumed");
    let first = send_each(&lake, 6).await;
    let mut slow =
        Consumer::open(&lake, ConsumerOptions { max_inflight_messages: 10, ..options() }).await.unwrap();
    // While this batch is held, no other file is fetched.
    let Received::Batch(held) = next(&mut slow).await.unwrap() else { panic!("a batch") };
    let script = r#"
table = DeltaTable(uri, storage_options=options)
added = table.optimize.compact()["numFilesAdded"]
gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
print(added, len(gone), len(DeltaTable(uri, storage_options=options).to_pyarrow_table()))
"#;
    match python(store, &prefix(&lake), script) {
        Some(said) => assert_eq!(said.trim(), "1 6 60"),
        None => return,
    }
    let second = send_each(&lake, 2).await;
    drop(held);
    let (mut lost, mut came, mut ends) = (Vec::new(), 0, Vec::new());
    while ends.len() < 2 {
        match next(&mut slow).await.unwrap() {
            Received::Lost(file) => lost.push((file.origin.unwrap().first_seq, file.rows.unwrap())),
            Received::Batch(batch) => came += batch.len(),
            Received::End(end) => ends.push(end.by),
        }
    }
    assert_eq!((lost, came), ((1..6).map(|batch| (batch * 10, 10)).collect(), 20));
    assert_eq!(ends, [first, second]);

    // Whoever comes later gets what is left, once: the compacted file is no news.
    let arguments = ["consumer", "--lake-path", &prefix(&lake), "--producers", "2"];
    let event = last_event(&stdout(run(&mut s3mq(store, &arguments)), 3));
    assert_eq!((event["received"].as_u64(), event["lost_files"].as_u64()), (Some(20), Some(6)), "{event}");
    let streams = event["integrity"]["streams"].as_array().unwrap();
    let lost: Vec<_> = streams.iter().map(|stream| (&stream["lost"], &stream["first_lost"])).collect();
    let all_of_the_first = serde_json::json!([[0, 59]]);
    assert!(lost.iter().any(|(count, ranges)| **count == 60 && **ranges == all_of_the_first), "{event}");
}

/// Compacts and vacuums again and again while the roles stream, at this endpoint. What is compacted is gone once
/// the consumer has it: a reader that is slower is another test.
async fn is_compacted_and_vacuumed_while_streaming(store: &TestStore, endpoint: &str) {
    const MESSAGES: &str = "4000";
    let path = fresh_path("streaming-optimized");
    let files = tempfile::tempdir().unwrap();
    let told = files.path().join("consumer.out");
    let start = |arguments: &str, out: &std::path::Path| {
        let mut command = s3mq(store, &arguments.split(' ').collect::<Vec<_>>());
        let errors = std::fs::File::create(out.with_extension("err")).unwrap();
        command.env("MINIO_S3_ENDPOINT", endpoint).stdout(std::fs::File::create(out).unwrap()).stderr(errors);
        command.spawn().unwrap()
    };
    let flags = format!("--lake-path {path} --autocommit-duration-ms 100 --request-timeout-seconds 5");
    let mut consumer = start(&format!("consumer {flags}"), &told);
    let produce = format!("producer {flags} --rate 500 --messages {MESSAGES} --checkpoint-interval 20");
    let mut producer = start(&produce, &files.path().join("producer.out"));
    let script = format!(
        r#"
import json, time
from deltalake.exceptions import CommitFailedError
def received():
    lines = [json.loads(line) for line in open({told:?}) if line.endswith("}}\n")]
    # The last messages may come after the last line of progress.
    counts = {{"progress": "messages", "consumed": "received"}}
    return max((line[counts[line["event"]]] for line in lines if line["event"] in counts), default=0)
def until(holds):
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "the consumer came to nothing: " + open({told:?}).read()[-1500:]
        time.sleep(0.05)
until(lambda: received() > 0)
compacted = vacuumed = 0
while received() < {MESSAGES} // 2:
    table = DeltaTable(uri, storage_options=options)
    try:
        compacted += table.optimize.compact()["numFilesRemoved"]
    except CommitFailedError:
        # The producer commits so often that the other client loses all its attempts; another time, then.
        continue
    until(lambda: received() >= len(table.to_pyarrow_table()))
    vacuumed += len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))
print(compacted > 0 and vacuumed > 0)
"#,
        told = told.to_str().unwrap()
    );
    let done = python(store, &path, &script).unwrap();
    assert_eq!(done.trim(), "True", "nothing was compacted and vacuumed");
    for (role, name) in [(&mut producer, "producer"), (&mut consumer, "consumer")] {
        let status = role.wait().unwrap();
        let errors = std::fs::read_to_string(files.path().join(name).with_extension("err")).unwrap();
        assert!(status.success(), "the {name} ends with {status}: {errors}");
    }
    let event = last_event(&std::fs::read_to_string(&told).unwrap());
    assert_eq!(event["received"].to_string(), MESSAGES, "{event}");
    let script = format!(
        r#"print(sorted(DeltaTable(uri, storage_options=options).to_pyarrow_table()["seq"].to_pylist()) == list(range({MESSAGES})))"#
    );
    assert_eq!(
        python(store, &path, &script).unwrap().trim(),
        "True",
        "the table doesn't hold each message once"
    );
}

async fn a_table_that_python_compacts_and_vacuums_while_it_streams_loses_nothing(store: &TestStore) {
    if !is_set_up("S3MQ_TEST_PYTHON", "Python with the package deltalake") {
        return;
    }
    let bare = store.store.config().endpoint.as_ref().unwrap().as_str().trim_end_matches('/').to_owned();
    is_compacted_and_vacuumed_while_streaming(store, &bare).await;

    let rules = "[[rule]]\nmethod = 'PUT'\nkey = '*_delta_log/*.json'\nprobability = 0.1\naction = 'apply-then-reset'\n\
                 [[rule]]\nmethod = ['GET', 'PUT']\nprobability = 0.03\naction = 'status'\nstatus = 503\n\
                 [[rule]]\nmethod = 'GET'\nprobability = 0.03\naction = 'reset'";
    let faults = Some(Faults::parse(rules).unwrap());
    let config = Config { faults, ..Config::proxy(bare.parse().unwrap()) };
    let proxy = Server::start(config).await.unwrap();
    is_compacted_and_vacuumed_while_streaming(store, &proxy.endpoint()).await;
    assert!(proxy.fault_counts().iter().all(|rule| rule.fired > 0), "{:?}", proxy.fault_counts());
}

async fn what_python_partitions_compresses_and_widens_is_read(store: &TestStore) {
    let path = fresh_path("by-python-in-parts");
    let script = r#"
from deltalake import WriterProperties
days = ["a b", "50%", "x/y:z", "grüße", "a%20b", "http://host/?q=1&r=2#s"]
table = pa.table({"day": days, "data": [f"172440310{i}.5" for i in range(6)]})
write_deltalake(uri, table, partition_by=["day"], storage_options=options)
for i, codec in enumerate(["UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "LZ4", "LZ4_RAW", "ZSTD"]):
    more = pa.table({"day": ["d"] * 3, "data": [f"172440311{i}.{j}" for j in range(3)]})
    level = {"compression_level": 3} if codec in ("GZIP", "BROTLI", "ZSTD") else {}
    write_deltalake(uri, more, mode="append", storage_options=options, writer_properties=WriterProperties(compression=codec, **level))
wider = pa.table({"day": ["e"] * 3, "data": [f"172440312{i}.5" for i in range(3)], "note": ["n"] * 3})
write_deltalake(uri, wider, mode="append", schema_mode="merge", storage_options=options)
print(len(DeltaTable(uri, storage_options=options).to_pyarrow_table()))
"#;
    match python(store, &path, script) {
        Some(rows) => assert_eq!(rows.trim(), "30"),
        None => return,
    }
    let arguments = ["consumer", "--lake-path", &path, "--expected-messages", "30"];
    let event = last_event(&stdout(run(&mut s3mq(store, &arguments)), 0));
    assert_eq!((event["received"].as_u64(), event["unreadable"].as_u64()), (Some(30), Some(0)), "{event}");
}

async fn a_table_that_python_overwrites_stops_the_consumer_unless_told_otherwise(store: &TestStore) {
    let path = fresh_path("overwritten");
    let script = r#"
for n in (3, 4):
    write_deltalake(uri, pa.table({"data": [f"1724403100.{i}" for i in range(n)]}), mode="overwrite", storage_options=options)
"#;
    if python(store, &path, script).is_none() {
        return;
    }
    let arguments = ["consumer", "--lake-path", &path, "--expected-messages", "7"];
    let (command, output) = run(&mut s3mq(store, &arguments));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    stdout((command, output), 1);
    assert!(stderr.contains("version 1 removes rows"), "{stderr}");
    let event = last_event(&stdout(run(s3mq(store, &arguments).arg("--ignore-removes")), 0));
    assert_eq!(event["received"], 7);
}

async fn a_producer_does_not_write_to_a_table_that_is_not_its_own(store: &TestStore) {
    let path = fresh_path("not-ours");
    let script = r#"write_deltalake(uri, pa.table({"data": pa.array([b"x"]), "other": pa.array([1])}), storage_options=options)"#;
    if python(store, &path, script).is_none() {
        return;
    }
    let (command, output) =
        run(&mut s3mq(store, &["producer", "--lake-path", &path, "--rate", "10", "--messages", "1"]));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    stdout((command, output), 1);
    assert!(stderr.contains("no column `producer`"), "{stderr}");
}

async fn the_examples_work(store: &TestStore) {
    let path = fresh_path("examples");
    let example = |name: &str| {
        let directory = std::path::Path::new(env!("CARGO_BIN_EXE_s3mq")).parent().unwrap().join("examples");
        let example = directory.join(name);
        assert!(
            example.exists(),
            "no {}: `cargo test` builds it, or cargo build --release --examples",
            example.display()
        );
        let mut command = Command::new(example);
        command.arg(&path).envs(store.environment());
        command
    };
    assert_eq!(stdout(run(&mut example("producer")), 0).trim(), "10 messages in 2 commits");
    let greetings: Vec<String> = (0..10).map(|n| format!("greeting {n}")).collect();
    assert_eq!(stdout(run(&mut example("consumer")), 0).lines().collect::<Vec<_>>(), greetings);
}

on_every_store!(
    python_reads_every_row_that_a_producer_wrote,
    python_reads_a_preloaded_table_with_its_checkpoints,
    a_consumer_reads_what_python_wrote,
    a_table_that_python_optimizes_is_delivered_once,
    a_table_that_is_compacted_and_vacuumed_while_read_is_delivered_once_or_counted,
    a_table_that_python_compacts_and_vacuums_while_it_streams_loses_nothing,
    what_python_partitions_compresses_and_widens_is_read,
    a_table_that_python_overwrites_stops_the_consumer_unless_told_otherwise,
    a_producer_does_not_write_to_a_table_that_is_not_its_own,
    the_examples_work,
);
