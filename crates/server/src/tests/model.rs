//! A latency model, seen from a client.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::{Model, Server};
use super::{BUCKET, TestServer, config, sdk};

/// Constant times, far apart, in milliseconds; bodies of PUT and GET at 100 kB/s.
const TIMES_MS: [(&str, u64); 7] = [
    ("get", 60),
    ("get-absent", 20),
    ("head", 25),
    ("put", 40),
    ("put-conditional", 200),
    ("list", 35),
    ("delete", 30),
];

async fn with_model() -> TestServer {
    let tables = TIMES_MS.map(|(name, ms)| {
        let bandwidth = if ["get", "put"].contains(&name) { "bytes_per_second = 100_000\n" } else { "" };
        format!("[operations.{name}]\np50_ms = {ms}\np99_ms = {ms}\n{bandwidth}")
    });
    let model = Some(Model::parse(&format!("name = 'constant'\n{}", tables.concat())).unwrap());
    let server = Server::start(super::Config { model, ..config(None) }).await.unwrap();
    TestServer { sdk: sdk(&server, server.credentials()), server, dir: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_take_at_least_the_time_of_their_operation_and_that_of_their_body() {
    let s = with_model().await;
    let mut begun = Instant::now();
    let mut took_ms = |at_least_ms: u64| {
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(at_least_ms), "{took:?} instead of {at_least_ms} ms");
        begun = Instant::now();
    };
    assert_eq!(s.get("key").await, None);
    took_ms(20);
    s.put("key", "small").await;
    took_ms(40);
    assert_eq!(s.get("key").await.unwrap(), "small");
    took_ms(60);
    s.put("key", "x".repeat(10_000)).await;
    took_ms(140);
    s.get("key").await.unwrap();
    took_ms(160);
    s.sdk.head_object().bucket(BUCKET).key("key").send().await.unwrap();
    took_ms(25);
    s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    took_ms(35);
    s.sdk.put_object().bucket(BUCKET).key("new").if_none_match("*").send().await.unwrap();
    took_ms(200);
    s.sdk.put_object().bucket(BUCKET).key("new").if_none_match("*").send().await.unwrap_err();
    took_ms(200);
    s.sdk.delete_object().bucket(BUCKET).key("new").send().await.unwrap();
    took_ms(30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_takes_effect_within_its_time() {
    let s = with_model().await;
    let begun = Instant::now();
    let put = s
        .sdk
        .put_object()
        .bucket(BUCKET)
        .key("entry")
        .if_none_match("*")
        .body("entry".to_owned().into_bytes().into());
    let put = tokio::spawn(async move {
        put.send().await.unwrap();
        Instant::now()
    });
    // These reads look 10 ms after they are asked, until one finds it; the write takes effect after 100 ms.
    let seen = loop {
        if s.get("entry").await.is_some() {
            break Instant::now();
        }
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
    };
    assert!(seen >= begun + Duration::from_millis(100), "seen after {:?}", seen - begun);
    let acknowledged = put.await.unwrap();
    assert!(acknowledged >= begun + Duration::from_millis(200), "after {:?}", acknowledged - begun);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_of_one_key_one_succeeds_under_a_model_too() {
    let s = with_model().await;
    let writers = (0..8).map(|_| s.sdk.put_object().bucket(BUCKET).key("entry").if_none_match("*").send());
    let answers = futures::future::join_all(writers).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
}
