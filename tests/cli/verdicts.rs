//! Each verdict, made to happen.

use serde_json::Value;

use crate::harness::{Finished, s3mq};
use crate::processes::wait_for;
use crate::store::Store;

#[track_caller]
fn verdict(finished: &Finished, rate: &str) -> Value {
    let result: Value =
        serde_json::from_str(&finished.read(&format!("benchmark-results/{rate}.json"))).unwrap();
    let verdict = result["result"]["verdict"].clone();
    let summary = finished.read("benchmark-results/summary.csv");
    let outcome = verdict["outcome"].as_str().unwrap();
    finished.check(summary.contains(&format!("\n{rate},{outcome},")), "summary.csv says otherwise");
    verdict
}

#[test]
fn a_store_that_takes_less_than_is_sent_makes_a_rate_degrade() {
    // A hundred megabytes a second are due; four files of 32 MiB at a time, two seconds each, are 67.
    let bench = s3mq(
        "bench --s3-backend embedded --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 5 \
         --autocommit-duration-ms 100 --message-size 1000000 --warmup-seconds 0 --quiet",
    )
    .delaying("method = 'PUT'\nkey = '*.parquet'\ndelay_ms = 2_000")
    .run();
    bench.exits(0);
    let verdict = verdict(&bench, "100");
    bench.check(verdict["outcome"] == "degrading", format_args!("{verdict}"));
    bench.check(verdict["reasons"][0].as_str().unwrap().contains("of the target"), format_args!("{verdict}"));
}

#[test]
fn a_consumer_that_does_not_catch_up_makes_a_rate_collapse() {
    let bench = s3mq(
        "bench --s3-backend embedded --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 2 \
         --autocommit-duration-ms 100 --drain-timeout-seconds 0.2 --warmup-seconds 0 --quiet",
    )
    .delaying("method = 'GET'\nkey = '*.parquet'\ndelay_ms = 3_000")
    .run();
    bench.exits(0);
    let verdict = verdict(&bench, "100");
    bench.check(verdict["outcome"] == "collapsed", format_args!("{verdict}"));
}

#[test]
fn a_data_file_that_can_not_be_read_makes_a_rate_lossy() {
    // Answers about the log come late: a file can be spoiled between its commit and its being fetched.
    let server = s3mq("serve --data-dir data");
    let delayed = "method = 'GET'\nkey = '*/_delta_log/*.json'\ndelay_ms = 1_000";
    let store = Store::of(server.delaying(delayed).spawn());
    let bench = store
        .s3mq(
            "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 4 \
             --autocommit-duration-ms 500 --drain-timeout-seconds 30 --warmup-seconds 0 --quiet",
        )
        .spawn();
    wait_for("a data file to spoil", || (store.spoil(".parquet") > 0).then_some(()));
    let bench = bench.finish();
    bench.exits(3);
    let verdict = verdict(&bench, "100");
    bench.check(verdict["outcome"] == "lossy", format_args!("{verdict}"));
}
