//! What a client may ask for, and how long it may take over it.

use std::time::Duration;

use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{Limits, Server};
use super::{BUCKET, Config, TestServer, config, refusal, sdk};

const MIB: usize = 1 << 20;

/// A server of either kind with these limits.
async fn with_limits(limits: Limits, on_disk: bool) -> TestServer {
    let dir = on_disk.then(|| tempfile::tempdir().unwrap());
    let path = dir.as_ref().map(|dir| dir.path().join("data"));
    let server = Server::start(Config { limits, ..config(path.as_deref()) }).await.unwrap();
    TestServer { sdk: sdk(&server, server.credentials()), server, dir }
}

fn small() -> Limits {
    Limits { max_object_bytes: 6 * MIB as u64, ..Limits::default() }
}

fn short_idle_timeout() -> Limits {
    Limits { idle_timeout: Duration::from_millis(200), ..Limits::default() }
}

/// Path and query of a request that may be made without knowing the key.
async fn presigned(s: &TestServer, method: &str) -> String {
    let config = PresigningConfig::expires_in(Duration::from_secs(600)).unwrap();
    let uri = match method {
        "PUT" => s.sdk.put_object().bucket(BUCKET).key("key").presigned(config).await.unwrap(),
        _ => s.sdk.get_object().bucket(BUCKET).key("key").presigned(config).await.unwrap(),
    };
    uri.uri().strip_prefix(&s.server.endpoint()).unwrap().to_owned()
}

async fn connect(s: &TestServer) -> TcpStream {
    TcpStream::connect(s.server.address).await.unwrap()
}

