//! The embedded server as a process of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use rustix::process::Signal;

use crate::harness::s3mq;
use crate::store::{ACCESS_KEY, SECRET_KEY, Store};

const WRITERS: usize = 8;
/// Objects that each server acknowledges before it is killed.
const ROUND_OBJECTS: usize = 60;

fn client(endpoint: &str) -> Client {
    let config = aws_sdk_s3::config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .force_path_style(true);
    Client::from_conf(config.build())
}

/// What a write with this number puts: recognizable, and of up to 200 kB.
fn body(number: usize) -> Vec<u8> {
    let size = number * 7919 % 200_000;
    let mut body = format!("{number}\n").into_bytes();
    body.extend((0..size).map(|at| (at * 31 + number) as u8));
    body
}

fn is_whole(found: &[u8]) -> Option<usize> {
    let first = found.split(|&byte| byte == b'\n').next()?;
    let number = std::str::from_utf8(first).ok()?.parse().ok()?;
    (found == body(number)).then_some(number)
}

/// What is known of an object: the write that was acknowledged last, and the one that was begun after it.
#[derive(Default)]
struct Known {
    acknowledged: Option<usize>,
    begun: Option<usize>,
}

type AllKnown = Arc<Mutex<BTreeMap<String, Known>>>;

/// Writes until the server is gone.
async fn write(client: Client, numbers: impl Iterator<Item = usize>, name: String, known: AllKnown) {
    for number in numbers {
        // Every other write replaces the same object.
        let key = if number % 2 == 0 { format!("{name}/{number}") } else { format!("{name}/same") };
        known.lock().unwrap().entry(key.clone()).or_default().begun = Some(number);
        let put = client.put_object().bucket("s3mq").key(&key).body(ByteStream::from(body(number)));
        if put.send().await.is_err() {
            return;
        }
        known.lock().unwrap().insert(key, Known { acknowledged: Some(number), begun: None });
    }
}

/// Three servers on one directory, one after the other, each of them killed amid writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_with_all_it_acknowledged() {
    let serve = || {
        let command = s3mq("serve --data-dir data");
        command.env("S3MQ_SERVE_ACCESS_KEY", ACCESS_KEY).env("S3MQ_SERVE_SECRET_KEY", SECRET_KEY)
    };
    let known = AllKnown::default();
    let mut killed = None;
    for round in 1..=3 {
        let command = match &killed {
            None => serve(),
            Some(finished) => serve().in_directory_of(finished),
        };
        let store = Store::of(command.spawn());
        // Nobody said where it should listen.
        assert!(store.endpoint().starts_with("http://127.0.0.1:"), "{}", store.endpoint());
        let client = client(store.endpoint());
        everything_is_there(&client, &known).await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                // An odd step: each writer has even and odd numbers.
                let numbers = (round * 1_000_000 + writer..).step_by(WRITERS + 1);
                tokio::spawn(write(client.clone(), numbers, writer.to_string(), known.clone()))
            })
            .collect();
        while known.lock().unwrap().values().filter(|known| known.acknowledged.is_some()).count()
            < ROUND_OBJECTS * round
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.signal(Signal::KILL);
        for writer in writers {
            writer.await.unwrap();
        }
        killed = Some(store.finish());
    }
    let store = Store::of(serve().in_directory_of(&killed.unwrap()).spawn());
    everything_is_there(&client(store.endpoint()), &known).await;
}

/// Each object whose write was acknowledged is there, by that write or one that was begun after it, and each that
/// is there is whole.
async fn everything_is_there(client: &Client, known: &AllKnown) {
    let mut found = BTreeMap::new();
    let mut pages = client.list_objects_v2().bucket("s3mq").into_paginator().send();
    while let Some(page) = pages.next().await {
        for object in page.unwrap().contents() {
            let key = object.key().unwrap().to_owned();
            let got = client.get_object().bucket("s3mq").key(&key).send().await.unwrap();
            let bytes = got.body.collect().await.unwrap().into_bytes();
            found.insert(key.clone(), is_whole(&bytes).unwrap_or_else(|| panic!("{key} is not whole")));
        }
    }
    for (key, known) in known.lock().unwrap().iter_mut() {
        let found = found.get(key).copied();
        let is_right = found == known.acknowledged || (found.is_some() && found == known.begun);
        assert!(is_right, "{key}: write {:?} was acknowledged, and {found:?} is there", known.acknowledged);
        *known = Known { acknowledged: found, begun: None };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_refuses_is_a_line_for_people() {
    let store = Store::with("--max-memory-mib 1");
    let client = client(store.endpoint());
    let long = "x".repeat(1025);
    for key in [long.as_str(), &format!("{}ü", &long[..1023])] {
        // A body that the connection alone doesn't hold.
        let put = client.put_object().bucket("s3mq").key(key).body(vec![0; 9 << 20].into());
        let error = put.send().await.unwrap_err();
        assert_eq!(error.code(), Some("KeyTooLongError"), "{error:?}");
    }
    client.get_object().bucket("s3mq").key(&long).send().await.unwrap_err();
    client.put_object().bucket("No_Bucket").key("key").send().await.unwrap_err();
    let put = client.put_object().bucket("s3mq").key("key").body(vec![0; 2 << 20].into()).send();
    assert_eq!(put.await.unwrap_err().code(), Some("InsufficientStorage"));
    store.signal(Signal::INT);
    let finished = store.finish();
    finished.exits(130);
    for line in ["a PUT of a key of 1025 bytes", "a GET of a key of 1025 bytes", "--max-memory-mib"] {
        finished.check(finished.stderr.contains(line), format_args!("it does not say {line}"));
    }
    finished.check(!finished.stderr.contains("S3Error"), "it tells of its insides");
}
