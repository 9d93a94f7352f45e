use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use uuid::Uuid;

use super::*;
use crate::storage::Store;
use crate::{Lake, QueueError, create, open};

/// A table on a store that gives this answer to a request line, and then closes the connection.
async fn lake(answer: fn(&str) -> &'static str) -> Lake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = connection.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]);
                let status = answer(request.lines().next().unwrap_or_default());
                if !status.is_empty() {
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    let _ = connection.write_all(head.as_bytes()).await;
                }
            });
        }
    });
    let config = Config {
        retry_timeout: Duration::from_millis(100),
        stall_timeout: Duration::from_millis(500),
        ..Config::of_server(&endpoint, "s3mq", "key", "secret").unwrap()
    };
    Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap()
}

/// Every kind of request that the queue makes; its error.
async fn errors(lake: &Lake) -> Vec<(&'static str, QueueError)> {
    let (key, body) = (Path::from("queue/part"), Bytes::from_static(b"body"));
    vec![
        ("GET of an entry", lake.read_entry(1).await.map(drop).unwrap_err()),
        ("PUT of an entry", lake.write_entry(1, body.clone(), Uuid::nil()).await.map(drop).unwrap_err()),
        ("LIST", lake.list_versions(None, 1).await.map(drop).unwrap_err()),
        ("GET of a file", lake.read_file(&key).await.map(drop).unwrap_err()),
        ("PUT of a file", lake.write_file("part", body).await.unwrap_err()),
        ("creating", create::create(lake).await.unwrap_err()),
        ("opening", open::open(lake).await.map(drop).unwrap_err()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_retryable_is_asked_until_the_stall_timeout() {
    let answers = [|_: &str| "", |_: &str| "503 Slow Down", |_: &str| "500 Oops", |_: &str| "429 Too Many"];
    for answer in answers {
        let said = match answer("").split(' ').next() {
            None | Some("") => "the store has not answered for".to_owned(),
            Some(status) => format!("the store has answered nothing but status {status} for"),
        };
        for (what, error) in errors(&lake(answer).await).await {
            assert!(matches!(error, QueueError::Stalled { seconds: 0.5.., .. }), "{what}: {error}");
            assert!(error.to_string().starts_with(&said), "{what}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_retryable_ends_at_once() {
    for answer in [|_: &str| "403 Forbidden", |_: &str| "400 Bad Request", |_: &str| "301 Elsewhere"] {
        let lake = lake(answer).await;
        let body = Bytes::from_static(b"body");
        let refused = lake.write_entry(1, body.clone(), Uuid::nil()).await.unwrap();
        assert!(matches!(refused, (crate::lake::Written::Refused(_), 1)), "{refused:?}");
        for error in [
            lake.read_entry(1).await.map(drop).unwrap_err(),
            lake.list_versions(None, 1).await.map(drop).unwrap_err(),
            lake.read_file(&Path::from("queue/part")).await.map(drop).unwrap_err(),
            lake.write_file("part", body).await.unwrap_err(),
            create::create(&lake).await.unwrap_err(),
            open::open(&lake).await.map(drop).unwrap_err(),
        ] {
            assert!(!matches!(error, QueueError::Stalled { .. }), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_that_fails_while_others_are_answered_ends_with_its_own_timeout() {
    let lake = lake(|line| if line.contains("part") { "500 Oops" } else { "404 Not Found" }).await;
    let others = tokio::spawn({
        let lake = lake.clone();
        async move {
            loop {
                lake.read_entry(1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let error = lake.read_file(&Path::from("queue/part")).await.unwrap_err();
    others.abort();
    assert!(matches!(error, QueueError::Request { .. }), "{error}");
}

/// A store that gives each request the next of these answers, and then the last one for ever; how many it gave.
async fn answering(answers: Vec<(&'static str, &'static str)>) -> (Store, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 8192];
            let _ = connection.read(&mut request).await;
            let (status, body) = answers[count.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1)];
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = connection.write_all((head + body).as_bytes()).await;
        }
    });
    let config = Config {
        retry_timeout: Duration::from_secs(20),
        stall_timeout: Duration::from_secs(20),
        ..Config::of_server(&endpoint, "s3mq", "key", "secret").unwrap()
    };
    (Store::connect(config).await.unwrap(), given)
}

const DENIED: &str =
    "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>";
const SLOW: &str =
    "<DeleteResult><Error><Key>a</Key><Code>SlowDown</Code><Message>later</Message></Error></DeleteResult>";
const DELETED: &str = "<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>";

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_not_be_deleted_is_not_asked_for_again_and_one_that_is_refused_for_now_is() {
    let delete = |store: Store| async move {
        let keys = stream::iter([Ok(Path::from("a"))]).boxed();
        store.objects().delete_stream(keys).try_collect::<Vec<_>>().await
    };
    let (store, given) = answering(vec![("200 OK", DENIED)]).await;
    let error = delete(store).await.unwrap_err();
    let failed = RequestFailed::among_causes(&error).unwrap();
    assert_eq!((failed.attempts, given.load(Ordering::Relaxed)), (1, 1), "{error}");
    assert_eq!(failed.outcome.code.as_deref(), Some("AccessDenied"));
    let (store, given) = answering(vec![("200 OK", SLOW), ("200 OK", SLOW), ("200 OK", DELETED)]).await;
    delete(store).await.unwrap();
    assert_eq!(given.load(Ordering::Relaxed), 3);
}

/// The error says what was asked, how often and for how long, and what it came to.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_failed_for_good_tells_its_attempts() {
    let (store, given) = answering(vec![
        ("503 Slow Down", ""),
        ("500 Oops", ""),
        ("403 No", "<Error><Code>AccessDenied</Code></Error>"),
    ])
    .await;
    let error = object_store::ObjectStoreExt::get(store.objects(), &Path::from("a")).await.unwrap_err();
    let failed = RequestFailed::among_causes(&error).unwrap();
    assert!(matches!(error, StoreError::PermissionDenied { .. }), "{error}");
    assert_eq!((failed.attempts, given.load(Ordering::Relaxed), failed.is_retryable), (3, 3, false));
    assert_eq!((failed.outcome.status, failed.outcome.code.as_deref()), (Some(403), Some("AccessDenied")));
    assert!(error.to_string().contains("GET a, 3 attempts"), "{error}");
}
