//! Faults that are asked for on the command line.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::s3mq;
use crate::store::Store;

const BENCH: &str = "bench --range-start 500 --range-end 500 --range-step 1 --seconds-to-stream 2 \
                     --autocommit-duration-ms 50 --quiet";

/// A fault file outside the directory of the command that reads it.
fn file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("faults.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

#[test]
fn a_file_that_is_wrong_is_refused_by_file_rule_and_key() {
    let (_directory, path) = file("[[rule]]\nname = 'storm'\naction = 'status'\nstatus = 700");
    let name = path.display().to_string();
    for command in ["serve", BENCH] {
        s3mq(command).arg("--faults").arg(&path).run().refuses(&[
            "--faults",
            &name,
            "rule 1 (`storm`)",
            "`status`",
        ]);
        s3mq(command).arg("--faults=/absent.toml").run().refuses(&["--faults", "/absent.toml"]);
    }
    let (_directory, right) = file("[[rule]]\naction = 'reset'");
    s3mq(BENCH)
        .env("MINIO_S3_ENDPOINT", "http://127.0.0.1:1")
        .env("MINIO_S3_BUCKET", "queue")
        .arg("--faults")
        .arg(&right)
        .run()
        .refuses(&["--faults", "embedded", "--proxy"]);
}

#[test]
fn a_lock_whose_answers_get_lost_stays_the_benchs_own() {
    // As it is taken, and at the first heartbeat: applied, said to have failed, and found there when sent again.
    let (_directory, path) = file(
        "[[rule]]\nmethod = 'PUT'\nkey = '*/.s3mq-bench.lock'\nnth = [1, 3]\naction = 'apply-then-status'\nstatus = 500",
    );
    let bench = "bench --range-start 50 --range-end 50 --range-step 1 --seconds-to-stream 7 --quiet";
    let finished = s3mq(bench).arg("--faults").arg(&path).run();
    finished.exits(0);
    finished.check(!finished.stderr.contains("another bench"), "it takes itself for another");
    let result = finished.read("benchmark-results/50.json");
    finished.check(result.contains("\"received\": 350,"), "not all came");
}

#[test]
fn a_bench_over_faults_loses_nothing_and_says_what_fired() {
    let (_directory, path) = file(
        "[[rule]]\nname = 'lost'\nmethod = 'PUT'\nkey = '*/_delta_log/*.json'\nevery = 3\naction = 'apply-then-reset'\n\
         [[rule]]\nmethod = 'PUT'\nkey = '*.parquet'\nnth = 2\naction = 'status'\nstatus = 503\n\
         [[rule]]\nkey = 'nothing'\naction = 'stall'",
    );
    let finished = s3mq(BENCH).arg("--faults").arg(&path).run();
    finished.exits(0);
    let result =
        &serde_json::from_str::<Value>(&finished.read("benchmark-results/500.json")).unwrap()["result"];
    finished.check(result["consumer"]["received"] == 1000, format_args!("not all came: {result}"));
    let faults = result["faults"].as_array().unwrap();
    let names: Vec<_> = faults.iter().map(|fault| (&fault["rule"], &fault["action"])).collect();
    finished.check(
        names
            == [
                (&Value::from("lost"), &Value::from("apply-then-reset")),
                (&Value::from("rule 2"), &Value::from("status")),
                (&Value::from("rule 3"), &Value::from("stall")),
            ],
        format_args!("{names:?}"),
    );
    let (matched, fired) = (faults[0]["matched"].as_u64().unwrap(), faults[0]["fired"].as_u64().unwrap());
    finished.check(fired > 0 && fired == matched / 3, format_args!("{faults:?}"));
    finished.check(faults[1]["fired"] == 1 && faults[2]["matched"] == 0, format_args!("{faults:?}"));
    // Which rule it is: by its place and by what it matches.
    let matcher = "method = \"PUT\", key = \"*/_delta_log/*.json\", every = 3";
    finished.check(faults[0]["matcher"] == matcher && faults[0]["position"] == 1, format_args!("{faults:?}"));
    for said in [
        format!(
            "rate 500: fault rule 1 \"lost\" (apply-then-reset; {matcher}): fired {fired} of {matched} times\n"
        ),
        "rate 500: fault rule 2 (status; method = \"PUT\", key = \"*.parquet\", nth = 2): fired 1 of "
            .to_owned(),
        "rate 500: fault rule 3 (stall; key = \"nothing\"): fired 0 of 0 times\n".to_owned(),
    ] {
        finished.check(finished.stdout.contains(&said), format_args!("the console does not say {said}"));
    }
}

/// A figure that was taken under faults can't be mistaken for one of a store as it is.
#[test]
fn every_result_says_that_there_were_faults() {
    let (_directory, path) =
        file("seed = 7\n[[rule]]\nkey = '*.parquet'\nprobability = 0.5\naction = 'delay'\ndelay_ms = 1");
    let name = path.display().to_string();
    let injected = format!("faults injected: {name}");
    let finished = s3mq(BENCH).arg("--faults").arg(&path).run();
    finished.exits(0);
    let first = finished.stdout.lines().next().unwrap();
    finished.check(first.ends_with(&format!(", {injected}")), first);
    let below = format!("\n{injected}; these are no figures of a store as it is\n");
    finished.check(finished.stdout.contains(&below), "it is not said below the tables");
    let run = &serde_json::from_str::<Value>(&finished.read("benchmark-results/500.json")).unwrap()["run"];
    let rule = serde_json::json!({"key": "*.parquet", "probability": 0.5, "action": "delay", "delay_ms": 1});
    let rules = serde_json::json!({"file": name, "seed": 7, "rules": [rule]});
    finished.check(run["faults"] == rules, format_args!("{}", run["faults"]));
    let summary = finished.read("benchmark-results/summary.csv");
    let row: std::collections::BTreeMap<String, String> =
        csv::Reader::from_reader(summary.as_bytes()).deserialize().next().unwrap().unwrap();
    finished.check(row["faults"] == name, &summary);
    finished.check(row["store_server"].ends_with(" (faults injected)"), &summary);
    finished.check(row["store_model"].is_empty(), &summary);
}

#[test]
fn a_bench_that_knows_nothing_of_them_hears_of_faults_from_the_server() {
    let (_directory, path) = file("[[rule]]\nkey = 'nothing'\naction = 'reset'");
    let mut server = s3mq("serve --store-model minio-lan").arg("--faults").arg(&path).spawn();
    let said = format!("# faults injected: {}", path.display());
    server.wait_for_line("that there are faults", |line| (line == said).then_some(()));
    let store = Store::of(server);
    let mut proxy =
        store.s3mq("serve").arg("--faults").arg(&path).arg("--proxy").arg(store.endpoint()).spawn();
    let endpoint = proxy.wait_for_line("its endpoint", |line| {
        line.strip_prefix("export MINIO_S3_ENDPOINT=").map(str::to_owned)
    });
    for (endpoint, more) in [(store.endpoint(), ""), (&endpoint, " (faults injected)")] {
        let finished = store.s3mq(BENCH).env("MINIO_S3_ENDPOINT", endpoint).run();
        finished.exits(0);
        let name = format!(" (modelled: minio-lan; faults injected){more}");
        let said = format!("{name}; these are no figures of a store as it is");
        let is_said = |line: &str| line.starts_with("the store calls itself s3mq/") && line.ends_with(&said);
        finished.check(finished.stdout.lines().any(is_said), "the console does not say it");
        let summary = finished.read("benchmark-results/summary.csv");
        finished.check(summary.ends_with(&format!("{name}\n")), &summary);
    }
}

#[test]
fn a_rate_that_failed_says_what_fired() {
    let (_directory, path) =
        file("[[rule]]\nmethod = 'PUT'\nkey = '*.parquet'\naction = 'status'\nstatus = 403");
    let finished = s3mq(BENCH).arg("--faults").arg(&path).run();
    finished.exits(1);
    let said = "rate 500: fault rule 1 (status; method = \"PUT\", key = \"*.parquet\"): fired 1 of 1 times\n";
    finished.check(finished.stdout.contains(said), format_args!("the console does not say {said}"));

    let (_directory, path) = file("[[rule]]\nmethod = 'LIST'\naction = 'status'\nstatus = 403");
    let finished = s3mq(BENCH).arg("--faults").arg(&path).run();
    finished.exits(1);
    let said = "before the first rate: fault rule 1 (status; method = \"LIST\"): fired ";
    finished.check(finished.stdout.contains(said), format_args!("the console does not say {said}"));
}

#[test]
fn without_faults_there_are_none_in_the_result() {
    let finished = s3mq(BENCH).run();
    finished.exits(0);
    let result =
        &serde_json::from_str::<Value>(&finished.read("benchmark-results/500.json")).unwrap()["result"];
    finished.check(result["faults"] == Value::Array(Vec::new()), "there are faults");
    finished.check(!finished.stdout.contains("faults"), "the console speaks of faults");
}

#[test]
fn serve_says_at_its_end_what_fired_and_logs_each_time() {
    let (_directory, path) =
        file("[[rule]]\nname = 'no list'\nmethod = 'LIST'\naction = 'status'\nstatus = 500\ntimes = 1");
    let store = Store::of(s3mq("serve").arg("--faults").arg(&path).env("RUST_LOG", "s3mq=info").spawn());
    // It is tried again.
    store.s3mq("check").run().exits(0);
    store.signal(Signal::INT);
    let finished = store.finish();
    finished.exits(130);
    let said = "# fault rule 1 \"no list\" (status; method = \"LIST\", times = 1): fired 1 of ";
    finished.check(finished.stdout.contains(said), format_args!("it does not say {said}"));
    for word in ["fault", "no list", "status", "nth=1", "LIST"] {
        finished.check(finished.stderr.contains(word), format_args!("the log does not say {word}"));
    }
}

#[test]
fn a_proxy_puts_faults_in_front_of_another_store() {
    let (_directory, path) = file(
        "[[rule]]\nname = 'lost'\nmethod = 'PUT'\nkey = '*/_delta_log/*.json'\nevery = 3\naction = 'apply-then-reset'",
    );
    let store = Store::start();
    let mut proxy = store.s3mq("serve").arg("--faults").arg(&path);
    proxy = proxy.arg("--proxy").arg(store.endpoint());
    let mut proxy = proxy.spawn();
    let line = |wanted: &'static str| move |line: &str| line.strip_prefix(wanted).map(str::to_owned);
    let upstream = proxy.wait_for_line("what it is before", line("# proxy at "));
    assert!(upstream.ends_with(&format!("bucket and keys are those of {}", store.endpoint())), "{upstream}");
    let endpoint = proxy.wait_for_line("its endpoint", line("export MINIO_S3_ENDPOINT="));

    let finished = store.s3mq(BENCH).env("MINIO_S3_ENDPOINT", &endpoint).run();
    finished.exits(0);
    let result =
        &serde_json::from_str::<Value>(&finished.read("benchmark-results/500.json")).unwrap()["result"];
    finished.check(result["consumer"]["received"] == 1000, format_args!("not all came: {result}"));
    // They are the proxy's, which the bench knows nothing of.
    finished.check(result["faults"] == Value::Array(Vec::new()), "the bench knows of faults");

    proxy.signal(Signal::INT);
    let finished = proxy.finish();
    finished.exits(130);
    let fired = finished.stdout.lines().find_map(|line| {
        line.strip_prefix("# fault rule 1 \"lost\" (apply-then-reset; ")?.split_once(": fired ")
    });
    finished.check(fired.is_some_and(|(_, fired)| !fired.starts_with("0 ")), "no answer was lost");
}

#[test]
fn what_does_not_go_with_a_proxy_is_refused() {
    let proxy = || s3mq("serve --proxy http://127.0.0.1:1");
    proxy().arg("--data-dir=data").run().refuses(&["--data-dir", "--proxy"]);
    proxy().arg("--bucket=mine").run().refuses(&["--bucket together with --proxy"]);
    proxy().arg("--bucket=mine").arg("--data-dir=data").run().refuses(&["--data-dir and --bucket together"]);
    for wrong in ["https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:1/path"] {
        s3mq("serve --proxy").arg(wrong).run().refuses(&["--proxy", wrong, "http://host:port"]);
    }
    let (_directory, path) =
        file("[[rule]]\naction = 'reset'\n[[rule]]\nname = 'x'\naction = 'ignore-condition'");
    proxy().arg("--faults").arg(&path).run().refuses(&["rule 2 (`x`)", "`ignore-condition`", "--proxy"]);
}

#[test]
fn a_check_survives_what_is_retryable() {
    // The answer to its PUT is lost, then the connection of the one that must be refused; a body is cut off, and so on.
    let (_directory, path) = file(
        "[[rule]]\nmethod = 'PUT'\nnth = 1\naction = 'apply-then-reset'\n\
         [[rule]]\nmethod = 'PUT'\nnth = 3\naction = 'reset'\n\
         [[rule]]\nmethod = 'GET'\nnth = 1\naction = 'truncate'\nbytes = 2\n\
         [[rule]]\nmethod = 'LIST'\nnth = [1, 2, 3, 4, 5]\naction = 'status'\nstatus = 502\n\
         [[rule]]\nmethod = ['DELETE', 'POST']\nnth = 1\naction = 'reset'",
    );
    let store = Store::of(s3mq("serve").arg("--faults").arg(&path).spawn());
    store.s3mq("check").run().exits(0);
    store.signal(Signal::INT);
    let finished = store.finish();
    finished.exits(130);
    let fired = finished.stdout.lines().filter(|line| line.contains(": fired ")).collect::<Vec<_>>();
    let all = fired.len() == 5 && fired.iter().all(|line| !line.contains("fired 0 "));
    finished.check(all, format_args!("not all fired: {fired:?}"));
}
