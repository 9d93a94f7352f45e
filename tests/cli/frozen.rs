//! A process that stands still: what was due meanwhile was due all the same, the figures say so, and one that never goes
//! on ends the bench.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{S3mq, s3mq};
use crate::processes::{Process, children, wait_for};
use crate::store::Store;

#[test]
fn messages_that_were_due_while_the_producer_was_frozen_are_late_by_the_schedule() {
    let bench = s3mq(
        "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 10 --autocommit-duration-ms 100 \
         --warmup-seconds 0 --raw-output --quiet",
    )
    .spawn();
    let producer = wait_for("the producer", || {
        children(bench.pid()).into_iter().find(|child| child.command.contains(" producer "))
    });
    wait_for("rows", || {
        let text = fs::read_to_string(bench.path("benchmark-results/100.csv.partial")).ok()?;
        (text.lines().count() > 1).then_some(())
    });
    producer.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(5));
    producer.signal(Signal::CONT);
    let finished = bench.finish();
    finished.exits(0);

    // Of five seconds at a hundred a second, what was due in the first four came more than a second late.
    let raw = finished.read("benchmark-results/100.raw.csv");
    let late = raw.lines().skip(1).filter(|line| {
        let (due_us, received_us) = line.split_once(',').unwrap();
        received_us.parse::<i64>().unwrap() - due_us.parse::<i64>().unwrap() > 1_000_000
    });
    let late = late.count();
    finished.check((395..=600).contains(&late), format_args!("{late} messages more than a second late"));

    let result: Value = serde_json::from_str(&finished.read("benchmark-results/100.json")).unwrap();
    let at = |pointer: &str| result.pointer(pointer).and_then(Value::as_u64).unwrap();
    finished.check(at("/result/consumer/received") == 1_000, "not all came");
    let pause = result.pointer("/result/producer/resources/longest_pause_seconds").and_then(Value::as_f64);
    finished.check(pause > Some(4.5), format_args!("it stood still for {pause:?} s"));
    finished.check(at("/result/producer/send_delay/max_us") > 4_500_000, "the delay is not in send_delay");
    finished.check(at("/result/consumer/latency/max_us") > 4_500_000, "the delay is not in the latency");
    // From when they were handed over, most were as fast as ever: that figure alone would hide the freeze.
    let (due, since) =
        (at("/result/consumer/latency/p75_us"), at("/result/consumer/latency_since_handed_over/p75_us"));
    finished.check(
        due > 2_000_000 && since < 1_000_000,
        format_args!("p75 {due} us since due, {since} us since"),
    );
}

/// Whichever it is, and whatever it was at.
#[test]
fn a_role_that_is_stopped_for_good_ends_the_bench_in_the_time_that_is_documented() {
    // 30 s beside these two.
    let deadlines = "--stall-timeout-seconds 2 --retry-timeout-seconds 2";
    let benches = ["consumer", "producer"].map(|role| {
        let bench = s3mq(&format!(
            "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 300 --autocommit-duration-ms 100 \
             --warmup-seconds 0 --drain-timeout-seconds 300 --quiet {deadlines}"
        ))
        .spawn();
        wait_for("rows", || {
            let text = fs::read_to_string(bench.path("benchmark-results/100.csv.partial")).ok()?;
            (text.lines().count() > 1).then_some(())
        });
        let roles = children(bench.pid());
        let stopped = roles.iter().find(|child| child.command.split(' ').nth(1) == Some(role)).unwrap();
        stopped.signal(Signal::STOP);
        (role, bench, roles)
    });
    for (role, bench, roles) in benches {
        let bench = bench.finish_within(Duration::from_secs(55));
        bench.exits(1).complains(&["rate 100", role, "has said nothing for 34 s", "SIGSTOP"]);
        bench.check(roles.iter().all(Process::is_gone), "a role is left");
    }
}

/// With its store embedded, and with one beside it: what the bench did not run for is not the store's fault.
#[test]
fn a_bench_that_stood_still_says_so_and_blames_nobody_else() {
    let store = Store::start();
    let options = "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 6 --autocommit-duration-ms 100 \
                   --warmup-seconds 0 --drain-timeout-seconds 2 --quiet";
    let benches = [s3mq(options), store.s3mq(options)].map(S3mq::spawn);
    for bench in &benches {
        wait_for("rows", || {
            let text = fs::read_to_string(bench.path("benchmark-results/100.csv.partial")).ok()?;
            (text.lines().count() > 1).then_some(())
        });
        bench.signal(Signal::STOP);
    }
    // Beyond the end of the sending, and of the drain.
    std::thread::sleep(Duration::from_secs(10));
    let [embedded, beside] = benches.map(|bench| {
        bench.signal(Signal::CONT);
        bench.finish()
    });
    for bench in [&embedded, &beside] {
        bench.exits(0);
        let result: Value = serde_json::from_str(&bench.read("benchmark-results/100.json")).unwrap();
        let result = &result["result"];
        bench.check(result["bench_pause_seconds"].as_f64() > Some(8.0), "its pause is not in the result");
        bench.check(result["verdict"]["outcome"] != "collapsed", "it has collapsed");
        bench.check(result["consumer"]["received"] == 600, "not all came");
    }
    let said = "while the bench itself (and an embedded store) stood still for ";
    embedded.check(embedded.stdout.contains(said), "the stall is the store's alone");
    beside.check(!beside.stdout.contains("did not answer"), "the store is blamed");
}
