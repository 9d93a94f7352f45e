//! Listings against a plain model.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_s3::types::EncodingType;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::{BUCKET, TestServer, on_both_stores, refusal, unlimited};
use crate::listing::{Page, Position, Query, page};
use crate::store::{Conditions, Found, Store};

on_both_stores!(pages_of_a_listing, listing_v1, object_store_lists, odd_queries);

async fn fill(s: &TestServer) {
    for key in ["a", "b/1", "b/2", "b/c/3", "c", "d/", "d/4", "ü/5"] {
        s.put(key, key).await;
    }
}

async fn pages_of_a_listing(s: &TestServer) {
    fill(s).await;
    let first = s.sdk.list_objects_v2().bucket(BUCKET).delimiter("/").max_keys(2).send().await.unwrap();
    assert_eq!(first.contents()[0].key(), Some("a"));
    assert_eq!(first.contents()[0].size(), Some(1));
    assert!(first.contents()[0].last_modified().is_some());
    assert_eq!(first.common_prefixes()[0].prefix(), Some("b/"));
    assert_eq!((first.key_count(), first.is_truncated()), (Some(2), Some(true)));
    let mut seen = Vec::new();
    let mut pages = s.sdk.list_objects_v2().bucket(BUCKET).delimiter("/").max_keys(2).into_paginator().send();
    while let Some(answer) = pages.next().await {
        let answer = answer.unwrap();
        seen.extend(answer.contents().iter().map(|object| object.key().unwrap().to_owned()));
        seen.extend(answer.common_prefixes().iter().map(|prefix| prefix.prefix().unwrap().to_owned()));
    }
    assert_eq!(seen, ["a", "b/", "c", "d/", "ü/"]);

    let after = s.sdk.list_objects_v2().bucket(BUCKET).prefix("b/").start_after("b/1").send().await.unwrap();
    let keys: Vec<_> = after.contents().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!((keys, after.is_truncated()), (vec!["b/2", "b/c/3"], Some(false)));
}

async fn listing_v1(s: &TestServer) {
    fill(s).await;
    let mut marker = None;
    let mut seen = Vec::new();
    loop {
        let request = s.sdk.list_objects().bucket(BUCKET).delimiter("/").max_keys(1).set_marker(marker);
        let answer = request.send().await.unwrap();
        seen.extend(answer.contents().iter().map(|object| object.key().unwrap().to_owned()));
        seen.extend(answer.common_prefixes().iter().map(|prefix| prefix.prefix().unwrap().to_owned()));
        marker = answer.next_marker;
        if answer.is_truncated != Some(true) {
            break;
        }
    }
    assert_eq!(seen, ["a", "b/", "c", "d/", "ü/"]);
}

async fn object_store_lists(s: &TestServer) {
    for i in 0..1005 {
        s.put(&format!("many/{i:04}"), "").await;
    }
    fill(s).await;
    let store = s.object_store(true);
    let (many, offset) = (Path::from("many"), Path::from("many/0001"));
    let all: Vec<_> = store.list(Some(&many)).try_collect().await.unwrap();
    assert_eq!(all.len(), 1005);
    let later: Vec<_> = store.list_with_offset(Some(&many), &offset).try_collect().await.unwrap();
    assert_eq!((later.len(), later[0].location.as_ref()), (1003, "many/0002"));
    let top = store.list_with_delimiter(None).await.unwrap();
    let prefixes: Vec<_> = top.common_prefixes.iter().map(Path::as_ref).collect();
    assert_eq!(prefixes, ["b", "d", "many", "ü"]);
}

async fn odd_queries(s: &TestServer) {
    fill(s).await;
    let list = || s.sdk.list_objects_v2().bucket(BUCKET);
    let none = list().max_keys(0).send().await.unwrap();
    assert_eq!((none.contents().len(), none.is_truncated()), (0, Some(false)));
    assert_eq!(refusal(&list().max_keys(-1).send().await.unwrap_err()), (400, "InvalidArgument"));
    let foreign = list().continuation_token("xyz").send().await.unwrap_err();
    assert_eq!(refusal(&foreign), (400, "InvalidArgument"));
    assert_eq!(list().max_keys(5000).send().await.unwrap().max_keys(), Some(1000));
    let url = list().prefix("ü").encoding_type(EncodingType::Url).send().await.unwrap();
    assert_eq!(url.contents()[0].key(), Some("%C3%BC/5"));
}

