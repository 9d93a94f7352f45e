//! The instance metadata service, which answers on cloud machines only: elsewhere each question to it costs
//! seconds. Who has given keys is never made to wait for it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::harness::S3mq;
use crate::store::{ACCESS_KEY, SECRET_KEY, Store};

/// A metadata service that hangs up on everybody, and how many came.
fn service() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            count.fetch_add(1, Relaxed);
            drop(connection);
        }
    });
    (endpoint, came)
}

/// On the backend `s3`, at our own store.
fn on_s3(store: &Store, command: &str) -> S3mq {
    let endpoint = store.endpoint();
    store
        .s3mq(command)
        .env("S3MQ_S3_BACKEND", "s3")
        .env("S3MQ_ENDPOINT", endpoint)
        .env("AWS_S3_BUCKET", "s3mq")
}

#[test]
fn static_keys_never_touch_it() {
    let store = Store::start();
    let (endpoint, came) = service();
    for command in [
        "check",
        "producer --lake-path queue --rate max --messages 10",
        "consumer --lake-path queue",
        "checkpoint --lake-path queue --at-version 1",
        "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 1 --prefix bench",
    ] {
        let on_minio = store.s3mq(command).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint);
        on_minio.run().exits(0);
        let on_s3 = on_s3(&store, &command.replace("queue", "other"))
            .env("AWS_S3_ACCESS_KEY", ACCESS_KEY)
            .env("AWS_S3_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint);
        on_s3.run().exits(0);
        assert_eq!(came.load(Relaxed), 0, "{command}");
    }
    // Without keys it is asked, so that this service would have been found.
    on_s3(&store, "check").env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint).run().exits(1);
    assert!(came.load(Relaxed) > 0, "the chain has not asked the service of this test");
}
