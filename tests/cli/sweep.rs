//! The main command on a small scale: its files, its figures, its table.

use std::collections::HashMap;

use serde_json::Value;

use crate::harness::{Finished, s3mq};
use crate::store::Store;

const RATES: [u64; 3] = [200, 400, 600];
const SECONDS: u64 = 2;
const SWEEP: &str = "bench --range-start 200 --range-end 600 --range-step 200 --seconds-to-stream 2 \
                     --autocommit-duration-ms 100 --raw-output";

const HEADER: &str = "time_from_start,p50,p75,p85,p95,p99";

#[test]
fn a_sweep_writes_its_results_and_every_message_is_in_them() {
    // A locale that writes a comma where a number has a dot.
    let finished = s3mq(SWEEP).env("LC_ALL", "de_DE.UTF-8").env("LANG", "de_DE.UTF-8").run();
    finished.exits(0);

    let mut expected = vec!["benchmark-results/summary.csv".to_owned()];
    for rate in RATES {
        expected.extend(
            ["csv", "hlog", "intervals.csv", "json", "raw.csv"]
                .map(|kind| format!("benchmark-results/{rate}.{kind}")),
        );
    }
    expected.sort();
    finished.check(finished.files() == expected, format_args!("expected the files {expected:?}"));

    let summary = summary(&finished);
    for (rate, row) in RATES.iter().zip(&summary) {
        let messages = (rate * SECONDS).to_string();
        for (column, expected) in [
            ("rate", rate.to_string().as_str()),
            ("planned", &messages),
            ("committed", &messages),
            ("received", &messages),
            ("unsent", "0"),
            ("lost", "0"),
            ("duplicated", "0"),
            ("out_of_order", "0"),
            ("unreadable", "0"),
        ] {
            finished.check(row[column] == expected, format_args!("rate {rate}: {column} is not {expected}"));
        }
        // Whether a busy machine keeps up is not what is tested here; that it came to its end is.
        let ended = ["sustained", "degrading"].contains(&row["verdict"].as_str());
        finished.check(ended, format_args!("rate {rate} is {}", row["verdict"]));
        let result = &json(&finished, *rate)["result"];
        for received in [&result["producer"]["committed"], &result["consumer"]["received"]] {
            finished.check(received.as_u64() == Some(rate * SECONDS), format_args!("rate {rate}: {result}"));
        }
        rows_are_in_order(&finished, *rate);
        the_last_row_is_what_the_raw_values_give(&finished, *rate);
        the_table_has_the_row(&finished, row);
    }
    finished.check(summary.len() == RATES.len(), "summary.csv has a row for each rate");
}

#[test]
fn fractional_rates_name_their_files_as_they_were_given() {
    let finished =
        s3mq("bench --range-start 0.5 --range-end 1.75 --range-step 1.25 --seconds-to-stream 2").run();
    finished.exits(0);
    for (rate, messages) in [("0.5", 1), ("1.75", 4)] {
        let text = finished.read(&format!("benchmark-results/{rate}.json"));
        let result = serde_json::from_str::<Value>(&text).unwrap();
        let received = &result["result"]["consumer"]["received"];
        finished.check(received.as_u64() == Some(messages), format_args!("rate {rate}: {received} received"));
        finished.read(&format!("benchmark-results/{rate}.csv"));
    }
}

#[test]
fn a_second_sweep_replaces_the_results_of_the_first() {
    let sweep =
        "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 1 --output-dir results";
    let first = s3mq(sweep).arg("--autocommit-duration-ms=50").run();
    first.exits(0);
    // What a bench that was killed leaves behind.
    std::fs::write(first.path("results/100.csv.partial"), "old").unwrap();
    let before = (first.read("results/100.csv"), first.read("results/summary.csv"), first.files());
    let second = s3mq(sweep).arg("--autocommit-duration-ms=200").in_directory_of(&first).run();
    second.exits(0);
    second.check(second.read("results/100.csv") != before.0, "100.csv is the old one");
    second.check(second.read("results/summary.csv") != before.1, "summary.csv is the old one");
    let files = before.2.iter().filter(|name| !name.ends_with(".partial")).cloned().collect::<Vec<_>>();
    second.check(second.files() == files, "the files are not the same as before");
    let run = serde_json::from_str::<Value>(&second.read("results/100.json")).unwrap();
    second.check(run["run"]["autocommit_duration_ms"] == 200, "100.json is the old one");
}

