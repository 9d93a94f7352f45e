//! Keys that would be awkward as file names.

use std::path::Path;

use aws_sdk_s3::types::EncodingType;
use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::access::raw;
use super::{BUCKET, TestServer, on_both_stores, refusal};

on_both_stores!(every_key_is_representable, a_key_has_at_most_1024_bytes, paths_that_are_no_keys_are_refused,);

fn awkward_keys() -> Vec<String> {
    let mut keys: Vec<String> = [
        "a",
        "a/b",
        "a/b/",
        "a//b",
        "a/",
        "/",
        "//",
        "/etc/passwd",
        "../outside",
        "../../outside",
        "a/../../outside",
        "a/./b",
        "./a",
        "...",
        "..a",
        "C:\\x",
        "\\..\\x",
        "nul\0byte",
        "line\nbreak",
        "tab\t",
        "space ",
        " space",
        "%2e%2e/x",
        "%00",
        "a%2Fb",
        "a+b",
        "a b",
        "a?b=c",
        "a#b",
        "a&b",
        "<a>",
        "\"a\"",
        "'a'",
        "ü/日本/🦀",
        "con",
        "tmp",
        "lock",
        "buckets",
        "0000000000000001",
        "A",
        "é",
        "e\u{301}",
        "~",
        "*",
        "a;b",
        "a=b",
        "@",
        ":",
    ]
    .map(str::to_owned)
    .into();
    keys.push("x".repeat(1024));
    keys.push("../".repeat(341));
    keys.push("ü".repeat(512));
    keys
}

async fn every_key_is_representable(s: &TestServer) {
    let mut keys = awkward_keys();
    for (i, key) in keys.iter().enumerate() {
        s.put(key, format!("{i}")).await;
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(s.get(key).await, Some(Bytes::from(format!("{i}"))), "{key:?}");
    }
    let list = s.sdk.list_objects_v2().bucket(BUCKET).encoding_type(EncodingType::Url).send().await.unwrap();
    let listed: Vec<_> = list.contents().iter().map(|object| decoded(object.key().unwrap())).collect();
    keys.sort();
    assert_eq!(listed, keys);
    if let Some(dir) = &s.dir {
        let beside: Vec<_> = names(dir.path());
        assert_eq!(beside, ["data"], "something was written outside the data directory");
        assert_eq!(names(&dir.path().join("data")), ["buckets", "s3mq.lock", "tmp"]);
        assert_eq!(names(&dir.path().join("data/buckets")), [BUCKET]);
        assert!(names(&dir.path().join("data/tmp")).is_empty());
        assert_eq!(names(&dir.path().join("data/buckets/bucket")).len(), keys.len());
    }
    for key in &keys {
        s.sdk.delete_object().bucket(BUCKET).key(key).send().await.unwrap();
        assert_eq!(s.get(key).await, None, "{key:?}");
    }
    if let Some(dir) = &s.dir {
        assert!(names(&dir.path().join("data/buckets/bucket")).is_empty());
    }
}

async fn a_key_has_at_most_1024_bytes(s: &TestServer) {
    let put = s.sdk.put_object().bucket(BUCKET).key("x".repeat(1025)).send().await.unwrap_err();
    assert_eq!(refusal(&put), (400, "KeyTooLongError"));
}

fn decoded(key: &str) -> String {
    percent_decode_str(key).decode_utf8().unwrap().into_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Paths as no client library would send them.
async fn paths_that_are_no_keys_are_refused(s: &TestServer) {
    s.put("key", "value").await;
    let long = format!("/bucket/{}", "x".repeat(20_000));
    for path in [
        "/bucket/%ff%fe",
        "/bucket/../../../etc/passwd",
        "/../bucket/key",
        "/bucket/%2e%2e/%2e%2e/etc/passwd",
        "/..%2fbucket/key",
        "/%2e%2e/key",
        "//bucket/key",
        "/bucket/%00",
        "/%00/key",
        "/bucket/%zz",
        "/bucket/%",
        &long,
        "*",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = raw(s, &format!("{method} {path}")).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{method} {path}: {answer}");
        }
    }
    assert_eq!(s.get("key").await, Some(Bytes::from("value")));
    let list = s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    assert_eq!(list.contents().len(), 1);
    if let Some(dir) = &s.dir {
        assert_eq!(names(dir.path()), ["data"], "something was written outside the data directory");
        assert_eq!(names(&dir.path().join("data")), ["buckets", "s3mq.lock", "tmp"]);
        assert_eq!(names(&dir.path().join("data/buckets")), [BUCKET]);
    }
}
