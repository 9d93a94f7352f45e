//! A proxy in front of a server, seen from clients of it.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::super::{Faults, Proxy, ProxyConfig, Upstream};
use super::{BUCKET, TestServer, object_store_at, refusal, sdk_at};

/// A proxy with these rules before a server, and a client of the proxy that tries nothing twice.
async fn before(s: &TestServer, rules: Option<&str>) -> (Proxy, Client) {
    let proxy = proxy(&s.server.endpoint(), rules).await;
    let client = sdk_at(&proxy.endpoint(), s.server.credentials());
    let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
    (proxy, Client::from_conf(once))
}

async fn proxy(upstream: &str, rules: Option<&str>) -> Proxy {
    Proxy::start(ProxyConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: upstream.parse::<Upstream>().unwrap(),
        delays: super::super::Delays::default(),
        faults: rules.map(|rules| Faults::parse(rules).unwrap()),
    })
    .await
    .unwrap()
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
