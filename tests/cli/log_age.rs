//! Aged tables and checkpoints, from outside.

use std::collections::HashMap;

use serde_json::Value;

use crate::harness::{Finished, s3mq};
use crate::store::Store;

const BENCH: &str = "bench --range-start 500 --range-end 1000 --range-step 500 --seconds-to-stream 2 \
                     --autocommit-duration-ms 20 --interval-seconds 0.1 --warmup-seconds 0";

fn result(finished: &Finished, rate: u64) -> Value {
    let text = finished.read(&format!("benchmark-results/{rate}.json"));
    serde_json::from_str(&text).unwrap()
}

fn rows(finished: &Finished, name: &str) -> Vec<HashMap<String, String>> {
    let text = finished.read(&format!("benchmark-results/{name}"));
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(|row| row.unwrap()).collect()
}

#[test]
fn a_bench_on_preloaded_tables_measures_nothing_of_the_preload() {
    let finished = s3mq(BENCH).arg("--preload-versions=130").arg("--checkpoint-interval=50").run();
    finished.exits(0);
    let said = finished.stdout.matches("preloaded to version 130 with 3 checkpoints in").count();
    finished.check(said == 2, "it says of each rate that its table was preloaded");
    finished.check(finished.stdout.contains("preloaded with 130 versions"), "the table of log age is headed");
    for rate in [500, 1000] {
        let document = result(&finished, rate);
        let (run, result) = (&document["run"], &document["result"]);
        let (producer, consumer) = (&result["producer"], &result["consumer"]);
        let count = |value: &Value| value.as_u64().unwrap();
        finished.check(count(&run["preload_versions"]) == 130, "preload_versions");
        finished.check(count(&run["checkpoint_interval"]) == 50, "checkpoint_interval");
        finished.check(count(&consumer["first_version"]) == 131, "it begins after the preload");
        finished.check(count(&consumer["received"]) == rate * 2, "messages of the preload were received");
        let streams = consumer["integrity"]["streams"].as_array().unwrap().len();
        finished.check(streams == 1, "there is one stream");
        finished.check(
            count(&producer["commit_time"]["count"]) == count(&producer["commits"]),
            "every commit has its time",
        );
        for opened in [&producer["cold_open_seconds"], &consumer["cold_open_seconds"]] {
            finished.check(opened.as_f64() > Some(0.0), format_args!("opened in {opened}"));
        }
        let marks = result["marks"].as_array().unwrap();
        let made = marks.iter().filter(|mark| mark["outcome"] == "made");
        let bytes_are_counted = made.clone().all(|mark| count(&mark["bytes"]) > 0);
        finished.check(bytes_are_counted, format_args!("{marks:?}"));
        let made: Vec<_> = made.map(|mark| count(&mark["version"])).collect();
        // A hundred commits after version 130.
        finished.check(made.first() == Some(&150), format_args!("checkpoints of {made:?}"));
        finished.check(
            count(&producer["checkpoints"]["made"]) == made.len() as u64,
            format_args!("{made:?}, {}", producer["checkpoints"]),
        );
        let timeline = rows(&finished, &format!("{rate}.intervals.csv"));
        let begun: u64 = timeline.iter().map(|row| row["checkpoints"].parse::<u64>().unwrap()).sum();
        let marked = marks.iter().filter(|mark| mark["outcome"] != "skipped").count();
        finished.check(begun == marked as u64, format_args!("{begun} on the timeline, {marked} marks"));
        for role in ["producer_rss_bytes", "consumer_rss_bytes"] {
            let held = timeline[0][role].parse::<u64>();
            finished.check(held.is_ok_and(|bytes| bytes > 1 << 20), format_args!("{role}"));
        }
    }
    for row in rows(&finished, "summary.csv") {
        for column in
            ["commit_p50", "commit_p99", "discovered_p50", "producer_cold_open", "consumer_cold_open"]
        {
            finished.check(row[column].parse::<f64>().is_ok_and(|seconds| seconds > 0.0), column);
        }
    }
}

#[test]
fn a_checkpoint_interval_of_zero_makes_none() {
    let finished = s3mq(BENCH).arg("--checkpoint-interval=0").arg("--preload-versions=20").run();
    finished.exits(0);
    finished.check(finished.stdout.contains("preloaded to version 20 with 0 checkpoints"), "no checkpoints");
    for rate in [500, 1000] {
        let result = &result(&finished, rate)["result"];
        finished.check(result["marks"] == serde_json::json!([]), "there are no marks");
        finished.check(result["producer"]["checkpoint_requests"] == serde_json::json!([]), "no requests");
    }
}

#[test]
fn a_preload_is_whole_and_an_interrupted_one_says_so() {
    let store = Store::start();
    let run = |arguments: &str| store.s3mq(arguments);
    let finished = run("preload --lake-path aged --versions 40 --checkpoint-interval 15 --quiet").run();
    finished.exits(0);
    let event = finished.event("preloaded");
    finished.check(event["last_version"] == 40 && event["checkpoints"] == 3, &event);

    let mut running = run("preload --lake-path endless --versions 9000000 --quiet").spawn();
    running.wait_for_event("progress", |event| event["messages"].as_u64() > Some(0));
    running.signal(rustix::process::Signal::TERM);
    let finished = running.finish();
    finished.exits(130).complains(&["interrupted"]);
    // What it had begun it has finished: a producer can go on there.
    run("producer --lake-path endless --rate 1000 --messages 10 --quiet").run().exits(0);
}

#[test]
fn a_checkpoint_is_made_where_its_version_is_there() {
    let store = Store::start();
    store.s3mq("preload --lake-path aged --versions 20 --checkpoint-interval 0 --quiet").run().exits(0);
    let has_checkpoint = || store.keys().iter().any(|key| key.ends_with("00012.checkpoint.parquet"));
    let missing = store.s3mq("checkpoint --lake-path aged --at-version 99").run();
    missing.exits(1).complains(&["version 99", "no checkpoint", "latest version is 20"]);
    missing.check(!has_checkpoint(), "there is a checkpoint");
    let no_table = store.s3mq("checkpoint --lake-path nowhere --at-version 3").run();
    no_table.exits(1).complains(&["s3://s3mq/nowhere", "no checkpoint", "there is no table"]);
    let finished = store.s3mq("checkpoint --lake-path aged --at-version 12").run();
    finished.exits(0);
    let event = finished.event("checkpointed");
    finished.check(event["version"] == 12 && has_checkpoint(), &event);
    let requests = event["requests"].as_array().unwrap();
    let purposes: Vec<_> = requests.iter().map(|row| row["purpose"].as_str().unwrap()).collect();
    finished.check(purposes.contains(&"checkpoint") && purposes.contains(&"commit_get_hit"), &event);
}

#[test]
fn a_preload_of_nothing_is_refused() {
    s3mq("preload --lake-path aged --versions 0").run().refuses(&["--versions"]);
    s3mq("bench --range-start 1 --range-end 1 --range-step 1 --preload-versions -1")
        .run()
        .refuses(&["--preload-versions"]);
}
