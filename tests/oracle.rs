//! The figures against an independent computation, and the results against the published schema.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../crates/queue/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use common::is_set_up;

#[test]
fn every_figure_of_a_sweep_is_what_the_raw_values_give() {
    let results = Results::of_bench(
        "--range-start 500 --range-end 1000 --range-step 500 --seconds-to-stream 4 \
         --autocommit-duration-ms 100 --interval-seconds 0.3 --checkpoint-interval 15 --preload-versions 20",
    );
    results.agree_with_the_oracle(&["500", "1000"]);
    results.are_of_the_schema();
}

#[test]
fn the_figures_of_a_few_messages_are_what_the_raw_values_give() {
    let results = Results::of_bench(
        "--range-start 2 --range-end 2 --range-step 1 --seconds-to-stream 4 --warmup-seconds 0 \
         --autocommit-duration-ms 200 --interval-seconds 0.3",
    );
    let latency = &results.json("2")["result"]["consumer"]["latency"];
    assert_eq!(latency["unsupported_percentiles"], serde_json::json!([50, 75, 85, 95, 99]));
    assert!(results.stdout.contains("\n~ fewer than ten messages"), "{}", results.stdout);
    results.agree_with_the_oracle(&["2"]);
    results.are_of_the_schema();
}

#[test]
fn a_rate_of_which_nothing_was_delivered_has_a_readable_result() {
    // It asks when it starts and then not again before the drain deadline.
    let results = Results::of_bench(
        "--range-start 10 --range-end 10 --range-step 1 --seconds-to-stream 1 --autocommit-duration-ms 100 \
         --poll fixed --poll-interval-ms 20000 --drain-timeout-seconds 0.2",
    );
    let result = &results.json("10")["result"];
    assert_eq!(result["verdict"]["outcome"], "collapsed");
    assert_eq!(result["consumer"]["received"], 0);
    results.have_nothing_measured("10");
}

#[test]
fn a_message_within_the_warm_up_has_a_readable_result() {
    let results = Results::of_bench(
        "--range-start 1 --range-end 1 --range-step 1 --seconds-to-stream 1 --autocommit-duration-ms 100",
    );
    let consumer = &results.json("1")["result"]["consumer"];
    assert_eq!((&consumer["received"], &consumer["warmup"]), (&Value::from(1), &Value::from(1)));
    results.have_nothing_measured("1");
}

#[test]
fn the_oracle_finds_a_wrong_figure_in_any_file() {
    let results = Results::of_bench(
        "--range-start 200 --range-end 200 --range-step 1 --seconds-to-stream 2 --autocommit-duration-ms 100",
    );
    let latency = &results.json("200")["result"]["consumer"]["latency"];
    let (p50_us, max_us) = (latency["p50_us"].as_i64().unwrap(), latency["max_us"].as_i64().unwrap());
    let seconds = |us: i64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    for (file, right, wrong) in [
        ("200.json", format!("\"p50_us\": {p50_us},"), format!("\"p50_us\": {},", p50_us * 1003 / 1000)),
        ("200.csv", seconds(p50_us), seconds(p50_us * 997 / 1000)),
        ("summary.csv", seconds(max_us), seconds(max_us + 1)),
        // A message that was received in the second interval came in the first.
        ("200.intervals.csv", "\n1.000000,".to_owned(), "\n1.000000,1".to_owned()),
        ("200.hlog", "Tag=e2e,".to_owned(), "Tag=other,".to_owned()),
    ] {
        let path = results.path(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&right), "{file} has no {right:?}:\n{text}");
        // The last one: in {rate}.csv the final row, in {rate}.json the consumer's own figure.
        let (head, tail) = text.rsplit_once(&right).unwrap();
        fs::write(&path, format!("{head}{wrong}{tail}")).unwrap();
        let Some(output) = results.oracle() else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{file}: {said}");
        assert!(said.contains("DISAGREE"), "{file}: {said}");
        fs::write(&path, text).unwrap();
    }
}

#[test]
fn the_committed_layers_are_of_their_schema() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/layers.json");
    assert_of_schema("layers.schema.json", &[results]);
}

