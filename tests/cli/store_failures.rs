//! A store that can't be used: each command says which way, in one line and in time.

use std::net::TcpListener;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Finished, S3mq};
use crate::store::{SECRET_KEY, Store};

/// Whatever is wrong with a store, it must be known by then.
const LIMIT: Duration = Duration::from_secs(30);

const COMMANDS: [&str; 4] = [
    "bench --range-start 100 --range-end 100 --range-step 100",
    "producer --lake-path queue --rate 100 --messages 100",
    "consumer --lake-path queue --output-path out.csv",
    "check",
];

/// Runs every command, all at once, on a store that is changed by `spoil`.
fn each_command_fails(spoil: impl Fn(S3mq) -> S3mq, words: &[&str]) {
    let store = Store::start();
    let running = COMMANDS.map(|command| spoil(store.s3mq(command)).spawn());
    for running in running {
        let finished = running.finish_within(LIMIT);
        finished.exits(1).complains(words);
        says_no_secret(&finished);
    }
    assert!(store.keys().is_empty(), "something was written: {:?}", store.keys());
}

fn says_no_secret(finished: &Finished) {
    let said = finished.stdout.contains(SECRET_KEY) || finished.stderr.contains(SECRET_KEY);
    finished.check(!said, "it said the secret");
}

#[test]
fn a_wrong_secret_is_said() {
    let spoil = |command: S3mq| command.env("MINIO_S3_SECRET_ACCESS_KEY", &format!("{SECRET_KEY}-but-wrong"));
    each_command_fails(spoil, &["rejects the credentials", "SignatureDoesNotMatch", "secret key"]);
}

#[test]
fn an_unknown_access_key_is_said() {
    let spoil = |command: S3mq| command.env("MINIO_S3_ACCESS_KEY", "nobody");
    each_command_fails(spoil, &["rejects the credentials", "InvalidAccessKeyId", "access key"]);
}

#[test]
fn a_missing_bucket_is_named() {
    let spoil = |command: S3mq| command.env("MINIO_S3_BUCKET", "no-such-bucket");
    each_command_fails(spoil, &["no bucket `no-such-bucket`", "--create-bucket"]);
}

#[test]
fn an_endpoint_where_nobody_listens_is_said() {
    // Bound and given back: nobody else gets it so soon.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{address}");
    each_command_fails(
        |command| command.env("MINIO_S3_ENDPOINT", &endpoint),
        &["does not answer", &endpoint],
    );
}

#[test]
fn an_endpoint_that_never_answers_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    each_command_fails(
        |command| command.env("MINIO_S3_ENDPOINT", &endpoint),
        &["does not answer", &endpoint],
    );
}

#[test]
fn a_host_that_does_not_exist_is_said() {
    let endpoint = "http://no-such-host.invalid";
    each_command_fails(|command| command.env("MINIO_S3_ENDPOINT", endpoint), &["does not answer", endpoint]);
}

#[test]
fn a_missing_bucket_is_created_where_asked() {
    let store = Store::start();
    let command = "producer --lake-path queue --rate 100 --messages 10 --create-bucket --bucket new-bucket";
    store.s3mq(command).run().exits(0);
    store.s3mq("consumer --lake-path s3://new-bucket/queue").run().exits(0);
}

#[test]
fn a_role_that_waits_for_a_store_in_vain_can_be_interrupted() {
    for command in [
        "producer --lake-path queue --rate 1 --messages 1",
        "consumer --lake-path queue",
        "producer --lake-path queue --rate 1 --messages 1 --no-preflight",
        "consumer --lake-path queue --no-preflight",
        "check",
        "bench --range-start 100 --range-end 100 --range-step 100",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let running = Store::start().s3mq(command).env("MINIO_S3_ENDPOINT", &endpoint).spawn();
        // It has come to ask, so that it also listens to signals by now.
        let _connection = listener.accept().unwrap();
        running.signal(Signal::TERM);
        running.finish_within(Duration::from_secs(15)).exits(130);
    }
}
