//! `s3mq checkpoint` on a store that doesn't answer.

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;

use crate::store::Store;

/// Attempts are given up soon, and so is a request.
const IMPATIENT: &str = "--request-timeout-seconds 1 --retry-timeout-seconds 2";
/// Ending in time is what is promised; a busy machine gets this long.
const LIMIT: Duration = Duration::from_secs(30);

/// However its deadlines are set against each other: what a single request may take doesn't matter.
#[test]
fn a_checkpoint_on_a_dead_endpoint_ends_when_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    for deadlines in [
        "--stall-timeout-seconds 6",
        "--stall-timeout-seconds 6 --request-timeout-seconds 1 --retry-timeout-seconds 2",
    ] {
        let command = format!("checkpoint --lake-path queue --at-version 3 {deadlines}");
        let finished =
            Store::start().s3mq(&command).env("MINIO_S3_ENDPOINT", &endpoint).spawn().finish_within(LIMIT);
        finished.exits(1);
        let lines: Vec<_> = finished.stderr.lines().collect();
        finished.check(lines.len() == 2, "expected a warning and an error");
        finished.check(lines[0].contains("has not answered for 5 s"), "no warning");
        for words in ["version 3", "the store has not answered for 6 s", &endpoint, "--stall-timeout-seconds"]
        {
            finished.check(lines[1].contains(words), format_args!("it does not say {words}"));
        }
        let error = finished.event("failed")["error"].as_str().unwrap().to_owned();
        finished.check(error.starts_with("the store has not answered"), "the event says otherwise");
    }
}

#[test]
fn a_checkpoint_survives_a_stall_that_is_longer_than_a_request_is_retried() {
    let store = Store::start();
    store.s3mq("producer --lake-path short --rate max --messages 5").run().exits(0);
    store.signal(Signal::STOP);
    let checkpoint = store.s3mq(&format!("checkpoint --lake-path short --at-version 1 {IMPATIENT}")).spawn();
    std::thread::sleep(Duration::from_secs(5));
    store.signal(Signal::CONT);
    checkpoint.finish().exits(0);
}

#[test]
fn an_interrupted_checkpoint_does_not_wait_for_the_store() {
    let store = Store::start();
    store.signal(Signal::STOP);
    let checkpoint = store.s3mq("checkpoint --lake-path queue --at-version 3").spawn();
    std::thread::sleep(Duration::from_secs(2));
    checkpoint.signal(Signal::INT);
    checkpoint.finish_within(LIMIT).exits(130).complains(&["interrupted"]);
}

#[test]
fn a_failed_checkpoint_says_what_it_sent() {
    let store = Store::start();
    store.s3mq("producer --lake-path short --rate max --messages 5").run().exits(0);
    let checkpoint = store.s3mq("checkpoint --lake-path short --at-version 99").run();
    checkpoint.exits(1).complains(&["version 99", "has no checkpoint"]);
    let requests = checkpoint.event("failed")["requests"].clone();
    checkpoint
        .check(requests.as_array().is_some_and(|rows| !rows.is_empty()), "it does not say what it sent");
}
