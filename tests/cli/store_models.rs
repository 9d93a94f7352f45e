//! The embedded store with the times of another.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::s3mq;
use crate::store::Store;

const BENCH: &str = "bench --range-start 500 --range-end 500 --range-step 1 --seconds-to-stream 2 \
                     --autocommit-duration-ms 100 --quiet";

/// A model of constant times, outside the directory of the command that reads it.
fn file(change: impl Fn(String) -> String) -> (TempDir, PathBuf) {
    let times_ms = [
        ("get", 20),
        ("get-absent", 10),
        ("head", 10),
        ("put", 40),
        ("put-conditional", 60),
        ("list", 10),
        ("delete", 10),
    ];
    let tables = times_ms.map(|(name, ms)| format!("[operations.{name}]\np50_ms = {ms}\np99_ms = {ms}\n"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.toml");
    fs::write(&path, change(format!("name = 'constant'\nseed = 3\n{}", tables.concat()))).unwrap();
    (directory, path)
}

#[test]
fn a_model_that_is_wrong_is_refused_by_file_and_key() {
    let (_directory, wrong) = file(|text| text.replace("list]\np50_ms = 10", "list]\np50_ms = 'soon'"));
    let name = wrong.display().to_string();
    let (_other_directory, copied) = file(|text| text.replace("constant", "s3-standard"));
    for command in ["serve", BENCH] {
        s3mq(command).arg("--store-model").arg(&wrong).run().refuses(&[
            "--store-model",
            &name,
            "operations.list.p50_ms",
        ]);
        s3mq(command).arg("--store-model").arg(&copied).run().refuses(&["`name`", "built-in"]);
        s3mq(command)
            .arg("--store-model=s3-slow")
            .run()
            .refuses(&["--store-model s3-slow", "s3-standard, s3-express, minio-lan"]);
    }
    s3mq(BENCH)
        .env("MINIO_S3_ENDPOINT", "http://127.0.0.1:1")
        .env("MINIO_S3_BUCKET", "queue")
        .arg("--store-model=s3-express")
        .run()
        .refuses(&["--store-model", "embedded"]);
    s3mq("serve --proxy http://127.0.0.1:1 --store-model s3-express")
        .run()
        .refuses(&["--store-model", "--proxy"]);
}

#[test]
fn a_bench_over_a_model_takes_its_times_and_says_so() {
    let (_directory, path) = file(|text| text);
    let finished = s3mq(BENCH).arg("--store-model").arg(&path).run();
    finished.exits(0);
    let json: Value = serde_json::from_str(&finished.read("benchmark-results/500.json")).unwrap();
    let model = &json["run"]["store_model"];
    finished.check(model["name"] == "constant" && model["seed"] == 3, format_args!("{model}"));
    finished.check(model["operations"]["put-conditional"]["p99_ms"] == 60.0, format_args!("{model}"));
    let store = json["run"]["store"].as_str().unwrap();
    finished.check(store.ends_with(", modelled: constant"), format_args!("{store}"));
    let (consumer, producer) = (&json["result"]["consumer"], &json["result"]["producer"]);
    let server = producer["store_server"].as_str().unwrap();
    finished.check(server.ends_with(" (modelled: constant)"), format_args!("{server}"));
    // The data file, half of the commit, half of the entry's GET (it may have looked as the commit took effect),
    // the data file's GET. The minimum is exact.
    let min_us = consumer["latency"]["min_us"].as_u64().unwrap();
    finished.check(min_us >= 100_000, format_args!("a message took {min_us} us"));
    let first_line = finished.stdout.lines().next().unwrap_or_default();
    finished.check(first_line.contains(", modelled: constant"), "the first line does not say it");
    let said = "\nmodelled: constant; these are no figures of a store as it is\n";
    finished.check(finished.stdout.contains(said), "the end does not say it");
}

#[test]
fn without_a_model_nothing_is_modelled() {
    let finished = s3mq(BENCH).run();
    finished.exits(0);
    let json: Value = serde_json::from_str(&finished.read("benchmark-results/500.json")).unwrap();
    finished.check(json["run"]["store_model"].is_null(), "there is a model");
    finished.check(!finished.stdout.contains("modelled"), "it says that it is modelled");
}

#[test]
fn a_modelled_server_tells_its_clients_that_it_is() {
    let store = Store::with("--store-model minio-lan");
    let finished = store.s3mq("check --round-trips 3").run();
    finished.exits(0);
    finished.check(finished.stdout.contains("(modelled: minio-lan)"), "it is not said");
}