/// All that should be shown, in order; a common prefix is told by the flag.
fn model(
    keys: &BTreeMap<String, ()>,
    prefix: &str,
    delimiter: Option<&str>,
    after: &str,
) -> Vec<(String, bool)> {
    let mut shown: Vec<(String, bool)> = Vec::new();
    for key in keys.keys().filter(|key| key.starts_with(prefix) && key.as_str() > after) {
        let rest = &key[prefix.len()..];
        let row = match delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len())) {
            Some(length) => (key[..prefix.len() + length].to_owned(), true),
            None => (key.clone(), false),
        };
        if shown.last() != Some(&row) {
            shown.push(row);
        }
    }
    shown
}

fn rows(page: &Page) -> Vec<(String, bool)> {
    let objects = page.objects.iter().map(|(key, _)| (key.clone(), false));
    let mut rows: Vec<_> = objects.chain(page.prefixes.iter().map(|prefix| (prefix.clone(), true))).collect();
    rows.sort();
    rows
}

fn keys() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab/\u{10FFFF}ü-]{1,6}", 0..40)
}

proptest! {
    /// The pages, put together, are what the model shows; none is larger than asked, and none but
    /// the last is smaller.
    #[test]
    fn pages_match_the_model(
        keys in keys(),
        prefix in "[ab/\u{10FFFF}ü-]{0,2}",
        delimiter in prop::option::of("[/b]|-/|\u{10FFFF}"),
        after in "[ab/\u{10FFFF}ü-]{0,3}",
        max_keys in 1_usize..8,
    ) {
        let store = Store::new(None, Found::default(), unlimited());
        store.create_bucket(BUCKET).unwrap();
        for key in &keys {
            store.put(BUCKET, key, &Conditions::default(), Default::default(), vec![]).unwrap();
        }
        let keys = keys.into_iter().map(|key| (key, ())).collect();
        let expected = model(&keys, &prefix, delimiter.as_deref(), &after);
        let bucket = store.bucket(BUCKET).unwrap();
        let mut position = if after.is_empty() { Position::Start } else { Position::Key(after) };
        let mut shown = Vec::new();
        loop {
            let query = Query { prefix: &prefix, delimiter: delimiter.as_deref(), after: position, max_keys };
            let page = page(&bucket.objects.read(), &query);
            let rows = rows(&page);
            prop_assert!(rows.len() <= max_keys);
            shown.extend(rows.iter().cloned());
            match page.next {
                None => break,
                Some(next) => {
                    prop_assert_eq!(rows.len(), max_keys);
                    prop_assert_eq!(Position::from_token(&next.token()), Some(next.clone()));
                    position = next;
                }
            }
        }
        prop_assert_eq!(shown, expected);
    }
}

/// The same through HTTP: one server, a prefix of its own for each case.
#[test]
fn pages_match_the_model_over_http() {
    let runtime = Runtime::new().unwrap();
    for server in [runtime.block_on(TestServer::in_memory()), runtime.block_on(TestServer::on_disk())] {
        let server = Arc::new(server);
        let cases = std::sync::atomic::AtomicU32::new(0);
        let strategy = (
            prop::collection::vec("[ab/ü-]{1,6}", 0..15),
            "[ab/]{0,1}",
            any::<bool>(),
            "[ab/]{0,3}",
            1..5_i32,
        );
        let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let result = runner.run(&strategy, |(keys, prefix, fold, after, max_keys)| {
            let case = cases.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let base = format!("case{case}/");
            let prefix = format!("{base}{prefix}");
            let after = format!("{base}{after}");
            let delimiter = fold.then_some("/");
            let keys: BTreeMap<_, _> = keys.into_iter().map(|key| (format!("{base}{key}"), ())).collect();
            let shown = runtime.block_on(async {
                for key in keys.keys() {
                    server.put(key, "").await;
                }
                let list = server.sdk.list_objects_v2().bucket(BUCKET).prefix(&prefix).start_after(&after);
                let list = list.set_delimiter(delimiter.map(str::to_owned)).max_keys(max_keys);
                let mut pages = list.into_paginator().send();
                let mut shown = Vec::new();
                while let Some(answer) = pages.next().await {
                    let answer = answer.unwrap();
                    let objects =
                        answer.contents().iter().map(|object| (object.key().unwrap().to_owned(), false));
                    let prefixes = answer.common_prefixes().iter();
                    let prefixes = prefixes.map(|prefix| (prefix.prefix().unwrap().to_owned(), true));
                    let mut rows: Vec<_> = objects.chain(prefixes).collect();
                    rows.sort();
                    shown.extend(rows);
                }
                shown
            });
            prop_assert_eq!(shown, model(&keys, &prefix, delimiter, &after));
            Ok(())
        });
        result.unwrap();
    }
}
