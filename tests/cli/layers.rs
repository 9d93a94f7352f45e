//! `layers` on a small scale: its files, and that nothing is lost. No speeds.

use serde_json::Value;

use crate::harness::{Finished, s3mq};
use crate::processes::{children, wait_for};
use crate::store::Store;

const SMALL: &str =
    "layers --rounds 1 --seconds 0.2 --rate 2000 --batch-messages 500 --output results/layers.json";
const LAYERS: [&str; 4] = ["raw_sdk", "raw", "queue", "service"];
const PAIRS: [[&str; 2]; 4] =
    [["queue", "raw"], ["service", "raw"], ["service", "queue"], ["raw_sdk", "raw"]];
const METRICS: [&str; 6] = [
    "messages_per_second",
    "cpu_us_per_message",
    "latency_p50_beyond_half_interval_us",
    "latency_p50_us",
    "latency_p99_us",
    "paced_cpu_us_per_message",
];

fn results(finished: &Finished) -> Value {
    serde_json::from_str(&finished.read("results/layers.json")).unwrap()
}

#[test]
fn every_layer_has_every_figure_and_every_pair_its_verdict() {
    let finished = s3mq(SMALL).arg("--s3-backend=embedded").run();
    finished.exits(0);
    finished.check(finished.stderr.is_empty(), "it complains");
    finished.check(finished.files() == ["results/layers.json"], "other files than the results");
    let results = results(&finished);

    let layers = results["layers"].as_array().unwrap();
    finished.check(layers.len() == LAYERS.len() * METRICS.len(), "not a row for each");
    for (row, (layer, metric)) in
        layers.iter().zip(LAYERS.iter().flat_map(|layer| METRICS.map(|metric| (layer, metric))))
    {
        finished.check(row["layer"] == *layer && row["metric"] == metric, row);
        let is_one_round = row["rounds"].as_array().is_some_and(|rounds| rounds.len() == 1);
        finished.check(is_one_round && row["best"] == row["worst"] && row["best"] == row["median"], row);
        // A latency may come out below half the interval.
        let is_positive = row["median"].as_f64() > Some(0.0) || metric.contains("beyond");
        finished.check(is_positive, row);
        finished
            .check(row["store_share"].is_null() == metric.contains("cpu") || metric.contains("beyond"), row);
    }
    let comparisons = results["comparisons"].as_array().unwrap();
    finished.check(comparisons.len() == PAIRS.len() * METRICS.len(), "not a row for each pair");
    for (row, ([upper, lower], metric)) in
        comparisons.iter().zip(PAIRS.iter().flat_map(|pair| METRICS.map(|metric| (pair, metric))))
    {
        finished.check(row["upper"] == *upper && row["lower"] == *lower && row["metric"] == metric, row);
        // A single round tells nothing apart.
        finished.check(row["ratio"].is_null() && row["indistinguishable"] == true, row);
    }
    let trips = results["round_trip"].as_array().unwrap();
    finished.check(trips.len() == 2 * 2 * 4, "not all round trips");
    let job = &results["job"];
    finished.check(job["message_bytes"] == 17 && job["rounds"] == 1 && job["rate"] == 2000.0, job);
    let whole_batches = job["flood_messages"].as_u64().unwrap().is_multiple_of(500);
    finished.check(whole_batches, job);
    finished.check(results.get("code_cost").is_none(), "a cost that nobody measured");
}

#[test]
fn what_is_not_measured_here_is_carried_over_and_the_page_is_made_anew() {
    let store = Store::start();
    let first = store.s3mq(SMALL).run();
    first.exits(0);
    assert!(store.keys().is_empty(), "{:?}", store.keys());

    let mut with_cost = results(&first);
    with_cost["code_cost"] = serde_json::json!({"messages": [1, 2, 3], "deep": {"er": 0.25}});
    std::fs::write(first.path("results/layers.json"), with_cost.to_string()).unwrap();
    let marks = include_str!("../../docs/layers.md").lines().filter(|line| line.starts_with("<!-- "));
    let page: Vec<_> = ["before"].into_iter().chain(marks).chain(["after", ""]).collect();
    std::fs::write(first.path("page.md"), page.join("\n")).unwrap();

    let second = store.s3mq(SMALL).arg("--page=page.md").in_directory_of(&first).run();
    second.exits(0);
    second.check(results(&second)["code_cost"] == with_cost["code_cost"], "the cost is not what it was");
    let page = second.read("page.md");
    second.check(page.starts_with("before\n<!-- ") && page.ends_with("\n<!-- end -->\nafter\n"), &page);
    second.check(page.contains("| `queue` to `raw` | indistinguishable"), &page);
}

#[test]
fn what_can_not_be_measured_or_kept_is_refused_before_anything_is_started() {
    s3mq("layers --s3-backend embedded --batch-messages 10000000").run().refuses(&["--batch-messages"]);
    s3mq("layers --s3-backend embedded --rate 400 --autocommit-duration-ms 1000 --message-size 100000")
        .arg("--batch-messages=4")
        .run()
        .refuses(&["--rate", "--autocommit-duration-ms"]);
    s3mq("layers --s3-backend embedded --rounds 0").run().refuses(&["--rounds"]);
    s3mq("layers --s3-backend embedded --page none.md").run().refuses(&["--page", "none.md"]);
    s3mq("layers --s3-backend embedded --output /proc/layers.json").run().refuses(&["--output", "/proc"]);
    s3mq("layers --s3-backend embedded --output /dev/null/layers.json")
        .run()
        .refuses(&["--output", "/dev/null"]);
    s3mq("layers --s3-backend embedded --bucket other").run().refuses(&["--bucket", "embedded"]);
    // The embedded store's figures would be taken for those of a store whose variables are half set.
    s3mq("layers").env("MINIO_S3_BUCKET", "queue").run().refuses(&["MINIO_S3_BUCKET", "MINIO_S3_ENDPOINT"]);
}

#[test]
fn an_interrupted_measuring_leaves_neither_its_store_nor_results() {
    let mut running =
        s3mq(&SMALL.replace("--rounds 1", "--rounds 1000")).arg("--s3-backend=embedded").spawn();
    let server =
        wait_for("the store", || children(running.pid()).into_iter().find(|c| c.command.contains(" serve ")));
    running.wait_for_line("the trial", |line| line.starts_with("trial: ").then_some(()));
    running.signal(rustix::process::Signal::INT);
    let finished = running.finish();
    finished.exits(130);
    finished.check(finished.files() == ["results"], "it left results behind");
    wait_for("the end of the store", || server.is_gone().then_some(()));
}