/// What is answered until the connection ends, however it does.
async fn answer(stream: &mut TcpStream) -> String {
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        answer.extend_from_slice(&part[..length]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_too_large_is_refused() {
    for on_disk in [false, true] {
        let s = with_limits(small(), on_disk).await;
        let put =
            |size: usize| s.sdk.put_object().bucket(BUCKET).key("key").body(vec![0; size].into()).send();
        put(6 * MIB).await.unwrap();
        assert_eq!(refusal(&put(6 * MIB + 1).await.unwrap_err()), (400, "EntityTooLarge"));
        assert_eq!(s.get("key").await.unwrap().len(), 6 * MIB, "what was there is still there");
    }
}

/// In pieces with a checksum behind them, as the SDK sends what it does not hold in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_is_one_in_signed_pieces() {
    let s = with_limits(small(), false).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let put = async |size: usize| {
        std::fs::write(file.path(), vec![7; size]).unwrap();
        let body = ByteStream::from_path(file.path()).await.unwrap();
        let put = s.sdk.put_object().bucket(BUCKET).key("key").body(body);
        put.checksum_algorithm(ChecksumAlgorithm::Crc32).send().await
    };
    put(6 * MIB).await.unwrap();
    assert_eq!(s.get("key").await.unwrap().len(), 6 * MIB);
    assert_eq!(refusal(&put(6 * MIB + 1).await.unwrap_err()), (400, "EntityTooLarge"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promise_of_too_much_is_refused_before_any_of_it_comes() {
    let s = with_limits(small(), false).await;
    let path = presigned(&s, "PUT").await;
    let mut stream = connect(&s).await;
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 99999999999\r\n\r\n", s.server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("EntityTooLarge"), "{answer}");
}

/// Without a length the server has to count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_an_end_is_cut_short() {
    let s = with_limits(small(), false).await;
    let path = presigned(&s, "PUT").await;
    let mut stream = connect(&s).await;
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", s.server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[0; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while stream.write_all(&chunk).await.is_ok() {
        sent += chunk.len();
        assert!(sent < 100 * MIB, "it takes everything");
    }
    assert_eq!(s.get("key").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parts_of_an_upload_have_a_most_together() {
    let s = with_limits(small(), false).await;
    let upload = s.sdk.create_multipart_upload().bucket(BUCKET).key("key").send().await.unwrap();
    let part = |number: i32, size: usize| {
        let part = s.sdk.upload_part().bucket(BUCKET).key("key").upload_id(upload.upload_id().unwrap());
        part.part_number(number).body(vec![0; size].into()).send()
    };
    part(1, 5 * MIB).await.unwrap();
    part(2, MIB).await.unwrap();
    assert_eq!(refusal(&part(3, 1).await.unwrap_err()), (400, "EntityTooLarge"));
    // A part that replaces another one counts in its place.
    part(1, 5 * MIB).await.unwrap();
    part(2, 1).await.unwrap();
    part(3, MIB - 1).await.unwrap();
    let (one, two) = tokio::join!(part(2, MIB), part(3, MIB));
    assert!(one.is_err() && two.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_have_a_most() {
    let s = TestServer::in_memory().await;
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    for (path, headers) in
        [("/bucket/key", many.as_str()), ("/bucket/key", &long), (&"/x".repeat(50_000), "")]
    {
        let mut stream = connect(&s).await;
        // It may stop reading before all of it came.
        let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).await;
        let answer = answer(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    s.put("key", "value").await;
}

/// The protocol crate would read the whole file of a form before it asks who sent it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_nobody_signed_uploads_nothing() {
    let s = TestServer::in_memory().await;
    let mut stream = connect(&s).await;
    let head = "POST /bucket HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n\
                Content-Length: 99999999999\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nkey\r\n\
                --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0;
    while stream.write_all(&[0; 0x10000]).await.is_ok() {
        sent += 0x10000;
        assert!(sent < 100 * MIB, "it takes everything");
    }
    assert_eq!(s.get("key").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_stops_halfway_ends_its_connection() {
    let s = with_limits(short_idle_timeout(), false).await;
    let path = presigned(&s, "PUT").await;
    let host = s.server.address;
    for half in [
        String::new(),
        "PUT /buck".to_owned(),
        format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\n"),
        format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nhalf"),
        format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha"),
    ] {
        let mut stream = connect(&s).await;
        stream.write_all(half.as_bytes()).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), answer(&mut stream)).await;
        let answer = ended.unwrap_or_else(|_| panic!("still open after {half:?}"));
        assert!(!answer.starts_with("HTTP/1.1 2"), "{half:?}: {answer}");
    }
    assert_eq!(s.get("key").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_nothing_of_its_answer_loses_it() {
    let s = with_limits(short_idle_timeout(), false).await;
    // More than the system's buffers hold.
    let size = 64 * MIB;
    s.put("key", vec![0; size]).await;
    let path = presigned(&s, "GET").await;
    let mut stream = connect(&s).await;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", s.server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.len() < size, "{} bytes came", answer.len());
    // One that takes it bit by bit gets it.
    assert_eq!(s.get("key").await, Some(Bytes::from(vec![0; size])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_that_goes_on_is_served() {
    let s = with_limits(short_idle_timeout(), false).await;
    let path = presigned(&s, "PUT").await;
    let mut stream = connect(&s).await;
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 20\r\n\r\n",
        s.server.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..20 {
        // Slow as a whole, quick enough piece by piece.
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(b"x").await.unwrap();
    }
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(s.get("key").await.unwrap(), "x".repeat(20));
}

/// A server of either kind that may hold so many MiB in memory.
async fn with_memory(mib: u64, on_disk: bool) -> TestServer {
    with_limits(Limits { max_memory_bytes: mib << 20, ..Limits::default() }, on_disk).await
}

const FULL: (u16, &str) = (400, "InsufficientStorage");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_memory_have_a_most_together() {
    let s = with_memory(10, false).await;
    let put = |key: &'static str, size: usize| {
        s.sdk.put_object().bucket(BUCKET).key(key).body(vec![0; size].into()).send()
    };
    put("first", 4 * MIB).await.unwrap();
    put("second", 4 * MIB).await.unwrap();
    assert_eq!(refusal(&put("third", 2 * MIB).await.unwrap_err()), FULL);
    assert_eq!(refusal(&put("third", 100 * MIB).await.unwrap_err()), FULL);
    let copy = s.sdk.copy_object().bucket(BUCKET).key("third").copy_source("bucket/first").send();
    assert_eq!(refusal(&copy.await.unwrap_err()), FULL);
    assert_eq!(s.get("third").await, None);
    assert_eq!(s.get("first").await.unwrap().len(), 4 * MIB, "what was there is still there");
    // Room is found again where something is overwritten or deleted.
    put("second", MIB).await.unwrap();
    put("third", 4 * MIB).await.unwrap();
    s.sdk.delete_object().bucket(BUCKET).key("first").send().await.unwrap();
    put("fourth", 4 * MIB).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_files_take_no_memory_but_for_their_place_in_the_list() {
    let s = with_memory(1, true).await;
    for n in 0..4 {
        s.put(&format!("{n}"), vec![0; MIB / 2]).await;
    }
    // Not even empty ones come without end.
    let mut refused = None;
    for n in 0..1024 {
        let put = s.sdk.put_object().bucket(BUCKET).key(format!("empty/{n}")).send().await;
        if let Err(error) = put {
            refused = Some((n, error));
            break;
        }
    }
    let (n, error) = refused.expect("it takes everything");
    assert_eq!(refusal(&error), FULL);
    assert!(n > 500, "only {n} came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_uploads_have_a_most_together() {
    for on_disk in [false, true] {
        let s = with_memory(16, on_disk).await;
        let begin = || s.sdk.create_multipart_upload().bucket(BUCKET).key("key").send();
        let part = async |id: &str, number: i32, size: usize| {
            let part = s.sdk.upload_part().bucket(BUCKET).key("key").upload_id(id).part_number(number);
            part.body(vec![0; size].into()).send().await
        };
        let first = begin().await.unwrap().upload_id.unwrap();
        let second = begin().await.unwrap().upload_id.unwrap();
        part(&first, 1, 5 * MIB).await.unwrap();
        let uploaded = part(&second, 1, 8 * MIB).await.unwrap();
        assert_eq!(refusal(&part(&first, 2, 5 * MIB).await.unwrap_err()), FULL);
        // An upload that is given up makes room.
        let abort = s.sdk.abort_multipart_upload().bucket(BUCKET).key("key").upload_id(&first);
        abort.send().await.unwrap();
        // The parts become the object, whose bytes are then in memory or not.
        let done = CompletedPart::builder().part_number(1).e_tag(uploaded.e_tag().unwrap()).build();
        let done = CompletedMultipartUpload::builder().parts(done).build();
        let complete = s.sdk.complete_multipart_upload().bucket(BUCKET).key("key").upload_id(&second);
        complete.multipart_upload(done).send().await.unwrap();
        let put = s.sdk.put_object().bucket(BUCKET).key("more").body(vec![0; 10 * MIB].into()).send().await;
        assert_eq!(put.is_ok(), on_disk, "{put:?}");
        // Uploads without a part take some of it too.
        let mut begun = 0;
        let error = loop {
            match begin().await {
                Ok(_) => begun += 1,
                Err(error) => break error,
            }
            assert!(begun < 20_000, "it takes everything");
        };
        assert_eq!(refusal(&error), FULL);
    }
}

/// Bodies that are promised, and begun, are as good as there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_on_their_way_count() {
    let s = with_memory(10, false).await;
    let path = presigned(&s, "PUT").await;
    let mut stream = connect(&s).await;
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 8000000\r\n\r\nhalf", s.server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let put = || s.sdk.put_object().bucket(BUCKET).key("other").body(vec![0; 4 * MIB].into()).send();
    let refused = loop {
        // Until the other request has been read.
        if let Err(error) = put().await {
            break error;
        }
    };
    assert_eq!(refusal(&refused), FULL);
    drop(stream);
    while put().await.is_err() {}
}
