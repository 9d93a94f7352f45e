//! A proxy in front of a server, seen from clients of it.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::super::{Config, Faults, Limits, Server, Upstream};
use super::{BUCKET, TestServer, object_store_at, refusal, sdk_at};

/// Against a test that hangs.
const AT_MOST: Duration = Duration::from_secs(60);

/// A proxy with these rules before a server, and a client of the proxy that tries nothing twice.
async fn before(s: &TestServer, rules: Option<&str>) -> (Server, Client) {
    let proxy = proxy(&s.server.endpoint(), rules).await;
    let client = sdk_at(&proxy.endpoint(), s.server.credentials());
    let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
    (proxy, Client::from_conf(once))
}

async fn proxy(upstream: &str, rules: Option<&str>) -> Server {
    let faults = rules.map(|rules| Faults::parse(rules).unwrap());
    Server::start(Config { faults, ..Config::proxy(upstream.parse().unwrap()) }).await.unwrap()
}

/// A proxy with a short idle timeout before a store that reads `reads` bytes of each request, answers this, and no more. It closes
/// no connection.
async fn before_idle_store(reads: usize, answer: &'static str) -> (Server, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream: Upstream = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; reads];
            connection.read_exact(&mut request).await.unwrap();
            connection.write_all(answer.as_bytes()).await.unwrap();
            open.push(connection);
        }
    });
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..Limits::default() };
    let proxy = Server::start(Config { limits, ..Config::proxy(upstream) }).await.unwrap();
    let keys = super::Credentials { access_key: "key".to_owned(), secret_key: "secret".to_owned() };
    let client = sdk_at(&proxy.endpoint(), &keys);
    let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
    (proxy, Client::from_conf(once))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_accepts_and_never_answers_is_a_gateway_timeout() {
    let (_proxy, client) = before_idle_store(100, "").await;
    let get = client.get_object().bucket(BUCKET).key("key").send();
    let get = timeout(AT_MOST, get).await.expect("an answer").unwrap_err();
    assert_eq!(refusal(&get), (504, "GatewayTimeout"));
    // Nor does one that stops reading amid a body larger than all buffers on the way.
    let put = client.put_object().bucket(BUCKET).key("key").body(vec![0; 32 << 20].into()).send();
    let put = timeout(AT_MOST, put).await.expect("an end").unwrap_err();
    // Its connection may be reset before the answer is read.
    assert!(put.raw_response().is_none_or(|answer| answer.status().as_u16() == 504), "{put:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_stops_halfway_ends() {
    let (_proxy, client) = before_idle_store(100, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    let get = client.get_object().bucket(BUCKET).key("key").send();
    let got = timeout(AT_MOST, get).await.expect("headers").unwrap();
    assert!(timeout(AT_MOST, got.body.collect()).await.expect("an end").is_err());
}

/// As a whole it takes longer than any pause may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_upload_that_goes_on_is_no_timeout() {
    let s = TestServer::in_memory().await;
    let upstream = s.server.endpoint().parse().unwrap();
    let rules = "[[rule]]\nmethod = 'PUT'\naction = 'bandwidth'\nbytes_per_second = 1000000";
    let limits = Limits { idle_timeout: Duration::from_secs(2), ..Limits::default() };
    let faults = Some(Faults::parse(rules).unwrap());
    let proxy = Server::start(Config { limits, faults, ..Config::proxy(upstream) });
    let proxy = proxy.await.unwrap();
    let client = sdk_at(&proxy.endpoint(), s.server.credentials());
    let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
    let body = vec![7; 4 << 20];
    let put = Client::from_conf(once).put_object().bucket(BUCKET).key("key").body(body.clone().into());
    put.send().await.unwrap();
    assert!(s.get("key").await.unwrap() == body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_through_a_proxy_unchanged() {
    let s = TestServer::in_memory().await;
    let (proxy, client) = before(&s, None).await;
    // Larger than any buffer on the way, small, and empty.
    for (key, size) in [("a/b c", 20 << 20), ("ü/%2e%2e//+?&=", 10), ("empty", 0)] {
        let body: Bytes = (0..size).map(|n: u32| (n % 251) as u8).collect();
        let put = client.put_object().bucket(BUCKET).key(key).body(body.clone().into());
        let put = put.content_type("text/plain").metadata("colour", "blue").send().await.unwrap();
        assert!(s.get(key).await.unwrap() == body, "{key}");
        let got = client.get_object().bucket(BUCKET).key(key).send().await.unwrap();
        assert_eq!((got.e_tag(), got.content_length()), (put.e_tag(), Some(i64::from(size))));
        assert_eq!(
            (got.content_type(), got.metadata().unwrap()["colour"].as_str()),
            (Some("text/plain"), "blue")
        );
        assert!(got.body.collect().await.unwrap().into_bytes() == body, "{key}");
        let head = client.head_object().bucket(BUCKET).key(key).send().await.unwrap();
        assert_eq!(head.content_length(), Some(i64::from(size)));
        let again = client.put_object().bucket(BUCKET).key(key).if_none_match("*").send().await.unwrap_err();
        assert_eq!(refusal(&again), (412, "PreconditionFailed"));
    }
    let part = client.get_object().bucket(BUCKET).key("a/b c").range("bytes=5-8").send().await.unwrap();
    assert_eq!(part.body.collect().await.unwrap().into_bytes(), vec![5, 6, 7, 8]);
    let list = client.list_objects_v2().bucket(BUCKET).prefix("ü/").send().await.unwrap();
    assert_eq!(list.contents()[0].key(), Some("ü/%2e%2e//+?&="));
    let absent = client.get_object().bucket(BUCKET).key("absent").send().await.unwrap_err();
    assert_eq!(refusal(&absent), (404, "NoSuchKey"));
    client.delete_object().bucket(BUCKET).key("empty").send().await.unwrap();
    assert_eq!(s.get("empty").await, None);

    let upload = client.create_multipart_upload().bucket(BUCKET).key("parts").send().await.unwrap();
    let id = upload.upload_id().unwrap();
    let part = client.upload_part().bucket(BUCKET).key("parts").upload_id(id).part_number(1);
    let part = part.body(Bytes::from("part").into()).send().await.unwrap();
    let part = CompletedPart::builder().part_number(1).e_tag(part.e_tag().unwrap()).build();
    let parts = CompletedMultipartUpload::builder().parts(part).build();
    let done = client.complete_multipart_upload().bucket(BUCKET).key("parts").upload_id(id);
    done.multipart_upload(parts).send().await.unwrap();
    assert_eq!(s.get("parts").await.unwrap(), "part");

    for unsigned_payload in [false, true] {
        let store = object_store_at(&proxy.endpoint(), s.server.credentials(), unsigned_payload);
        let (key, create) = (Path::from(format!("os/{unsigned_payload}")), PutMode::Create);
        let create = || PutOptions::from(create.clone());
        store.put_opts(&key, PutPayload::from_static(b"value"), create()).await.unwrap();
        let again = store.put_opts(&key, PutPayload::from_static(b"value"), create()).await.unwrap_err();
        assert!(matches!(again, object_store::Error::AlreadyExists { .. }), "{again}");
        assert_eq!(store.get(&key).await.unwrap().bytes().await.unwrap(), "value");
    }
    proxy.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_behind_still_asks_for_its_key() {
    let s = TestServer::in_memory().await;
    let proxy = proxy(&s.server.endpoint(), None).await;
    let wrong = super::Credentials { access_key: "wrong".to_owned(), secret_key: "wrong".to_owned() };
    let list = sdk_at(&proxy.endpoint(), &wrong).list_buckets().send().await.unwrap_err();
    assert_eq!(refusal(&list), (403, "InvalidAccessKeyId"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_hold_in_front_of_another_store() {
    let s = TestServer::in_memory().await;
    let rules = "[[rule]]\nkey = 'lost'\nnth = 1\naction = 'apply-then-reset'\n\
                 [[rule]]\nkey = 'reset'\naction = 'reset'\n\
                 [[rule]]\nkey = 'slow'\naction = 'status'\nstatus = 503\n\
                 [[rule]]\nkey = 'hidden'\naction = 'hide'\nreads = 1\n\
                 [[rule]]\nkey = 'cut'\naction = 'truncate'\nbytes = 3";
    let (proxy, client) = before(&s, Some(rules)).await;
    let put =
        |key: &str| client.put_object().bucket(BUCKET).key(key).body(Bytes::from("value").into()).send();
    let get = |key: &str| client.get_object().bucket(BUCKET).key(key).send();
    for (key, is_there) in [("lost", true), ("reset", false)] {
        assert!(put(key).await.unwrap_err().raw_response().is_none(), "{key} was answered");
        assert_eq!(s.get(key).await.is_some(), is_there, "{key}");
    }
    assert_eq!(refusal(&put("slow").await.unwrap_err()), (503, "SlowDown"));
    assert_eq!(s.get("slow").await, None);
    put("hidden").await.unwrap();
    assert_eq!(refusal(&get("hidden").await.unwrap_err()), (404, "NoSuchKey"));
    get("hidden").await.unwrap();
    put("cut").await.unwrap();
    assert!(get("cut").await.unwrap().body.collect().await.is_err());
    let fired: Vec<_> = proxy.fault_counts().iter().map(|count| count.fired).collect();
    assert_eq!(fired, [1, 1, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_reached_is_a_bad_gateway() {
    let s = TestServer::in_memory().await;
    let (proxy, client) = before(&s, None).await;
    client.list_buckets().send().await.unwrap();
    s.server.shutdown().await;
    for _ in 0..2 {
        let list = client.list_buckets().send().await.unwrap_err();
        assert_eq!(refusal(&list), (502, "BadGateway"));
    }
    proxy.shutdown().await;
}
