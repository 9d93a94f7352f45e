//! The benchmark on a small scale: its files, and that nothing is lost. No speeds.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use s3mq_queue::storage::{Config, Prefix, Store};
use s3mq_server::Server;
use serde_json::Value;
use tempfile::TempDir;

const SMALL: &str = "--rounds 1 --seconds 0.2 --rate 2000 --batch-messages 500 --output results/layers.json";
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

/// A run, in a directory and an environment of its own.
struct Layers {
    command: Command,
    directory: TempDir,
}

impl Layers {
    fn new(arguments: &str) -> Self {
        let (mut command, directory) =
            (Command::new(env!("CARGO_BIN_EXE_s3mq-layers")), tempfile::tempdir().unwrap());
        command.args(arguments.split_whitespace()).env_clear().current_dir(directory.path());
        Self { command, directory }
    }

    /// Runs it to its end; what it said on standard error.
    fn run(&mut self, expected: i32) -> String {
        let output = self.command.output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(expected), "{:?}\n{stdout}\n{stderr}", self.command);
        stderr.into_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    fn results(&self) -> Value {
        serde_json::from_str(&self.read("results/layers.json")).unwrap()
    }
}

#[test]
fn every_layer_has_every_figure_and_every_pair_its_verdict() {
    let mut layers = Layers::new(&format!("{SMALL} --s3-backend embedded"));
    assert_eq!(layers.run(0), "");
    let files: Vec<_> =
        fs::read_dir(layers.directory.path()).unwrap().flatten().map(|file| file.file_name()).collect();
    assert_eq!(files, ["results"]);
    let results = layers.results();

    let layers = results["layers"].as_array().unwrap();
    assert!(layers.len() == LAYERS.len() * METRICS.len(), "not a row for each");
    for (row, (layer, metric)) in
        layers.iter().zip(LAYERS.iter().flat_map(|layer| METRICS.map(|metric| (layer, metric))))
    {
        assert!(row["layer"] == *layer && row["metric"] == metric, "{row}");
        let is_one_round = row["rounds"].as_array().is_some_and(|rounds| rounds.len() == 1);
        assert!(is_one_round && row["best"] == row["worst"] && row["best"] == row["median"], "{row}");
        // A latency may come out below half the interval.
        let is_positive = row["median"].as_f64() > Some(0.0) || metric.contains("beyond");
        assert!(is_positive, "{row}");
        assert!(row["store_share"].is_null() == metric.contains("cpu") || metric.contains("beyond"), "{row}");
    }
    let comparisons = results["comparisons"].as_array().unwrap();
    assert!(comparisons.len() == PAIRS.len() * METRICS.len(), "not a row for each pair");
    for (row, ([upper, lower], metric)) in
        comparisons.iter().zip(PAIRS.iter().flat_map(|pair| METRICS.map(|metric| (pair, metric))))
    {
        assert!(row["upper"] == *upper && row["lower"] == *lower && row["metric"] == metric, "{row}");
        // A single round tells nothing apart.
        assert!(row["ratio"].is_null() && row["indistinguishable"] == true, "{row}");
    }
    let trips = results["round_trip"].as_array().unwrap();
    assert!(trips.len() == 2 * 2 * 4, "not all round trips");
    let job = &results["job"];
    assert!(job["message_bytes"] == 17 && job["rounds"] == 1 && job["rate"] == 2000.0, "{job}");
    let whole_batches = job["flood_messages"].as_u64().unwrap().is_multiple_of(500);
    assert!(whole_batches, "{job}");
    assert!(results.get("code_cost").is_none(), "a cost that nobody measured");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_measured_here_is_carried_over_and_the_page_is_made_anew() {
    let server = Server::start(s3mq_server::Config::in_memory("s3mq")).await.unwrap();
    let keys = server.credentials();
    let on_the_store = |layers: &mut Layers| {
        layers.command.envs([
            ("MINIO_S3_ENDPOINT", server.endpoint()),
            ("MINIO_S3_BUCKET", "s3mq".to_owned()),
            ("MINIO_S3_ACCESS_KEY", keys.access_key.clone()),
            ("MINIO_S3_SECRET_ACCESS_KEY", keys.secret_key.clone()),
        ]);
    };
    let mut layers = Layers::new(SMALL);
    on_the_store(&mut layers);
    layers.run(0);
    let config = Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
    let store = Store::connect(config).await.unwrap();
    let prefix: Prefix = "adhoc".parse().unwrap();
    let left: Vec<_> = store.objects().list(Some(prefix.path())).try_collect().await.unwrap();
    let is_lock = |object: &ObjectMeta| object.location.filename() == Some(".s3mq-bench.lock");
    assert!(left.iter().all(is_lock), "{left:?}");
    let theirs = prefix.join("s3-messaging/layers/raw/theirs.csv");
    store.objects().put(&theirs, "theirs".into()).await.unwrap();
    let said = layers.run(2);
    assert!(said.contains("raw/theirs.csv") && said.contains("1 object"), "{said}");
    assert_eq!(store.objects().get(&theirs).await.unwrap().bytes().await.unwrap(), "theirs");
    store.objects().delete(&theirs).await.unwrap();

    let mut with_cost = layers.results();
    with_cost["code_cost"] = serde_json::json!({"messages": [1, 2, 3], "deep": {"er": 0.25}});
    fs::write(layers.directory.path().join("results/layers.json"), with_cost.to_string()).unwrap();
    let marks = include_str!("../../../docs/layers.md").lines().filter(|line| line.starts_with("<!-- "));
    let page: Vec<_> = ["before"].into_iter().chain(marks).chain(["after", ""]).collect();
    fs::write(layers.directory.path().join("page.md"), page.join("\n")).unwrap();

    layers.command.arg("--page=page.md");
    layers.run(0);
    assert_eq!(layers.results()["code_cost"], with_cost["code_cost"]);
    let page = layers.read("page.md");
    assert!(page.starts_with("before\n<!-- ") && page.ends_with("\n<!-- end -->\nafter\n"), "{page}");
    assert!(page.contains("| `queue` to `raw` | indistinguishable"), "{page}");
}

#[test]
fn what_can_not_be_measured_or_kept_is_refused_before_anything_is_started() {
    for (arguments, words) in [
        ("--batch-messages 10000000", ["--batch-messages", ""]),
        (
            "--rate 400 --autocommit-duration-ms 1000 --message-size 100000 --batch-messages 4",
            ["--rate", "--autocommit-duration-ms"],
        ),
        ("--rounds 0", ["--rounds", ""]),
        ("--page none.md", ["--page", "none.md"]),
        ("--output /proc/layers.json", ["--output", "/proc"]),
        ("--output /dev/null/layers.json", ["--output", "/dev/null"]),
        ("--bucket other", ["--bucket", "embedded"]),
    ] {
        let said = Layers::new(&format!("--s3-backend embedded {arguments}")).run(2);
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
    }
    // The embedded store's figures would be taken for those of a store whose variables are half set.
    let mut half_set = Layers::new("");
    half_set.command.env("MINIO_S3_BUCKET", "queue");
    let said = half_set.run(2);
    assert!(said.contains("MINIO_S3_BUCKET") && said.contains("MINIO_S3_ENDPOINT"), "{said}");
}

#[test]
fn an_interrupted_measuring_leaves_neither_its_store_nor_results() {
    let mut layers = Layers::new(&SMALL.replace("--rounds 1", "--rounds 1000 --s3-backend embedded"));
    let mut running = layers.command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("trial: ")));
    let pid = Pid::from_raw(running.id() as i32).unwrap();
    // Whichever of its threads has started it.
    let children = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children: String = children.collect();
    kill_process(pid, Signal::INT).unwrap();
    let store: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(layers.directory.path().join("results")).unwrap().count(), 0);
    while test_kill_process(Pid::from_raw(store).unwrap()).is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
