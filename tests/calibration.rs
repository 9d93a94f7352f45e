//! Whether the measuring is right: time that is added in one place has to show there, and nowhere else.
//!
//! The embedded server delays one kind of request by a known time; the bench must find that time in the
//! stage that waits for such a request.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use serde_json::Value;

const DELAY_MS: f64 = 60.0;

/// A kind of request, as a fault rule matches it, and the stage that waits for it.
struct Kind {
    method: &'static str,
    key: &'static str,
    stage: Option<&'static str>,
}

/// No LIST is on a message's path.
const KINDS: [Kind; 5] = [
    Kind { method: "PUT", key: "*/part-*.parquet", stage: Some("stored") },
    Kind { method: "PUT", key: "*/_delta_log/*.json", stage: Some("discovered") },
    Kind { method: "GET", key: "*/_delta_log/*.json", stage: Some("discovered") },
    Kind { method: "GET", key: "*/part-*.parquet", stage: Some("fetched") },
    Kind { method: "LIST", key: "*", stage: None },
];

// Why these bounds don't depend on how fast the machine is:
//
// * The stage that waits for a delayed request can't be quicker than the delay, and without it takes a few
//   milliseconds. How much more it may take is bounded loosely: a GET of an entry that is asked for too
//   early comes back empty a delay later, and only then is the entry asked for again, so the stage rises
//   by between one delay and two.
// * A delay that is booked to the wrong stage moves that one by all of it, more than twice what is allowed.
// * The commit interval is longer than two delays, so that nothing queues up behind a delayed request.
// * What is left is the machine standing still at the wrong moment, which moves a mean of some twenty
//   commits. That passes, a wrong account doesn't: what fails is measured again, with a baseline of its own.
const RIGHT_STAGE_MS: std::ops::Range<f64> = 50.0..260.0;
const OTHER_STAGES_MS: f64 = 25.0;
const ATTEMPTS: usize = 3;

#[test]
fn a_delay_moves_the_stage_that_waits_for_it_and_no_other() {
    let mut baseline = Run::of(None);
    for kind in &KINDS {
        let mut failures = String::new();
        for attempt in 1..=ATTEMPTS {
            let delayed = Run::of(Some(kind));
            let wrong = wrong_moves(&baseline, &delayed, kind.stage);
            if wrong.is_empty() {
                break;
            }
            let (method, key, wrong) = (kind.method, kind.key, wrong.join("; "));
            failures += &format!("{method} {key}, attempt {attempt}: {wrong}\n{}\n", delayed.shown);
            assert!(attempt < ATTEMPTS, "{failures}--- without a delay\n{}", baseline.shown);
            baseline = Run::of(None);
        }
    }
}

/// Where a delayed run differs from one without a delay in a way that it must not.
fn wrong_moves(baseline: &Run, delayed: &Run, right: Option<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((stage, before_ms), (_, after_ms)) in baseline.stages.iter().zip(&delayed.stages) {
        let moved_ms = after_ms - before_ms;
        let as_expected = match right {
            Some(right) if stage == right => RIGHT_STAGE_MS.contains(&moved_ms),
            _ => moved_ms < OTHER_STAGES_MS,
        };
        if !as_expected {
            wrong.push(format!("{stage} moved by {moved_ms:.1} ms"));
        }
    }
    wrong
}

/// One short bench, by the means of its stages.
struct Run {
    /// Name and mean in milliseconds, in their order.
    stages: Vec<(String, f64)>,
    /// Everything about it, for whoever has to find out what went wrong.
    shown: String,
}

impl Run {
    /// Runs it, with requests of one kind delayed or none.
    fn of(kind: Option<&Kind>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_s3mq"));
        command.args(["bench", "--s3-backend", "embedded", "--quiet", "--output-dir", "results"]);
        command.args(["--range-start", "1000", "--range-end", "1000", "--range-step", "1000"]);
        command.args(["--seconds-to-stream", "4", "--autocommit-duration-ms", "200"]);
        command.args(["--poll", "fixed", "--poll-interval-ms", "5"]);
        if let Some(Kind { method, key, .. }) = kind {
            let rule = format!(
                "[[rule]]\nmethod = '{method}'\nkey = '{key}'\naction = 'delay'\ndelay_ms = {DELAY_MS}\n"
            );
            std::fs::write(directory.path().join("delay.toml"), rule).unwrap();
            command.args(["--faults", "delay.toml"]);
        }
        command.env_clear().env("HOME", directory.path()).current_dir(directory.path());
        let output = command.output().unwrap();
        let json = std::fs::read_to_string(directory.path().join("results/1000.json"));
        let stdout = String::from_utf8_lossy(&output.stdout);
        let shown = format!(
            "{command:?}\nended: {}\n--- standard output\n{stdout}\n--- standard error\n{}\n--- result\n{json:?}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{shown}");

        let result: Value = serde_json::from_str(&json.unwrap_or_default()).expect(&shown);
        let first_line = stdout.lines().next().unwrap_or_default();
        assert_eq!(first_line.ends_with("faults injected: delay.toml"), kind.is_some(), "{shown}");
        let faults = result["result"]["faults"].as_array().expect(&shown);
        assert_eq!(faults.len(), usize::from(kind.is_some()), "{shown}");
        let fired = |fault: &Value| fault["fired"] == fault["matched"] && fault["fired"].as_u64() > Some(0);
        assert!(faults.iter().all(fired), "{shown}");

        let latency = &result["result"]["consumer"]["latency"];
        let stages = result["result"]["consumer"]["stages"].as_array().expect(&shown);
        assert_eq!(stages.len(), 10, "{shown}");
        for stage in stages {
            assert_eq!(
                (&stage["count"], stage["negative"].as_u64()),
                (&latency["count"], Some(0)),
                "{shown}"
            );
        }
        let mean_us = |of: &Value| of["mean_us"].as_f64().expect(&shown);
        let sum_us: f64 = stages.iter().map(mean_us).sum();
        assert!((sum_us - mean_us(latency)).abs() < 1.0, "the stages sum up to {sum_us} us\n{shown}");
        let named = |stage: &Value| (stage["stage"].as_str().unwrap().to_owned(), mean_us(stage) / 1e3);
        Self { stages: stages.iter().map(named).collect(), shown }
    }
}
