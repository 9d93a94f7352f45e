//! What a package manager, a supervisor or a terminal does to a process: its binary is replaced while it runs, its children
//! hear a signal first, its terminal has no colours.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{by, s3mq};
use crate::processes::{children, wait_for};
use crate::store::Store;

const S3MQ: &str = env!("CARGO_BIN_EXE_s3mq");
const TWO_RATES: &str = "bench --range-start 200 --range-end 400 --range-step 200 --seconds-to-stream 2 \
                         --autocommit-duration-ms 50 --checkpoint-interval 10 --warmup-seconds 0 --quiet";

/// An upgrade in the middle of a sweep.
#[test]
fn a_binary_that_is_replaced_while_it_runs_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("s3mq");
    fs::copy(S3MQ, &copy).unwrap();
    let bench = by(&[copy.to_str().unwrap()], TWO_RATES).spawn();
    let child = wait_for("a child", || children(bench.pid()).into_iter().next());
    wait_for("its name", || {
        (fs::read_to_string(format!("/proc/{}/comm", child.pid)).ok()? == "s3mq\n").then_some(())
    });
    // As package managers do it: another file gets the name.
    let other = directory.path().join("other");
    fs::write(&other, "#!/bin/sh\nexit 77\n").unwrap();
    fs::rename(&other, &copy).unwrap();
    let finished = bench.finish();
    finished.exits(0);
    for rate in [200, 400] {
        let result: Value =
            serde_json::from_str(&finished.read(&format!("benchmark-results/{rate}.json"))).unwrap();
        let checkpoints = &result["result"]["producer"]["checkpoints"];
        finished.check(checkpoints["made"].as_u64() > Some(0) && checkpoints["failed"] == 0, checkpoints);
    }
}

/// A shell or a supervisor may signal children before their parent.
#[test]
fn a_signal_that_the_children_hear_first_is_an_interruption_all_the_same() {
    for (options, count) in [("", 2), ("--preload-versions 100000", 1)] {
        let bench = s3mq(&format!("{TWO_RATES} {options}")).spawn();
        let roles = wait_for("its children", || {
            let roles = children(bench.pid());
            (roles.len() == count).then_some(roles)
        });
        roles.iter().for_each(|role| role.signal(Signal::INT));
        std::thread::sleep(Duration::from_millis(20));
        bench.signal(Signal::INT);
        bench.finish().exits(130).complains(&["interrupted"]);
    }
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    if !Path::new("/usr/bin/script").exists() {
        eprintln!("skipped: needs script (util-linux)");
        return;
    }
    let store = Store::start();
    let said = |name: &str, value: &str| {
        // `script` gives it a terminal.
        let producer = format!("{S3MQ} producer --lake-path queue --rate max --messages 1");
        let run = by(&["script", "-qec", &producer, "/dev/null"], "")
            .env("RUST_LOG", "s3mq_queue=debug")
            .env("TERM", "xterm")
            .env(name, value);
        let finished = store.variables().fold(run, |run, (name, value)| run.env(name, value)).run();
        finished.exits(0).check(finished.stdout.contains("committed"), "nothing was logged");
        finished.stdout
    };
    assert!(said("COLUMNS", "200").contains("\x1b["), "a terminal has colours");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let said = said(name, value);
        // A progress bar may still move the cursor.
        let mut sequences = said.split("\x1b[").skip(1);
        let is_colour = |sequence: &str| {
            sequence.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
        };
        assert!(!sequences.any(is_colour), "{name}: {said}");
    }
}

/// What a minimal container or a scheduler leaves out.
#[test]
fn little_of_an_environment_is_enough() {
    const RATE: &str = "bench --rate 200 --seconds-to-stream 1 --autocommit-duration-ms 50 --quiet";
    // No HOME, no PATH, no TMPDIR, a time zone with an odd offset.
    let bare = s3mq(RATE).env_remove("HOME").env("TZ", "Asia/Kathmandu").run();
    bare.exits(0);
    let result: Value = serde_json::from_str(&bare.read("benchmark-results/200.json")).unwrap();
    let begun = result["run"]["begun"].as_str().unwrap();
    bare.check(begun.ends_with('Z'), begun);
    // Standard input is closed, or standard output is a pipe whose reader has gone.
    for shell in ["exec \"$0\" \"$@\" <&-", "\"$0\" \"$@\" | true"] {
        let finished = by(&["sh", "-c", shell, S3MQ], RATE).env("PATH", "/usr/bin:/bin").run();
        finished.exits(0);
        finished.read("benchmark-results/200.json");
    }
    // A root and a /tmp that can't be written to.
    let unshare = "mount -o remount,ro,bind / 2>/dev/null || mount --bind -o ro / /; exec \"$0\" \"$@\"";
    let read_only = by(&["unshare", "--mount", "sh", "-c", unshare, S3MQ], RATE).env("PATH", "/usr/bin:/bin");
    let finished = read_only.arg("--output-dir=/dev/shm/s3mq-test-results").run();
    let _ = fs::remove_dir_all("/dev/shm/s3mq-test-results");
    if finished.stderr.contains("unshare") {
        eprintln!("skipped: needs the right to make a mount namespace");
        return;
    }
    finished.exits(0);
}
