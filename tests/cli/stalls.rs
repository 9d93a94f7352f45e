//! A store that stops answering for a while, in every way: nothing is lost or doubled, nothing hangs, and the
//! result says for how long it was. One that doesn't come back ends the roles in the time that was told.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Finished, Running, S3mq, s3mq};
use crate::processes::{children, wait_for};
use crate::store::{ACCESS_KEY, SECRET_KEY, Store};

/// Attempts are given up soon, so that more than one of a request fails in a stall of a few seconds.
const IMPATIENT: &str = "--request-timeout-seconds 1 --retry-timeout-seconds 2";
/// Ending in time is what is promised; a busy machine gets this long.
const LIMIT: Duration = Duration::from_secs(30);

fn seconds(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

/// Everything that the producer committed came, once and in order.
#[track_caller]
fn nothing_is_missing(consumer: &Finished, consumed: &Value, committed: u64) {
    consumer.check(consumed["received"] == committed, format_args!("not {committed} received"));
    for stream in consumed["integrity"]["streams"].as_array().unwrap() {
        for wrong in ["lost", "duplicated", "out_of_order", "beyond_end"] {
            consumer.check(stream[wrong] == 0, format_args!("{wrong}: {}", stream[wrong]));
        }
    }
}

/// It saw a stall of about this many seconds, and no other.
#[track_caller]
fn says_the_stall(of: &Finished, summary: &Value, seconds: f64) {
    let stalls = &summary["store_stalls"];
    of.check(stalls["count"] == 1, format_args!("not one stall: {stalls}"));
    let longest = stalls["longest_seconds"].as_f64().unwrap();
    of.check(longest >= seconds, format_args!("a stall of {longest} s, not {seconds} or more"));
}

fn bench(store: &Store, seconds: u64, options: &str) -> Running {
    let options = format!(
        "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream {seconds} \
         --autocommit-duration-ms 100 --warmup-seconds 0 --quiet {options}"
    );
    store.s3mq(&options).spawn()
}

fn wait_for_rows(bench: &Running) {
    wait_for("rows", || {
        let text = fs::read_to_string(bench.path("benchmark-results/100.csv.partial")).ok()?;
        (text.lines().count() > 1).then_some(())
    });
}

fn result(bench: &Finished) -> Value {
    let file: Value = serde_json::from_str(&bench.read("benchmark-results/100.json")).unwrap();
    file["result"].clone()
}

#[test]
fn a_bench_survives_a_stall_that_is_longer_than_its_drain_and_tells_of_it() {
    let store = Store::start();
    let bench = bench(&store, 15, &format!("--drain-timeout-seconds 3 {IMPATIENT}"));
    wait_for_rows(&bench);
    store.signal(Signal::STOP);
    seconds(10);
    store.signal(Signal::CONT);
    let bench = bench.finish();
    bench.exits(0);
    let result = result(&bench);
    nothing_is_missing(&bench, &result["consumer"], 1_500);
    says_the_stall(&bench, &result["producer"], 9.0);
    says_the_stall(&bench, &result["consumer"], 9.0);
    bench.check(result["consumer"]["recovery_seconds"].is_number(), "no recovery");
    bench.check(result["producer"]["wasted_data_puts"].as_u64() > Some(0), "no PUT was wasted");
    bench.check(bench.stdout.contains("rate 100: the store did not answer for"), "the table does not say it");
    // Told of while it went on.
    bench.check(bench.stderr.contains("has not answered for 5 s"), "no warning");
    bench.check(bench.stderr.contains("the store answers again"), "no all-clear");
}

#[test]
fn a_stall_at_the_very_end_is_no_collapse() {
    let store = Store::start();
    let bench = bench(&store, 4, "--drain-timeout-seconds 4");
    wait_for_rows(&bench);
    let child = |role: &str| {
        children(bench.pid()).into_iter().find(|child| child.command.split(' ').nth(1) == Some(role)).unwrap()
    };
    let (consumer, producer) = (child("consumer"), child("producer"));
    // It has something left to read when its producer is through.
    consumer.signal(Signal::STOP);
    wait_for("the producer's end", || producer.is_gone().then_some(()));
    store.signal(Signal::STOP);
    consumer.signal(Signal::CONT);
    seconds(7);
    store.signal(Signal::CONT);
    let bench = bench.finish();
    bench.exits(0);
    let result = result(&bench);
    nothing_is_missing(&bench, &result["consumer"], 400);
    bench.check(result["verdict"]["outcome"] != "collapsed", "it has collapsed");
    says_the_stall(&bench, &result["consumer"], 6.0);
    bench.check(result["consumer"]["recovery_seconds"].is_null(), "nothing was due after it");
}

/// A server on one port that can be killed and started again with the objects it had.
struct Phoenix {
    directory: TempDir,
    address: SocketAddr,
    store: Option<Store>,
}

impl Phoenix {
    fn start() -> Self {
        // Bound and given back: nobody else gets it so soon.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut phoenix = Self { directory: tempfile::tempdir().unwrap(), address, store: None };
        phoenix.rise();
        phoenix
    }

    fn rise(&mut self) {
        let server = s3mq(&format!("serve --listen {}", self.address))
            .arg("--data-dir")
            .arg(self.directory.path())
            .env("S3MQ_SERVE_ACCESS_KEY", ACCESS_KEY)
            .env("S3MQ_SERVE_SECRET_KEY", SECRET_KEY);
        self.store = Some(Store::of(server.spawn()));
    }

    fn s3mq(&self, arguments: &str) -> S3mq {
        self.store.as_ref().unwrap().s3mq(arguments)
    }

    /// Kills it for a few seconds, in which whoever comes is treated like this.
    fn dies_for(&mut self, for_seconds: u64, meanwhile: Meanwhile) {
        self.store = None;
        let stand_in = StandIn::start(self.address, meanwhile);
        seconds(for_seconds);
        drop(stand_in);
        self.rise();
    }
}

/// What becomes of connections while the server is dead.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Refused,
    Reset,
    Answered503,
}