#[test]
fn a_sweep_takes_its_options_from_the_environment_too() {
    let store = Store::start();
    let finished = store
        .s3mq("bench")
        .env("S3MQ_RANGE_START", "50")
        .env("S3MQ_RANGE_END", "50")
        .env("S3MQ_RANGE_STEP", "50")
        .env("S3MQ_SECONDS_TO_STREAM", "1")
        .env("S3MQ_MESSAGE_SIZE", "100")
        .env("S3MQ_AUTOCOMMIT_DURATION_MS", "100")
        .env("S3MQ_POLL", "fixed")
        .env("S3MQ_POLL_INTERVAL_MS", "7")
        .env("S3MQ_PREFIX", "from/the/environment")
        .env("S3MQ_OUTPUT_DIR", "elsewhere")
        .env("S3MQ_KEEP_DATA", "1")
        .env("S3MQ_QUIET", "no")
        // Empty counts as not set.
        .env("S3MQ_BUCKET", "")
        .env("S3MQ_PAYLOAD", "")
        .env("S3MQ_VERBOSE", "")
        // Meant for a consumer on its own; nothing may reach the children past their flags.
        .env("S3MQ_EXPECTED_MESSAGES", "1")
        .run();
    finished.exits(0);
    let result = serde_json::from_str::<Value>(&finished.read("elsewhere/50.json")).unwrap();
    finished.check(result["run"]["message_bytes"] == 100, "message_bytes");
    finished.check(result["run"]["poll_interval_ms"] == 7.0, "poll_interval_ms");
    finished.check(result["result"]["consumer"]["received"] == 50, "received");
    assert!(store.keys().iter().any(|key| key.starts_with("from/the/environment/50/")), "{:?}", store.keys());
}

#[test]
fn values_may_be_as_odd_as_the_bench_takes_them() {
    let store = Store::start();
    let finished = store
        .s3mq("bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 1 --keep-data")
        .arg("--autocommit-duration-ms=100")
        .arg("--prefix=-a b/#?ü")
        .arg("--output-dir=-results of 100 %")
        .arg("--drain-timeout-seconds=31622400")
        .run();
    finished.exits(0);
    finished.read("-results of 100 %/100.csv");
    let keys = store.keys();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("-a b/#?ü/100/")), "{keys:?}");
}

#[test]
fn a_second_bench_on_one_directory_is_refused() {
    let sweep =
        "bench --range-start 10 --range-end 10 --range-step 1 --seconds-to-stream 50 --output-dir results";
    let mut first = s3mq(sweep).spawn();
    first.wait_for_line("which store it uses", |line| line.contains("store: ").then_some(()));
    let results = first.path("results");
    let second =
        s3mq("bench --range-start 10 --range-end 10 --range-step 1 --output-dir").arg(&results).run();
    second.exits(1).complains(&["another bench", "--output-dir", &results.display().to_string()]);
}

fn rows_are_in_order(finished: &Finished, rate: u64) {
    let text = finished.read(&format!("benchmark-results/{rate}.csv"));
    let mut lines = text.lines();
    finished.check(lines.next() == Some(HEADER), format_args!("{rate}.csv has another header"));
    let mut last_time = 0.0;
    for line in lines {
        let digits = line.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','));
        let fields: Vec<f64> = line.split(',').map_while(|field| field.parse().ok()).collect();
        finished.check(digits && fields.len() == 6, format_args!("{rate}.csv: not six numbers: {line}"));
        finished.check(fields[0] >= last_time, format_args!("{rate}.csv: time runs back: {line}"));
        finished.check(fields[1..].is_sorted(), format_args!("{rate}.csv: percentiles run back: {line}"));
        last_time = fields[0];
    }
    finished.check(last_time > 0.0, format_args!("{rate}.csv has no rows"));
}

/// Nearest rank over the messages that were due after the first tenth of the run.
fn the_last_row_is_what_the_raw_values_give(finished: &Finished, rate: u64) {
    let text = finished.read(&format!("benchmark-results/{rate}.raw.csv"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let messages: Vec<(i64, i64)> = reader.deserialize().map(Result::unwrap).collect();
    finished.check(messages.len() as u64 == rate * SECONDS, format_args!("{rate}.raw.csv lacks messages"));
    let warm_from_us = messages[0].0 + SECONDS as i64 * 1_000_000 / 10;
    let measured = messages.iter().filter(|(due_us, _)| *due_us >= warm_from_us);
    let mut latencies_us: Vec<_> = measured.map(|(due_us, received_us)| received_us - due_us).collect();
    latencies_us.sort_unstable();

    let text = finished.read(&format!("benchmark-results/{rate}.csv"));
    let reported =
        text.lines().last().unwrap().split(',').skip(1).map(|field| field.parse::<f64>().unwrap() * 1e6);
    for (percentile, reported_us) in [50, 75, 85, 95, 99].into_iter().zip(reported) {
        let rank = (latencies_us.len() * percentile).div_ceil(100);
        let exact_us = latencies_us[rank - 1] as f64;
        let agree = (reported_us - exact_us).abs() <= exact_us * 0.001 + 0.5;
        finished.check(
            agree,
            format_args!("rate {rate}: p{percentile} is {exact_us} µs, reported {reported_us}"),
        );
    }
}

fn the_table_has_the_row(finished: &Finished, row: &HashMap<String, String>) {
    // Counts are grouped for people.
    let plain = finished.stdout.replace(',', "");
    let found = plain.lines().any(|line| {
        let cells: Vec<_> = line.split_whitespace().collect();
        cells.len() > 3 && cells[..3] == [&row["rate"], &row["committed"], &row["received"]]
    });
    finished.check(found, format_args!("the table has no row for rate {}", row["rate"]));
}

fn json(finished: &Finished, rate: u64) -> Value {
    serde_json::from_str(&finished.read(&format!("benchmark-results/{rate}.json"))).unwrap()
}

fn summary(finished: &Finished) -> Vec<HashMap<String, String>> {
    let text = finished.read("benchmark-results/summary.csv");
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(Result::unwrap).collect()
}
