//! How long a store that doesn't answer is asked.
//!
//! One request is tried for `--retry-timeout-seconds`, as `storage` does by itself. Here it is asked again as
//! long as the store answers *nothing*: until it does, or until it hasn't for `--stall-timeout-seconds`, which
//! ends the role. Where it answers other requests and fails this one, the time of a single request is all there
//! is. What won't heal (a refusal, a missing bucket) ends at once.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use super::back_off::BackOff;
use super::error::{QueueError, has_done};
use crate::storage::{Failure, LONGEST_BACK_OFF, Pulse, Store, TOLD_AFTER};

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) struct Trouble {
    /// As it is reported where it isn't asked again.
    pub error: QueueError,
    /// Whether to ask again.
    pub may_heal: bool,
}

impl From<QueueError> for Trouble {
    /// Asking again won't help.
    fn from(error: QueueError) -> Self {
        Self { error, may_heal: false }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Asks until the store answers; `what` is asked, in words.
///
/// # Errors
/// What `ask` reports and won't heal, or went on for too long while the store answered others;
/// [`QueueError::Stalled`] when it answered nothing for the stall timeout.
pub(super) async fn until_answered<T, F>(
    store: &Store,
    what: impl Fn() -> String,
    mut ask: impl FnMut() -> F,
) -> Result<T, QueueError>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let asking = store.pulse().ask();
    let tried = store.answered_time();
    let mut stalled = pin!(stalled(store, &what));
    let mut back_off = BackOff::from(FIRST_PAUSE);
    loop {
        let trouble = tokio::select! {
            biased;
            answer = ask() => match answer {
                Ok(answer) => {
                    asking.answered();
                    return Ok(answer);
                }
                Err(trouble) => trouble,
            },
            error = &mut stalled => return Err(error),
        };
        if !trouble.may_heal || tried.elapsed() > store.config().retry_timeout {
            return Err(trouble.error);
        }
        tokio::select! {
            () = back_off.pause(LONGEST_BACK_OFF) => {}
            error = &mut stalled => return Err(error),
        }
    }
}

/// Waits until the store has not answered for the stall timeout. Tells of it before.
async fn stalled(store: &Store, what: &impl Fn() -> String) -> QueueError {
    let (pulse, timeout) = (store.pulse(), store.config().stall_timeout);
    let mut next = TOLD_AFTER.min(timeout);
    loop {
        tokio::time::sleep(next).await;
        let silence = pulse.silence();
        if silence >= timeout {
            let (refused, detail) = asked(pulse, what);
            return QueueError::Stalled {
                place: store.config().describe(),
                refused,
                seconds: silence.as_secs_f64(),
                detail,
            };
        }
        next = if silence < TOLD_AFTER { TOLD_AFTER.min(timeout) } else { timeout } - silence;
        if silence >= TOLD_AFTER && pulse.is_untold() {
            let (refused, detail) = asked(pulse, what);
            tracing::warn!(
                "the store {} for {:.0} s: {detail}; it is asked for another {:.0} s (--stall-timeout-seconds)",
                has_done(refused),
                silence.as_secs_f64(),
                next.as_secs_f64()
            );
        }
    }
}

/// The status of the last attempt, if it was answered with one, and what was asked and how it failed.
fn asked(pulse: &Pulse, what: &impl Fn() -> String) -> (Option<u16>, String) {
    match pulse.failure() {
        Some(Failure::Refused(status)) => (Some(status), what()),
        Some(Failure::NoAnswer(failure)) => (None, format!("{} ({failure})", what())),
        None => (None, what()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use object_store::path::Path;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use super::*;
    use crate::Lake;
    use crate::storage::Config;
    use crate::{create, open};

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
                        let head =
                            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
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
    async fn what_may_heal_is_asked_until_the_stall_timeout() {
        let answers =
            [|_: &str| "", |_: &str| "503 Slow Down", |_: &str| "500 Oops", |_: &str| "429 Too Many"];
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
    async fn what_will_not_heal_ends_at_once() {
        for answer in [|_: &str| "403 Forbidden", |_: &str| "400 Bad Request", |_: &str| "301 Elsewhere"] {
            let lake = lake(answer).await;
            let body = Bytes::from_static(b"body");
            let refused = lake.write_entry(1, body.clone(), Uuid::nil()).await.unwrap();
            assert!(matches!(refused, (super::super::lake::Written::Refused(_), 1)), "{refused:?}");
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
}
