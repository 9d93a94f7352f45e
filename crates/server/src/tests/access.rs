//! Who gets in, and what an answer says about the server.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BUCKET, Credentials, TestServer, on_both_stores, refusal, sdk};

on_both_stores!(wrong_keys_are_refused, anonymous_requests_are_refused);

async fn wrong_keys_are_refused(s: &TestServer) {
    s.put("key", "value").await;
    let right = s.server.credentials().clone();
    let wrong_secret = Credentials { secret_key: "wrong".to_owned(), ..right.clone() };
    let unknown_key = Credentials { access_key: "unknown".to_owned(), ..right };
    let cases = [(wrong_secret, (403, "SignatureDoesNotMatch")), (unknown_key, (403, "InvalidAccessKeyId"))];
    for (credentials, expected) in cases {
        let client = sdk(&s.server, &credentials);
        assert_eq!(
            refusal(&client.get_object().bucket(BUCKET).key("key").send().await.unwrap_err()),
            expected
        );
        assert_eq!(
            refusal(&client.put_object().bucket(BUCKET).key("key").send().await.unwrap_err()),
            expected
        );
        assert_eq!(refusal(&client.list_buckets().send().await.unwrap_err()), expected);
    }
    assert_eq!(s.get("key").await.unwrap(), "value");
}

async fn anonymous_requests_are_refused(s: &TestServer) {
    s.put("key", "value").await;
    for request in ["GET /bucket/key", "GET /bucket?list-type=2", "PUT /bucket/other", "DELETE /bucket/key"] {
        let answer = raw(s, request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("<Code>AccessDenied</Code>"), "{answer}");
        let name = format!("server: s3mq/{}\r\n", env!("CARGO_PKG_VERSION"));
        assert!(answer.contains(&name), "{answer}");
    }
    assert_eq!(s.get("key").await.unwrap(), "value");
    assert_eq!(s.get("other").await, None);
}

pub(super) async fn raw(s: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(s.server.address).await.unwrap();
    let request =
        format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn debug_output_hides_the_secret() {
    let drawn = Credentials::random();
    assert_eq!((drawn.access_key.len(), drawn.secret_key.len()), (16, 40));
    let shown = format!("{drawn:?}");
    assert!(shown.contains(&drawn.access_key) && !shown.contains(&drawn.secret_key), "{shown}");
    assert_ne!(drawn.secret_key, Credentials::random().secret_key);
}
