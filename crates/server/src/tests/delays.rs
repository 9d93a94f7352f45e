//! Delays, seen from a client.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::{Delays, RequestKind, Server};
use super::{BUCKET, TestServer, config, sdk};

const ENTRY: &str = "q/_delta_log/00000000000000000000.json";
const DATA: &str = "q/part.parquet";

async fn with_delay(kind: RequestKind, delay: Duration) -> TestServer {
    let mut delays = Delays::default();
    delays.set(kind, delay);
    let server = Server::start(super::Config { delays, ..config(None) }).await.unwrap();
    TestServer { sdk: sdk(&server, server.credentials()), server, dir: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_requests_of_a_delayed_kind_wait_and_nothing_waits_for_them() {
    // Nobody waits for an hour: what ends at all was not delayed.
    let s = with_delay(RequestKind::CommitPut, Duration::from_secs(3_600)).await;
    let moment = Duration::from_millis(300);
    assert!(timeout(moment, s.put(ENTRY, "entry")).await.is_err());
    s.put(DATA, "data").await;
    assert_eq!(s.get(DATA).await.unwrap(), "data");
    // The delayed write never took effect, and holds nothing that a read of its key would need.
    assert_eq!(s.get(ENTRY).await, None);
    s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_every_kind_take_at_least_their_delay() {
    let delay = Duration::from_millis(50);
    for kind in RequestKind::ALL {
        let s = with_delay(kind, delay).await;
        let mut begun = Instant::now();
        let mut takes = |expected: RequestKind| {
            let took = begun.elapsed();
            assert!(kind != expected || took >= delay, "{} took {took:?}", expected.name());
            begun = Instant::now();
        };
        s.put(DATA, "data").await;
        takes(RequestKind::DataPut);
        assert_eq!(s.get(ENTRY).await, None);
        takes(RequestKind::CommitGet);
        s.put(ENTRY, "entry").await;
        takes(RequestKind::CommitPut);
        assert_eq!(s.get(ENTRY).await.unwrap(), "entry");
        takes(RequestKind::CommitGet);
        assert_eq!(s.get(DATA).await.unwrap(), "data");
        takes(RequestKind::DataGet);
        s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
        takes(RequestKind::List);
    }
}
