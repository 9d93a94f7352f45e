//! Where results go, and what becomes of them when that is full, gone, or not empty.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::harness::{Finished, Running, s3mq};
use crate::processes::{Process, children, wait_for};
use crate::store::Store;

const SWEEP: &str = "bench --range-start 200 --range-end 400 --range-step 200 --seconds-to-stream 3 \
                     --autocommit-duration-ms 100 --warmup-seconds 0 --quiet";
const RATE: &str = "bench --range-start 200 --range-end 200 --range-step 1 --seconds-to-stream 1 \
                    --autocommit-duration-ms 100 --quiet";

/// From now on no file of this process may grow, as on a full disk.
fn fill_disk(pid: u32) {
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Pid::from_raw(pid as i32), Resource::Fsize, nothing).unwrap();
}

/// A sweep whose first rate is finished, and its second rate's consumer.
fn in_the_second_rate() -> (Running, Process) {
    let bench = s3mq(SWEEP).spawn();
    let consumer = wait_for("the second consumer", || {
        let is_it = |child: &Process| child.command.contains(" consumer ") && child.command.contains("/400 ");
        children(bench.pid()).into_iter().find(is_it)
    });
    let rows = bench.path("benchmark-results/400.csv.partial");
    wait_for("rows", || (fs::read_to_string(&rows).ok()?.lines().count() > 1).then_some(()));
    (bench, consumer)
}

#[track_caller]
fn the_first_rate_is_whole_and_alone(finished: &Finished) {
    for name in ["200.csv", "200.hlog", "200.intervals.csv", "200.json"] {
        finished.read(&format!("benchmark-results/{name}"));
    }
    let summary = finished.read("benchmark-results/summary.csv");
    finished.check(summary.lines().count() == 2 && summary.contains("\n200,"), &summary);
    finished.check(
        !finished.files().iter().any(|name| name.ends_with("/400.json")),
        "the second rate has a result",
    );
}

#[test]
fn a_disk_that_is_full_for_the_consumer_ends_the_bench() {
    let (bench, consumer) = in_the_second_rate();
    fill_disk(consumer.pid);
    let finished = bench.finish();
    finished.exits(1).complains(&["rate 400", "consumer", "cannot write results", "400.", "File too large"]);
    the_first_rate_is_whole_and_alone(&finished);
    finished
        .check(finished.files().iter().any(|name| name.ends_with("400.csv.partial")), "nothing is partial");
}

#[test]
fn a_disk_that_is_full_for_the_bench_ends_it() {
    let (bench, _) = in_the_second_rate();
    fill_disk(bench.pid());
    let finished = bench.finish();
    finished.exits(1).complains(&["cannot write results", "400.", "File too large"]);
    the_first_rate_is_whole_and_alone(&finished);
}

#[test]
fn results_that_are_gone_in_the_middle_of_a_run_end_it() {
    let (bench, _) = in_the_second_rate();
    fs::remove_dir_all(bench.path("benchmark-results")).unwrap();
    let finished = bench.finish();
    finished.exits(1).complains(&["rate 400", "consumer", "cannot write results", "400.csv", "No such file"]);
}

#[test]
fn results_that_nobody_can_read_are_no_success() {
    let store = Store::start();
    store.s3mq("producer --lake-path full --rate max --messages 5").run().exits(0);
    for command in [
        RATE,
        "check --round-trips 1",
        "consumer --lake-path full",
        "producer --lake-path other --rate max --messages 1",
    ] {
        let finished = store.s3mq(command).stdout_to("/dev/full").run();
        finished.exits(1).complains(&["standard output could not be written"]);
    }
    // A failure of its own says more.
    let finished = store.s3mq("consumer --lake-path full --expected-messages 9 --drain-timeout-seconds 0.1");
    finished.stdout_to("/dev/full").run().exits(1).complains(&["--drain-timeout-seconds"]);
}

#[test]
fn a_standard_error_that_can_not_be_written_is_nobodys_failure() {
    let finished = s3mq(RATE).env("RUST_LOG", "trace").stderr_to("/dev/full").run();
    finished.exits(0);
    finished.read("benchmark-results/200.json");
}

#[test]
fn a_sweep_does_not_mix_its_results_with_those_of_an_earlier_one() {
    let first = s3mq(SWEEP).arg("--raw-output").run();
    first.exits(0);
    let old = first.read("benchmark-results/400.json");
    let again = s3mq(RATE).in_directory_of(&first).run();
    again.exits(0);
    // Of the rate that was run again there is nothing old, not even what is not written any more.
    let files = again.files();
    again.check(!files.contains(&"benchmark-results/200.raw.csv".to_owned()), "an old raw file is left");
    // The other rate's are still there, and not in the list.
    again.check(again.read("benchmark-results/400.json") == old, "the other rate has changed");
    let summary = again.read("benchmark-results/summary.csv");
    again.check(summary.lines().count() == 2 && summary.contains("\n200,"), &summary);

    // A sweep that finishes nothing lists nothing.
    let running = s3mq(SWEEP).in_directory_of(&again).spawn();
    wait_for("the roles", || (children(running.pid()).len() == 2).then_some(()));
    running.signal(Signal::INT);
    let interrupted = running.finish();
    interrupted.exits(130);
    let files = interrupted.files();
    interrupted.check(!files.contains(&"benchmark-results/summary.csv".to_owned()), "an old summary is left");
    let whole = files.iter().any(|name| name.contains("/200.") && !name.ends_with(".partial"));
    interrupted.check(!whole, "old files of the interrupted rate are left");
}

#[test]
fn a_bench_that_ends_early_leaves_nothing_in_the_store() {
    let store = Store::start();
    for (signal, code) in [(Signal::INT, 130), (Signal::KILL, 1)] {
        let bench = store.s3mq(SWEEP).spawn();
        let producer = wait_for("the producer", || {
            children(bench.pid()).into_iter().find(|child| child.command.contains(" producer "))
        });
        wait_for("data", || store.keys().iter().any(|key| key.ends_with(".parquet")).then_some(()));
        match signal {
            Signal::INT => bench.signal(signal),
            _ => producer.signal(signal),
        }
        bench.finish().exits(code);
        assert_eq!(store.keys(), Vec::<String>::new());
    }
    // Unless that was asked for.
    let bench = store.s3mq(SWEEP).arg("--keep-data").spawn();
    wait_for("data", || store.keys().iter().any(|key| key.ends_with(".parquet")).then_some(()));
    bench.signal(Signal::INT);
    bench.finish().exits(130);
    assert!(store.keys().iter().any(|key| key.ends_with(".parquet")));
}

#[test]
fn help_that_can_not_be_written_is_a_failure() {
    for command in ["--help", "--version", "bench --help", "help bench"] {
        s3mq(command)
            .stdout_to("/dev/full")
            .run()
            .exits(1)
            .complains(&["standard output could not be written"]);
        s3mq(command).run().exits(0);
    }
}
