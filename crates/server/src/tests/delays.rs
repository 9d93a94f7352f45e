//! Delays by fault rules, seen from a client.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::{Faults, Server};
use super::{BUCKET, TestServer, config, sdk};

const ENTRY: &str = "q/_delta_log/00000000000000000000.json";
const DATA: &str = "q/part-1.parquet";

/// The kinds of requests that a queue makes, as `docs/calibration.md` has their rules.
const DATA_PUT: &str = "method = 'PUT'\nkey = '*/part-*.parquet'";
const COMMIT_PUT: &str = "method = 'PUT'\nkey = '*/_delta_log/*.json'";
const COMMIT_GET: &str = "method = 'GET'\nkey = '*/_delta_log/*.json'";
const DATA_GET: &str = "method = 'GET'\nkey = '*/part-*.parquet'";
const LIST: &str = "method = 'LIST'";

async fn with_delay(kind: &str, delay: Duration) -> TestServer {
    let rule = format!("[[rule]]\n{kind}\naction = 'delay'\ndelay_ms = {}", delay.as_millis());
    let faults = Some(Faults::parse(&rule).unwrap());
    let server = Server::start(super::Config { faults, ..config(None) }).await.unwrap();
    TestServer { sdk: sdk(&server, server.credentials()), server, dir: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_requests_of_a_delayed_kind_wait_and_nothing_waits_for_them() {
    // Nobody waits for ten minutes: what ends at all was not delayed.
    let s = with_delay(COMMIT_PUT, Duration::from_secs(600)).await;
    let moment = Duration::from_millis(300);
    assert!(timeout(moment, s.put(ENTRY, "entry")).await.is_err());
    s.put(DATA, "data").await;
    s.put("q/_delta_log/00000000000000000007.checkpoint.parquet", "checkpoint").await;
    assert_eq!(s.get(DATA).await.unwrap(), "data");
    // The delayed write never took effect, and holds nothing that a read of its key would need.
    assert_eq!(s.get(ENTRY).await, None);
    s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_every_kind_take_at_least_their_delay() {
    let delay = Duration::from_millis(50);
    for kind in [DATA_PUT, COMMIT_PUT, COMMIT_GET, DATA_GET, LIST] {
        let s = with_delay(kind, delay).await;
        let mut begun = Instant::now();
        let mut takes = |expected: &str| {
            let took = begun.elapsed();
            assert!(kind != expected || took >= delay, "{expected} took {took:?}");
            begun = Instant::now();
        };
        s.put(DATA, "data").await;
        takes(DATA_PUT);
        assert_eq!(s.get(ENTRY).await, None);
        takes(COMMIT_GET);
        s.put(ENTRY, "entry").await;
        takes(COMMIT_PUT);
        assert_eq!(s.get(ENTRY).await.unwrap(), "entry");
        takes(COMMIT_GET);
        assert_eq!(s.get(DATA).await.unwrap(), "data");
        takes(DATA_GET);
        s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
        takes(LIST);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_takes_effect_after_its_delay_and_a_read_finds_what_was_there_before_it() {
    let delay = Duration::from_millis(300);
    let s = with_delay("key = 'slow'", delay).await;
    let begun = Instant::now();
    // The read comes while the write waits.
    let (_, early) = tokio::join!(s.put("slow", "1"), async {
        tokio::time::sleep(delay / 3).await;
        s.get("slow").await
    });
    assert_eq!(early, None);
    assert!(begun.elapsed() >= delay + delay / 3);
    // The write takes effect while the read's answer waits.
    let s = with_delay("key = 'slow'\nmethod = 'GET'", delay).await;
    let (late, _) = tokio::join!(s.get("slow"), async {
        tokio::time::sleep(delay / 3).await;
        s.put("slow", "1").await
    });
    assert_eq!(late, None);
}
