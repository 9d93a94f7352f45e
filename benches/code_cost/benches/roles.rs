//! Each role as a process of its own, once under callgrind (instructions) and once under DHAT (allocations).
//!
//! `scripts/code_cost.py` starts the server that they talk to, which isn't instrumented, runs this, and makes slopes
//! of the sums: between `few` and `many` batches, and between `few` batches and as many `large` ones. It says by
//! environment variables where things are.
//!
//! Waiting must cost nothing, or the sums would depend on the machine's speed. A producer's batches are cut by the
//! clock, and its messages are handed over once a millisecond, however fast it is; the timeline has one interval. A
//! consumer asks once, for a table that isn't there, and then not before the table is complete; how it asks at the tip
//! of a table that grows is measured apart (`consumer_following`).

use std::env::var;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio as ProcessStdio};
use std::thread::sleep;
use std::time::Duration;

use gungraun::prelude::*;
use gungraun::{Callgrind, Dhat, EntryPoint, ValgrindTool};

/// What a run streams.
#[derive(Clone, Copy)]
struct Stream {
    /// Multiples of `S3MQ_CODE_COST_BATCHES`.
    batches: u64,
    /// Messages a batch.
    messages: u64,
}

const FEW: Stream = Stream { batches: 1, messages: 1_000 };
const MANY: Stream = Stream { batches: 2, messages: 1_000 };
const LARGE: Stream = Stream { batches: 1, messages: 10_000 };

/// Slow enough for a producer under valgrind, which hands over 50,000 messages a second in `LARGE`.
const MEASURED_COMMIT_MS: u64 = 200;
/// A producer that isn't instrumented.
const COMMIT_MS: u64 = 50;
/// By then a table of `MANY` is complete.
const COMPLETE_AFTER_MS: u64 = 5_000;

fn from_script(name: &str) -> String {
    var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/code_cost.py"))
}

fn events(run: &str) -> PathBuf {
    PathBuf::from(from_script("S3MQ_CODE_COST_EVENTS")).join(format!("{run}.jsonl"))
}

/// The store's variables.
const STORE: [&str; 4] =
    ["MINIO_S3_ENDPOINT", "MINIO_S3_BUCKET", "MINIO_S3_ACCESS_KEY", "MINIO_S3_SECRET_ACCESS_KEY"];

fn role(run: &str, name: &str, commit_ms: u64) -> Command {
    let mut command = Command::new(from_script("S3MQ_CODE_COST_BINARY"));
    command.args([name, "--quiet", "--lake-path", run, "--autocommit-duration-ms", &commit_ms.to_string()]);
    // Each end of one of the timeline's intervals costs the adding up of histograms.
    command.args(["--interval-seconds", "3600"]);
    STORE.iter().for_each(|name| {
        command.env(name, from_script(name));
    });
    command.stdout(events(run));
    command
}

/// What makes a producer send the stream in its batches.
fn schedule(stream: Stream, commit_ms: u64) -> [String; 4] {
    let batches = stream.batches * from_script("S3MQ_CODE_COST_BATCHES").parse::<u64>().expect("a number");
    let rate = stream.messages * 1_000 / commit_ms;
    let messages = batches * stream.messages;
    ["--rate".to_owned(), rate.to_string(), "--messages".to_owned(), messages.to_string()]
}

fn producer(run: &str, stream: Stream) -> Command {
    role(run, "producer", MEASURED_COMMIT_MS).args(schedule(stream, MEASURED_COMMIT_MS)).build()
}

fn consumer(run: &str) -> Command {
    let pause = COMPLETE_AFTER_MS.to_string();
    role(run, "consumer", COMMIT_MS)
        // One file at a time, so that how many connections there are isn't a race.
        .args(["--poll", "fixed", "--poll-interval-ms", &pause, "--max-inflight-messages", "1"])
        .setup_parallel(true)
        .build()
}

/// Waits until the consumer is ready and streams to it, from a process that isn't instrumented.
fn stream_to(run: &str, stream: Stream, commit_ms: u64) {
    let is_ready = || std::fs::read_to_string(events(run)).is_ok_and(|events| events.contains("\"ready\""));
    for _ in 0..600 {
        if is_ready() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    assert!(is_ready(), "{run}: the consumer is not ready after a minute");
    let ended = Process::new(from_script("S3MQ_CODE_COST_BINARY"))
        .args(["producer", "--quiet", "--lake-path", run])
        .args(["--autocommit-duration-ms", &commit_ms.to_string()])
        .args(schedule(stream, commit_ms))
        .stdout(ProcessStdio::null())
        .status();
    assert!(ended.is_ok_and(|status| status.success()), "{run}: the producer failed");
}

fn fill(run: &str, stream: Stream) {
    stream_to(run, stream, COMMIT_MS);
}

fn feed(run: &str, stream: Stream) {
    stream_to(run, stream, MEASURED_COMMIT_MS);
}

/// All threads count; the cache isn't simulated.
fn instructions() -> BinaryBenchmarkConfig {
    BinaryBenchmarkConfig::default()
        .default_tool(ValgrindTool::Callgrind)
        .tool(Callgrind::with_args(["--separate-threads=no", "--cache-sim=no", "--trace-children=no"]))
        .clone()
}

fn allocations() -> BinaryBenchmarkConfig {
    BinaryBenchmarkConfig::default()
        .default_tool(ValgrindTool::DHAT)
        .tool(Dhat::with_args(["--trace-children=no"]).entry_point(EntryPoint::None))
        .clone()
}

#[binary_benchmark(config = instructions())]
#[bench::few("producer-instructions-few", FEW)]
#[bench::many("producer-instructions-many", MANY)]
#[bench::large("producer-instructions-large", LARGE)]
fn producer_instructions(run: &str, stream: Stream) -> Command {
    producer(run, stream)
}

#[binary_benchmark(config = allocations())]
#[bench::few("producer-allocations-few", FEW)]
#[bench::many("producer-allocations-many", MANY)]
#[bench::large("producer-allocations-large", LARGE)]
fn producer_allocations(run: &str, stream: Stream) -> Command {
    producer(run, stream)
}

#[binary_benchmark(config = instructions(), setup = fill)]
#[bench::few("consumer-instructions-few", FEW)]
#[bench::many("consumer-instructions-many", MANY)]
#[bench::large("consumer-instructions-large", LARGE)]
fn consumer_instructions(run: &str, _stream: Stream) -> Command {
    consumer(run)
}

#[binary_benchmark(config = allocations(), setup = fill)]
#[bench::few("consumer-allocations-few", FEW)]
#[bench::many("consumer-allocations-many", MANY)]
#[bench::large("consumer-allocations-large", LARGE)]
fn consumer_allocations(run: &str, _stream: Stream) -> Command {
    consumer(run)
}

#[binary_benchmark(config = allocations(), setup = feed)]
#[bench::many("consumer_following-allocations-many", MANY)]
fn consumer_following_allocations(run: &str, _stream: Stream) -> Command {
    role(run, "consumer", MEASURED_COMMIT_MS).setup_parallel(true).build()
}

binary_benchmark_group!(
    name = roles,
    benchmarks = [
        producer_instructions,
        producer_allocations,
        consumer_instructions,
        consumer_allocations,
        consumer_following_allocations
    ]
);

main!(binary_benchmark_groups = roles);