/// What a bench on the embedded store left behind.
struct Results {
    directory: TempDir,
    stdout: String,
}

impl Results {
    fn of_bench(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mq"));
        command
            .args(["bench", "--raw-output", "--quiet", "--output-dir", "."])
            .args(flags.split_whitespace());
        let output = command.env_clear().current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        let results = Self { directory, stdout: String::from_utf8(output.stdout).unwrap() };
        results.have_numbers_only();
        results
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn json(&self, rate: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(&format!("{rate}.json"))).unwrap()).unwrap()
    }

    fn have_numbers_only(&self) {
        for entry in fs::read_dir(self.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            // Base64 may spell anything.
            if path.extension().is_some_and(|extension| extension != "hlog") {
                check_numbers(&fs::read_to_string(&path).unwrap(), &path);
            }
        }
        check_numbers(&self.stdout, Path::new("standard output"));
    }

    fn have_nothing_measured(&self, rate: &str) {
        let consumer = &self.json(rate)["result"]["consumer"];
        assert_eq!(
            (&consumer["latency"], &consumer["stages"]),
            (&Value::Null, &Value::from(Vec::<Value>::new()))
        );
        let rows = fs::read_to_string(self.path(&format!("{rate}.csv"))).unwrap();
        assert_eq!(rows, "time_from_start,p50,p75,p85,p95,p99\n");
        let table_row =
            self.stdout.lines().find(|line| line.trim_start().starts_with(&format!("{rate} "))).unwrap();
        assert!(table_row.split_whitespace().filter(|cell| *cell == "-").count() >= 6, "{}", self.stdout);
        self.agree_with_the_oracle(&[rate]);
        self.are_of_the_schema();
    }

    fn oracle(&self) -> Option<Output> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/oracle.py");
        python(&[script.to_str().unwrap(), self.directory.path().to_str().unwrap()])
    }

    fn agree_with_the_oracle(&self, rates: &[&str]) {
        let Some(output) = self.oracle() else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        for file in rates.iter().flat_map(|rate| {
            ["json", "csv", "intervals.csv", "hlog"]
                .map(|kind| format!("{rate}.{kind}"))
                .into_iter()
                .chain([format!("summary.csv, rate {rate}")])
        }) {
            let compared =
                said.lines().any(|line| line.starts_with(&format!("{file}: ")) && line.contains("agree"));
            assert!(compared, "{file} was not compared:\n{said}");
        }
        // For whoever wants to see how closely (--nocapture).
        println!("{said}");
    }

    fn are_of_the_schema(&self) {
        let files = fs::read_dir(self.directory.path()).unwrap().flatten().map(|entry| entry.path());
        let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        assert!(!files.is_empty());
        assert_of_schema("result.schema.json", &files);
    }
}

/// Checks JSON files against a schema of ours, where Python is set up.
fn assert_of_schema(schema: &str, files: &[PathBuf]) {
    let script = r#"
import json, pathlib, sys
from jsonschema import Draft202012Validator
schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
Draft202012Validator.check_schema(schema)
for path in map(pathlib.Path, sys.argv[2:]):
    for error in Draft202012Validator(schema).iter_errors(json.loads(path.read_text())):
        sys.exit(f"{path.name}: {error.json_path}: {error.message}")
"#;
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(schema);
    let files = files.iter().map(|path| path.to_str().unwrap());
    let arguments: Vec<_> = ["-c", script, schema.to_str().unwrap()].into_iter().chain(files).collect();
    if let Some(output) = python(&arguments) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn check_numbers(text: &str, of: &Path) {
    let words = text.split(|c: char| !c.is_alphanumeric());
    let none = words.map(str::to_lowercase).find(|word| matches!(word.as_str(), "nan" | "inf" | "infinity"));
    assert_eq!(none, None, "{}:\n{text}", of.display());
}

/// Runs Python; `None` where it isn't set up.
fn python(arguments: &[&str]) -> Option<Output> {
    is_set_up("S3MQ_TEST_PYTHON", "Python with the packages numpy, hdrhistogram and jsonschema").then(|| {
        Command::new(std::env::var_os("S3MQ_TEST_PYTHON").unwrap()).args(arguments).output().unwrap()
    })
}
