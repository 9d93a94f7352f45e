//! A producer that stands still: its messages were due all the same, and the figures say so.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::s3mq;
use crate::processes::{children, wait_for};

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
    let pause = result.pointer("/result/producer/effort/longest_pause_seconds").and_then(Value::as_f64);
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
