//! The store itself under threads: without a client's round trip between them, the windows that a
//! missing lock would leave open are hit.

use std::sync::{Arc, Barrier};
use std::thread;

use bytes::Bytes;
use s3s::dto::{ETag, ETagCondition};
use s3s::{S3ErrorCode, S3Result};
use tempfile::TempDir;

use super::{BUCKET, unlimited};
use crate::budget::Piece;
use crate::files::Files;
use crate::multipart::Uploads;
use crate::objects::ReadConditions;
use crate::service::Service;
use crate::store::{Conditions, Found, Store};

fn stores() -> Vec<(Store, Option<TempDir>)> {
    let dir = TempDir::new().unwrap();
    let (files, found) = Files::open(dir.path().to_owned()).unwrap();
    let stores = vec![
        (Store::new(None, Found::default(), unlimited()), None),
        (Store::new(Some(files), found, unlimited()), Some(dir)),
    ];
    for (store, _) in &stores {
        store.create_bucket(BUCKET).unwrap();
    }
    stores
}

fn put(store: &Store, bucket: &str, key: &str, conditions: &Conditions) -> S3Result<String> {
    let held = Arc::new(unlimited().take(4).unwrap());
    let body = vec![Piece { bytes: Bytes::from_static(b"body"), _held: held }];
    Ok(store.put(bucket, key, conditions, Default::default(), body)?.etag)
}

fn if_match(etag: &str) -> Conditions {
    let etag = ETagCondition::ETag(ETag::Strong(etag.to_owned()));
    Conditions { if_match: Some(etag), if_none_match: None }
}

#[test]
fn one_of_many_creations_succeeds() {
    let create = Conditions { if_match: None, if_none_match: Some(ETagCondition::Any) };
    for (store, _dir) in stores() {
        let start = Barrier::new(8);
        let created = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let key = |i: usize| format!("{i}");
                        (0..300)
                            .filter(|i| {
                                start.wait();
                                put(&store, BUCKET, &key(*i), &create).is_ok()
                            })
                            .count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(created, 300);
    }
}

#[test]
fn no_update_is_lost() {
    for (store, _dir) in stores() {
        let first = put(&store, BUCKET, "key", &Conditions::default()).unwrap();
        // Each update names the one it replaced: were one lost, two would name the same.
        let replaced = thread::scope(|scope| {
            let update = || {
                let mut replaced = Vec::new();
                while replaced.len() < 200 {
                    let etag = store.object(BUCKET, "key").unwrap().about.etag.clone();
                    if put(&store, BUCKET, "key", &if_match(&etag)).is_ok() {
                        replaced.push(etag);
                    }
                }
                replaced
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(update)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut distinct = replaced.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 800);
        assert!(replaced.contains(&first));
    }
}

#[test]
fn a_bucket_never_vanishes_with_an_object() {
    for (store, _dir) in stores() {
        let start = Barrier::new(2);
        for round in 0..500 {
            let bucket = format!("vanishing-{round}");
            store.create_bucket(&bucket).unwrap();
            let (put, deleted) = thread::scope(|scope| {
                let put = scope.spawn(|| {
                    start.wait();
                    put(&store, &bucket, "key", &Conditions::default())
                });
                start.wait();
                let deleted = store.delete_bucket(&bucket);
                (put.join().unwrap(), deleted)
            });
            match (put, deleted) {
                (Ok(_), Err(error)) if *error.code() == S3ErrorCode::BucketNotEmpty => {}
                (Err(error), Ok(())) if *error.code() == S3ErrorCode::NoSuchBucket => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// On disk, between a reader's look-up and its opening of the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_finds_what_replaced_its_object() {
    for (store, _dir) in stores() {
        put(&store, BUCKET, "key", &Conditions::default()).unwrap();
        let service = Arc::new(Service {
            store: Arc::new(store),
            uploads: Uploads::default(),
            max_object_bytes: u64::MAX,
        });
        let writer = {
            let store = service.store.clone();
            tokio::task::spawn_blocking(move || {
                (0..3000).for_each(|_| drop(put(&store, BUCKET, "key", &Conditions::default()).unwrap()));
            })
        };
        while !writer.is_finished() {
            service.read(BUCKET, "key", None, &ReadConditions::default()).await.unwrap();
        }
        writer.await.unwrap();
    }
}
