//! Starting, stopping, and what a restart finds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use aws_sdk_s3::presigning::PresigningConfig;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BUCKET, Config, Server, TestServer, config, on_both_stores, sdk};
use crate::ServerError;

on_both_stores!(what_it_says_about_itself);

async fn what_it_says_about_itself(s: &TestServer) {
    let address = s.server.address;
    assert_ne!(address.port(), 0);
    assert_eq!(s.server.endpoint(), format!("http://127.0.0.1:{}", address.port()));
}

#[tokio::test]
async fn given_credentials_are_used() {
    let credentials = super::Credentials { access_key: "user".to_owned(), secret_key: "secret".to_owned() };
    let server =
        Server::start(Config { credentials: Some(credentials.clone()), ..config(None) }).await.unwrap();
    assert_eq!(server.credentials().access_key, "user");
    sdk(&server, &credentials).head_bucket().bucket(BUCKET).send().await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_all_objects() {
    let s = TestServer::on_disk().await;
    let request = s.sdk.put_object().bucket(BUCKET).key("a/b").body(Bytes::from("value").into());
    request.content_type("text/plain").metadata("colour", "blue").send().await.unwrap();
    s.put("replaced", "1").await;
    s.put("replaced", "2").await;
    s.put("deleted", "x").await;
    s.sdk.delete_object().bucket(BUCKET).key("deleted").send().await.unwrap();
    s.put("empty", "").await;
    s.sdk.create_bucket().bucket("another").send().await.unwrap();
    let head = |s: &TestServer| s.sdk.head_object().bucket(BUCKET).key("a/b").send();
    let before = head(&s).await.unwrap();

    let s = s.restart().await;
    let after = head(&s).await.unwrap();
    assert_eq!(after.e_tag(), before.e_tag());
    assert_eq!(after.last_modified(), before.last_modified());
    assert_eq!(after.content_type(), Some("text/plain"));
    assert_eq!(after.metadata(), before.metadata());
    assert_eq!(s.get("a/b").await, Some(Bytes::from("value")));
    assert_eq!(s.get("replaced").await, Some(Bytes::from("2")));
    assert_eq!(s.get("empty").await, Some(Bytes::new()));
    let list = s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    let keys: Vec<_> = list.contents().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!(keys, ["a/b", "empty", "replaced"]);
    s.sdk.head_bucket().bucket("another").send().await.unwrap();

    // The ETag of before still is what conditions compare with, and new writes are later ones.
    let put = s.sdk.put_object().bucket(BUCKET).key("a/b").body(Bytes::from("new").into());
    put.if_match(before.e_tag().unwrap()).send().await.unwrap();
    let s = s.restart().await;
    assert_eq!(s.get("a/b").await, Some(Bytes::from("new")));
}

/// The states a killed server can leave, and one that only a power cut can.
#[tokio::test]
async fn leftovers_of_a_killed_server_are_cleaned_up() {
    let s = TestServer::on_disk().await;
    s.put("key", "first").await;
    let bucket = s.dir.as_ref().unwrap().path().join("data/buckets/bucket");
    let only = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let first = only(&bucket);
    let saved = fs::read(&first).unwrap();
    s.put("key", "second").await;
    let second = only(&bucket);
    let tmp = bucket.join("../../tmp");
    fs::write(tmp.join("0"), "half a wri").unwrap();
    // Killed between publishing the second write and removing the first.
    fs::write(&first, &saved).unwrap();
    fs::write(bucket.join("00000000000000ff"), &saved[..saved.len() - 1]).unwrap();
    fs::write(bucket.join("notes.txt"), "not an object").unwrap();

    let s = s.restart().await;
    assert_eq!(s.get("key").await, Some(Bytes::from("second")));
    let list = s.sdk.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    assert_eq!(list.contents().len(), 1);
    assert!(fs::read_dir(&tmp).unwrap().next().is_none());
    assert!(second.exists() && !first.exists());
    assert!(bucket.join("notes.txt").exists(), "what is not ours is left alone");
}

#[tokio::test]
async fn a_second_server_on_one_directory_is_refused() {
    let s = TestServer::on_disk().await;
    let path = s.dir.as_ref().unwrap().path().join("data");
    let second = Server::start(config(Some(&path))).await.unwrap_err();
    assert!(matches!(second, ServerError::DataDirInUse { .. }), "{second}");
    s.put("key", "value").await;
    let s = s.restart().await;
    assert_eq!(s.get("key").await, Some(Bytes::from("value")));
}

#[tokio::test]
async fn what_stands_in_the_way_is_named() {
    let first = Server::start(config(None)).await.unwrap();
    let taken = Config { listen: first.address, ..config(None) };
    let error = Server::start(taken).await.unwrap_err();
    assert!(matches!(error, ServerError::AddressInUse { .. }), "{error}");
    assert!(error.to_string().contains("--listen"), "{error}");

    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Server::start(config(Some(&file))).await.unwrap_err();
    assert!(matches!(error, ServerError::DataDir { .. }), "{error}");
    assert!(error.to_string().contains("--data-dir"), "{error}");

    fs::create_dir(dir.path().join("tmp")).unwrap();
    fs::write(dir.path().join("tmp/precious"), "").unwrap();
    let error = Server::start(config(Some(dir.path()))).await.unwrap_err();
    assert!(matches!(error, ServerError::NotADataDir { .. }), "{error}");
    assert!(dir.path().join("tmp/precious").exists());

    let bad = Config { buckets: vec!["No Bucket".to_owned()], ..config(None) };
    let error = Server::start(bad).await.unwrap_err();
    assert!(matches!(error, ServerError::InvalidBucket { .. }), "{error}");
}

#[tokio::test]
async fn shutdown_ends_with_connections_open() {
    let s = TestServer::in_memory().await;
    // The SDK's connections stay open in its pool; this one never sends anything.
    s.put("key", "value").await;
    let address = s.server.address;
    let mut idle = TcpStream::connect(address).await.unwrap();
    // And this one stops in the middle of a body.
    let presigned = PresigningConfig::expires_in(Duration::from_secs(600)).unwrap();
    let put = s.sdk.put_object().bucket(BUCKET).key("key").presigned(presigned).await.unwrap();
    let path = put.uri().strip_prefix(&s.server.endpoint()).unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\nhalf");
    let mut stuck = TcpStream::connect(address).await.unwrap();
    stuck.write_all(head.as_bytes()).await.unwrap();
    // It keeps nobody from the key.
    s.put("key", "another").await;
    assert_eq!(s.get("key").await, Some(Bytes::from("another")));

    let ended = tokio::time::timeout(Duration::from_secs(60), s.server.shutdown()).await;
    assert!(ended.is_ok(), "shutdown waits for its clients");
    assert!(TcpStream::connect(address).await.is_err(), "still listening");
    assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0, "the idle connection is still open");
    assert_eq!(stuck.read(&mut [0]).await.unwrap_or(0), 0, "the stuck request was answered");
}

#[tokio::test]
async fn a_dropped_server_frees_its_port_and_directory() {
    let s = TestServer::on_disk().await;
    let (address, dir) = (s.server.address, s.dir.unwrap());
    drop(s.server);
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let path = dir.path().join("data");
    loop {
        match Server::start(config(Some(&path))).await {
            Ok(_) => break,
            Err(ServerError::DataDirInUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}
