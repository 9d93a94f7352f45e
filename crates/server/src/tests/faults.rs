//! Faults, seen from a client.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::super::{Faults, Server};
use super::{BUCKET, Config, TestServer, refusal, sdk};

/// A server with these rules, whose client tries nothing twice.
async fn with_rules(rules: &str) -> TestServer {
    let faults = Some(Faults::parse(rules).unwrap());
    let server = Server::start(Config { faults, ..Config::in_memory(BUCKET) }).await.unwrap();
    let once = sdk(&server, server.credentials()).config().to_builder();
    let once = Client::from_conf(once.retry_config(RetryConfig::disabled()).build());
    TestServer { sdk: once, server, dir: None }
}

fn counts(s: &TestServer) -> Vec<(u64, u64)> {
    s.server.fault_counts().iter().map(|count| (count.matched, count.fired)).collect()
}

/// A PUT that gets no answer.
async fn fails_to_put(s: &TestServer, key: &str, body: &'static str) {
    let put = s.sdk.put_object().bucket(BUCKET).key(key).body(Bytes::from(body).into()).send().await;
    assert!(put.unwrap_err().raw_response().is_none(), "it was answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_answered_as_s3_would_and_nothing_is_written() {
    for (rule, expected) in [
        ("status = 500", (500, "InternalError")),
        ("status = 503", (503, "SlowDown")),
        ("status = 429", (429, "TooManyRequests")),
        ("status = 403\ncode = 'ExpiredToken'", (403, "ExpiredToken")),
        ("status = 409", (409, "ConditionalRequestConflict")),
        ("status = 418\ncode = 'Teapot'", (418, "Teapot")),
    ] {
        let s = with_rules(&format!("[[rule]]\naction = 'status'\nnth = [1, 2]\n{rule}")).await;
        // Larger than what a connection holds by itself.
        let body = Bytes::from(vec![0; 9 << 20]);
        let put = s.sdk.put_object().bucket(BUCKET).key("key").body(body.into()).send().await.unwrap_err();
        assert_eq!(refusal(&put), expected);
        let head = s.sdk.head_object().bucket(BUCKET).key("key").send().await.unwrap_err();
        assert_eq!(head.raw_response().unwrap().status().as_u16(), expected.0);
        assert_eq!(s.get("key").await, None);
        assert_eq!(counts(&s), [(3, 2)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_304_has_no_body() {
    let s = with_rules("[[rule]]\naction = 'status'\nstatus = 304").await;
    let put = s.sdk.put_object().bucket(BUCKET).key("key").send().await.unwrap_err();
    assert_eq!(put.raw_response().unwrap().status().as_u16(), 304);
    assert_eq!(put.raw_response().unwrap().body().bytes(), Some(&b""[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_comes_before_the_write() {
    let s = with_rules("[[rule]]\nmethod = 'PUT'\nnth = 1\naction = 'reset'").await;
    fails_to_put(&s, "key", "value").await;
    assert_eq!(s.get("key").await, None);
    s.put("key", "value").await;
    assert_eq!(s.get("key").await.unwrap(), "value");
    assert_eq!(counts(&s), [(2, 1)]);
}

/// What the client's system sees of it: a reset, not an orderly end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_one_on_the_wire() {
    let s = with_rules("[[rule]]\naction = 'reset'").await;
    let mut stream = TcpStream::connect(s.server.address).await.unwrap();
    stream.write_all(b"GET /bucket/key HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let error = stream.read(&mut [0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_can_be_lost_though_the_write_is_not() {
    let s = with_rules(
        "[[rule]]\nmethod = 'PUT'\nnth = 1\naction = 'apply-then-reset'\n\
         [[rule]]\nmethod = 'PUT'\nnth = 2\naction = 'apply-then-status'\nstatus = 500",
    )
    .await;
    fails_to_put(&s, "a", "reset").await;
    assert_eq!(s.get("a").await.unwrap(), "reset");
    let body = Bytes::from("refused");
    let put = s.sdk.put_object().bucket(BUCKET).key("b").body(body.into()).send().await.unwrap_err();
    assert_eq!(refusal(&put), (500, "InternalError"));
    assert_eq!(s.get("b").await.unwrap(), "refused");
    let again = s.sdk.put_object().bucket(BUCKET).key("a").if_none_match("*").send().await.unwrap_err();
    assert_eq!(refusal(&again), (412, "PreconditionFailed"));
    assert_eq!(counts(&s), [(3, 1), (3, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_can_break_off() {
    for bytes in [0, 1, 7, 300_000, 999_999] {
        let s = with_rules(&format!("[[rule]]\naction = 'truncate'\nbytes = {bytes}")).await;
        let body: Bytes = (0..1_000_000).map(|n| n as u8).collect();
        s.put("key", body.clone()).await;
        let mut answer = s.sdk.get_object().bucket(BUCKET).key("key").send().await.unwrap();
        assert_eq!(answer.content_length(), Some(1_000_000), "the promise is whole");
        let (mut got, mut failed) = (Vec::new(), false);
        while let Some(chunk) = answer.body.next().await {
            match chunk {
                Ok(chunk) => got.extend_from_slice(&chunk),
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        assert!(failed && got == body[..bytes], "{} bytes of {bytes}", got.len());
        // There is nothing to cut of what is shorter, or absent.
        s.put("key", &b"short"[..bytes.min(5)]).await;
        assert_eq!(s.get("key").await.unwrap().len(), bytes.min(5));
        assert_eq!(s.get("absent").await, None);
        assert_eq!(counts(&s), [(3, 1)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_body_takes_its_time_and_comes_whole() {
    let s = with_rules("[[rule]]\naction = 'slow-body'\nbytes_per_second = 100000").await;
    let body = Bytes::from(vec![7; 20_000]);
    s.put("key", body.clone()).await;
    let begun = Instant::now();
    let answer = s.sdk.get_object().bucket(BUCKET).key("key").send().await.unwrap();
    assert_eq!(answer.content_length(), Some(20_000));
    assert!(answer.body.collect().await.unwrap().into_bytes() == body);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(s.get("absent").await, None);
    assert_eq!(counts(&s), [(2, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bandwidth_limit_is_shared_and_holds_both_ways() {
    let s = with_rules("[[rule]]\nkey = 'slow*'\naction = 'bandwidth'\nbytes_per_second = 100000").await;
    let body = Bytes::from(vec![7; 10_000]);
    s.put("fast", vec![0; 1_000_000]).await;
    let begun = Instant::now();
    tokio::join!(s.put("slow/1", body.clone()), s.put("slow/2", body.clone()));
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let (one, two) = tokio::join!(s.get("slow/1"), s.get("slow/2"));
    assert!(one.unwrap() == body && two.unwrap() == body);
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(counts(&s), [(4, 4)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_some_seconds_ends_and_one_for_ever_holds_nothing() {
    let begun = Instant::now();
    let s = with_rules(
        "[[rule]]\nkey = 'a'\nnth = 1\naction = 'stall'\nseconds = 0.3\n\
         [[rule]]\nkey = 'b'\naction = 'stall'\n\
         [[rule]]\nkey = 'c'\nuntil = 1\naction = 'stall'",
    )
    .await;
    s.put("c", "value").await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let begun = Instant::now();
    s.put("a", "value").await;
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(timeout(Duration::from_millis(300), s.put("b", "value")).await.is_err());
    assert_eq!(s.get("a").await.unwrap(), "value");
    let list = s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    assert_eq!(list.contents().len(), 2);
    // Nor the end of the server.
    let address = s.server.address;
    let mut stalled = TcpStream::connect(address).await.unwrap();
    stalled.write_all(b"GET /bucket/b HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    while s.server.fault_counts()[1].fired < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    timeout(Duration::from_secs(60), s.server.shutdown()).await.unwrap();
    assert_eq!(stalled.read(&mut [0; 64]).await.unwrap_or(0), 0, "it was answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_can_be_ignored() {
    let s = with_rules("[[rule]]\naction = 'ignore-condition'\nkey = 'a'").await;
    for key in ["a", "b"] {
        s.put(key, "old").await;
        let put = s.sdk.put_object().bucket(BUCKET).key(key).body(Bytes::from("new").into());
        let put = put.if_none_match("*").send().await;
        assert_eq!(put.is_ok(), key == "a", "{key}");
        assert_eq!(s.get(key).await.unwrap(), if key == "a" { "new" } else { "old" });
        let delete = s.sdk.delete_object().bucket(BUCKET).key(key).if_match("\"other\"").send().await;
        assert_eq!(delete.is_ok(), key == "a", "{key}");
    }
    assert_eq!(counts(&s), [(3, 3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_can_be_hidden_from_its_first_readers() {
    let s = with_rules("[[rule]]\naction = 'hide'\nreads = 2").await;
    assert_eq!(s.get("key").await, None, "it isn't there yet, and that doesn't count");
    s.put("key", "value").await;
    assert_eq!(s.get("key").await, None);
    let head = s.sdk.head_object().bucket(BUCKET).key("key").send().await.unwrap_err();
    assert_eq!(head.raw_response().unwrap().status().as_u16(), 404);
    assert_eq!(s.get("key").await.unwrap(), "value");
    // The condition of a write sees it.
    let put = s.sdk.put_object().bucket(BUCKET).key("key").if_none_match("*").send().await.unwrap_err();
    assert_eq!(refusal(&put), (412, "PreconditionFailed"));
    assert_eq!(counts(&s), [(4, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_is_asked_for_by_its_prefix() {
    let s = with_rules("[[rule]]\nmethod = 'LIST'\nkey = 'a b/*'\naction = 'status'\nstatus = 500").await;
    let list = |prefix: &str| s.sdk.list_objects_v2().bucket(BUCKET).prefix(prefix).send();
    assert_eq!(refusal(&list("a b/c").await.unwrap_err()), (500, "InternalError"));
    list("a").await.unwrap();
    s.put("a b/c", "value").await;
    assert_eq!(s.get("a b/c").await.unwrap(), "value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awkward_keys_are_matched_decoded() {
    let s = with_rules("[[rule]]\nkey = 'ü /%*'\naction = 'status'\nstatus = 500").await;
    let put = s.sdk.put_object().bucket(BUCKET).key("ü /%2e").send().await.unwrap_err();
    assert_eq!(refusal(&put), (500, "InternalError"));
}
