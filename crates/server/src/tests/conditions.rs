//! Conditional writes, alone and in races.

use std::collections::HashSet;

use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use futures::future::join_all;
use object_store::path::Path;
use object_store::{Error, ObjectStore, PutMode, PutOptions, UpdateVersion};

use super::{BUCKET, TestServer, on_both_stores, refusal};

on_both_stores!(
    a_put_under_conditions,
    a_copy_under_conditions,
    a_delete_under_conditions,
    one_of_twenty_creations_succeeds,
    compare_and_swap_loses_no_increment,
    object_store_creates_and_updates,
    buckets_vanish_only_when_empty,
);

const FAILED: (u16, &str) = (412, "PreconditionFailed");

async fn a_put_under_conditions(s: &TestServer) {
    let put = |body: &'static str| {
        s.sdk.put_object().bucket(BUCKET).key("key").body(ByteStream::from_static(body.as_bytes()))
    };
    assert_eq!(refusal(&put("0").if_match("\"x\"").send().await.unwrap_err()), (404, "NoSuchKey"));
    assert_eq!(s.get("key").await, None);
    let one = put("1").if_none_match("*").send().await.unwrap().e_tag.unwrap();
    assert_eq!(refusal(&put("2").if_none_match("*").send().await.unwrap_err()), FAILED);
    assert_eq!(refusal(&put("2").if_none_match(&one).send().await.unwrap_err()), FAILED);
    assert_eq!(refusal(&put("2").if_match("\"x\"").send().await.unwrap_err()), FAILED);
    assert_eq!(s.get("key").await, Some(Bytes::from("1")));
    let two = put("2").if_match(&one).send().await.unwrap().e_tag.unwrap();
    assert_ne!(one, two);
    assert_eq!(refusal(&put("3").if_match(&one).send().await.unwrap_err()), FAILED);
    let three = put("3").if_none_match(&one).send().await.unwrap().e_tag.unwrap();
    assert_eq!(s.get("key").await, Some(Bytes::from("3")));
    // The same bytes are another write, and so another ETag.
    assert_ne!(put("3").if_match("*").send().await.unwrap().e_tag.unwrap(), three);
}

async fn a_copy_under_conditions(s: &TestServer) {
    s.put("from", "new").await;
    let etag = s.put("to", "old").await;
    let copy = |name: &'static str, value: String| {
        let request = s.sdk.copy_object().bucket(BUCKET).key("to").copy_source(format!("{BUCKET}/from"));
        request.customize().mutate_request(move |request| {
            request.headers_mut().insert(name, value.clone());
        })
    };
    assert_eq!(refusal(&copy("if-none-match", "*".into()).send().await.unwrap_err()), FAILED);
    assert_eq!(refusal(&copy("if-match", "\"x\"".into()).send().await.unwrap_err()), FAILED);
    assert_eq!(s.get("to").await, Some(Bytes::from("old")));
    copy("if-match", etag).send().await.unwrap();
    assert_eq!(s.get("to").await, Some(Bytes::from("new")));
}

async fn a_delete_under_conditions(s: &TestServer) {
    let etag = s.put("key", "1").await;
    let delete = || s.sdk.delete_object().bucket(BUCKET).key("key");
    assert_eq!(refusal(&delete().if_match("\"x\"").send().await.unwrap_err()), FAILED);
    assert!(s.get("key").await.is_some());
    delete().if_match(&etag).send().await.unwrap();
    assert_eq!(refusal(&delete().if_match(&etag).send().await.unwrap_err()), (404, "NoSuchKey"));
}

async fn one_of_twenty_creations_succeeds(s: &TestServer) {
    for round in 0..50 {
        let key = format!("race/{round}");
        let creations = (0..20).map(|i| {
            let body = ByteStream::from(format!("{i}").into_bytes());
            tokio::spawn(s.sdk.put_object().bucket(BUCKET).key(&key).if_none_match("*").body(body).send())
        });
        let mut winners = Vec::new();
        for (i, result) in join_all(creations).await.into_iter().enumerate() {
            match result.unwrap() {
                Ok(put) => winners.push((i, put.e_tag.unwrap())),
                Err(error) => assert_eq!(refusal(&error), FAILED),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let got = s.sdk.get_object().bucket(BUCKET).key(&key).send().await.unwrap();
        assert_eq!(got.e_tag.as_deref(), Some(winners[0].1.as_str()));
        assert_eq!(got.body.collect().await.unwrap().into_bytes(), format!("{}", winners[0].0));
    }
}

async fn compare_and_swap_loses_no_increment(s: &TestServer) {
    s.put("counter", "0").await;
    let increment = || async {
        loop {
            let got = s.sdk.get_object().bucket(BUCKET).key("counter").send().await.unwrap();
            let etag = got.e_tag.clone().unwrap();
            let text = got.body.collect().await.unwrap().into_bytes();
            let next = std::str::from_utf8(&text).unwrap().parse::<u32>().unwrap() + 1;
            let body = ByteStream::from(next.to_string().into_bytes());
            match s.sdk.put_object().bucket(BUCKET).key("counter").if_match(&etag).body(body).send().await {
                Ok(put) => return put.e_tag.unwrap(),
                Err(error) => assert_eq!(refusal(&error), FAILED),
            }
        }
    };
    let tasks = (0..20).map(|_| async {
        let mut etags = Vec::new();
        for _ in 0..20 {
            etags.push(increment().await);
        }
        etags
    });
    let etags: HashSet<_> = join_all(tasks).await.into_iter().flatten().collect();
    assert_eq!(etags.len(), 400, "an ETag was given twice");
    assert_eq!(s.get("counter").await, Some(Bytes::from("400")));
}

async fn object_store_creates_and_updates(s: &TestServer) {
    let store = s.object_store(true);
    let key = Path::from("key");
    let create = || PutOptions::from(PutMode::Create);
    let one = store.put_opts(&key, "1".into(), create()).await.unwrap();
    let again = store.put_opts(&key, "2".into(), create()).await.unwrap_err();
    assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
    let update = |e_tag: &Option<String>| {
        PutOptions::from(PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: None }))
    };
    let two = store.put_opts(&key, "2".into(), update(&one.e_tag)).await.unwrap();
    let stale = store.put_opts(&key, "3".into(), update(&one.e_tag)).await.unwrap_err();
    assert!(matches!(stale, Error::Precondition { .. }), "{stale}");
    store.put_opts(&key, "3".into(), update(&two.e_tag)).await.unwrap();
    assert_eq!(s.get("key").await, Some(Bytes::from("3")));
}

/// A bucket is deleted while objects are put into it: an acknowledged object is never deleted
/// along with its bucket.
async fn buckets_vanish_only_when_empty(s: &TestServer) {
    for round in 0..30 {
        let bucket = format!("vanishing-{round}");
        s.sdk.create_bucket().bucket(&bucket).send().await.unwrap();
        let put = s.sdk.put_object().bucket(&bucket).key("key").send();
        let delete = s.sdk.delete_bucket().bucket(&bucket).send();
        match tokio::join!(put, delete) {
            (Ok(_), Err(full)) => assert_eq!(refusal(&full), (409, "BucketNotEmpty")),
            (Err(gone), Ok(_)) => assert_eq!(refusal(&gone), (404, "NoSuchBucket")),
            other => panic!("{other:?}"),
        }
    }
}