/// Stands in for a dead server.
struct StandIn {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    fn start(address: SocketAddr, meanwhile: Meanwhile) -> Option<Self> {
        if meanwhile == Meanwhile::Refused {
            return None;
        }
        let listener = wait_for("the port", || TcpListener::bind(address).ok());
        listener.set_nonblocking(true).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let thread = std::thread::spawn(move || {
            while !is_done.load(Relaxed) {
                let Ok((mut connection, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                // Closed with the request unread, it is reset.
                if meanwhile == Meanwhile::Answered503 {
                    let _ = connection.set_nonblocking(false);
                    let _ = connection.set_read_timeout(Some(Duration::from_millis(200)));
                    let _ = connection.read(&mut [0; 65_536]);
                    let answer = "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                    let _ = connection.write_all(answer.as_bytes());
                }
            }
        });
        Some(Self { done, thread: Some(thread) })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_store_that_fails_every_request_for_a_while_is_survived() {
    let runs = [Meanwhile::Refused, Meanwhile::Reset, Meanwhile::Answered503].map(|meanwhile| {
        std::thread::spawn(move || {
            let mut store = Phoenix::start();
            let both = format!("--lake-path queue --autocommit-duration-ms 100 {IMPATIENT}");
            let consumer = store.s3mq(&format!("consumer --drain-timeout-seconds 3 {both}")).spawn();
            let producer = format!("producer --rate 100 --seconds-to-stream 10 {both}");
            let mut producer = store.s3mq(&producer).spawn();
            producer.wait_for_progress();
            store.dies_for(6, meanwhile);
            let (producer, consumer) = (producer.finish(), consumer.finish());
            for (role, name) in [(&producer, "produced"), (&consumer, "consumed")] {
                role.exits(0);
                says_the_stall(role, &role.event(name), 5.0);
            }
            let consumed = consumer.event("consumed");
            nothing_is_missing(&consumer, &consumed, 1_000);
            consumer
                .check(consumed["recovery_seconds"].is_number(), format_args!("{meanwhile:?}: no recovery"));
        })
    });
    for run in runs {
        run.join().unwrap();
    }
}

#[test]
fn a_store_that_stalls_while_the_table_is_opened_is_waited_for() {
    let store = Store::start();
    store.signal(Signal::STOP);
    let both = format!("--lake-path queue --autocommit-duration-ms 100 --no-preflight {IMPATIENT}");
    let consumer = store.s3mq(&format!("consumer {both}")).spawn();
    let producer = store.s3mq(&format!("producer --rate 100 --messages 100 {both}")).spawn();
    seconds(5);
    store.signal(Signal::CONT);
    producer.finish().exits(0);
    let consumer = consumer.finish();
    consumer.exits(0);
    nothing_is_missing(&consumer, &consumer.event("consumed"), 100);
}

#[test]
fn a_store_that_never_answers_again_ends_the_roles_when_told() {
    let store = Store::start();
    // Twice as long is beyond the limit.
    let both = format!("--lake-path queue --stall-timeout-seconds 17 --quiet {IMPATIENT}");
    let start = |role: &str| store.s3mq(&format!("{role} {both}")).spawn();
    let mut consumer = start("consumer");
    let producer = start("producer --rate 100 --seconds-to-stream 50");
    consumer.wait_for_progress();
    store.signal(Signal::STOP);
    for role in [producer, consumer] {
        let role = role.finish_within(LIMIT);
        role.exits(1);
        // After warnings on the way.
        let last = role.stderr.lines().last().unwrap_or_default();
        for words in ["error: ", "has not answered for 17 s", "s3://s3mq/queue", "--stall-timeout-seconds"] {
            role.check(last.contains(words), format_args!("the last line does not say `{words}`"));
        }
        role.check(role.event("failed")["exit_code"] == 1, "the event says otherwise");
    }
}

#[test]
fn a_checkpoint_that_meets_a_stall_harms_nobody() {
    let store = Store::start();
    let both = format!("--lake-path queue --autocommit-duration-ms 20 {IMPATIENT}");
    let consumer = store.s3mq(&format!("consumer {both}")).spawn();
    // One is nearly always running.
    let producer = format!("producer --rate 500 --seconds-to-stream 8 --checkpoint-interval 2 {both}");
    let mut producer = store.s3mq(&producer).spawn();
    producer.wait_for_event("mark", |mark| mark["outcome"] == "made");
    store.signal(Signal::STOP);
    seconds(5);
    store.signal(Signal::CONT);
    let (producer, consumer) = (producer.finish(), consumer.finish());
    producer.exits(0);
    consumer.exits(0);
    nothing_is_missing(&consumer, &consumer.event("consumed"), 4_000);
}

#[test]
fn a_dead_endpoint_is_told_of_and_ends_in_time_without_a_preflight_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let commands =
        ["producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue"].map(|command| {
            let command = format!("{command} --no-preflight --quiet --stall-timeout-seconds 7");
            Store::start().s3mq(&command).env("MINIO_S3_ENDPOINT", &endpoint).spawn()
        });
    for running in commands {
        let finished = running.finish_within(LIMIT);
        finished.exits(1);
        let lines: Vec<_> = finished.stderr.lines().collect();
        finished.check(lines.len() == 2, "expected a warning and an error");
        finished.check(lines[0].contains("has not answered for 5 s: LIST"), "the warning says otherwise");
        finished.check(lines[0].contains("it is asked for another 2 s"), "it does not say for how long");
        let says = lines[1].starts_with("error: the store has not answered for 7 s: LIST")
            && lines[1].contains(&endpoint);
        finished.check(says, "the error says otherwise");
    }
}

/// A preflight has deadlines of its own, and keeps to shorter ones.
#[test]
fn a_preflight_takes_no_longer_than_a_request_may() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    for deadlines in [IMPATIENT, "--stall-timeout-seconds 600"] {
        let check =
            Store::start().s3mq(&format!("check {deadlines}")).env("MINIO_S3_ENDPOINT", &endpoint).spawn();
        let limit = if deadlines == IMPATIENT { Duration::from_secs(10) } else { LIMIT };
        check.finish_within(limit).exits(1).complains(&["the store does not answer", &endpoint]);
    }
}

#[test]
fn what_will_not_heal_ends_at_once_without_a_preflight_too() {
    let store = Store::start();
    for (variable, value, word) in [
        ("MINIO_S3_SECRET_ACCESS_KEY", "wrong", "SignatureDoesNotMatch"),
        ("MINIO_S3_ACCESS_KEY", "nobody", "InvalidAccessKeyId"),
        ("MINIO_S3_BUCKET", "no-such-bucket", "no bucket `no-such-bucket`"),
    ] {
        for command in ["producer --lake-path queue --rate 1 --messages 1", "consumer --lake-path queue"] {
            let running = store.s3mq(&format!("{command} --no-preflight")).env(variable, value).spawn();
            running.finish_within(LIMIT).exits(1).complains(&[word]);
        }
    }
}

#[test]
fn the_first_message_is_waited_for_as_long_as_told() {
    let store = Store::start();
    let consumer = store.s3mq("consumer --lake-path empty --wait-timeout-seconds 1").run();
    consumer.exits(1).complains(&["no message came to `empty` in 1 s", "--wait-timeout-seconds"]);
    consumer.check(consumer.event("consumed")["ended"] == "wait_timeout", "it ended for another reason");
}

#[test]
fn a_version_that_is_not_there_yet_is_said() {
    let store = Store::start();
    store.s3mq("producer --lake-path short --rate max --messages 5").run().exits(0);
    let consumer = store.s3mq("consumer --lake-path short --start 50 --wait-timeout-seconds 1 --quiet").run();
    consumer.exits(1);
    let said = consumer.stderr.contains("version 50 of s3://s3mq/short isn't there yet, the latest is 2");
    consumer.check(said, "it does not say what it waits for");
}
