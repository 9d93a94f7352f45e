//! Counts every attempt that goes onto the wire, beneath both clients' retries.
//!
//! `object_store` sends through [`CountingConnector`], the AWS SDK reports through
//! [`CountingInterceptor`]; both sort an attempt by what it is for ([`Purpose`]), from nothing but its
//! method, path, query and status. Bodies are counted by their declared length: a transfer that breaks
//! off halfway counts as whole. Headers and TLS are not counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use aws_sdk_s3::config::interceptors::FinalizerInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use http::header::{CONTENT_LENGTH, DATE, SERVER};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::availability::{Availability, Failure};
use super::error::{element, one_line};
use super::retry::{self, Outcome};
use super::store_clock::{OffsetBounds, StoreClock};

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// PUT of anything outside `_delta_log`: a data file, or a probe.
    DataPut,
    /// PUT of a log entry.
    CommitPut,
    /// GET of a log entry that was there.
    CommitGetHit,
    /// GET of a log entry that was not (yet) there.
    CommitGetMiss,
    /// GET of anything outside `_delta_log`.
    DataGet,
    /// A listing.
    List,
    /// Reading or writing checkpoints and `_last_checkpoint`.
    Checkpoint,
    /// DELETE, or POST of many deletions.
    Delete,
    /// Everything else: HEAD, bucket operations, multipart uploads.
    Other,
}

impl Purpose {
    /// All purposes, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::DataPut,
        Self::CommitPut,
        Self::CommitGetHit,
        Self::CommitGetMiss,
        Self::DataGet,
        Self::List,
        Self::Checkpoint,
        Self::Delete,
        Self::Other,
    ];

    fn of(method: &str, path: &str, query: Option<&str>, status: Option<u16>) -> Self {
        let query = query.unwrap_or_default();
        let in_log = path.contains("/_delta_log/");
        let is_entry = in_log && path.ends_with(".json") && !path.ends_with(".compacted.json");
        match method {
            "GET" if query.contains("list-type=2") => Self::List,
            "GET" if is_entry && status == Some(404) => Self::CommitGetMiss,
            "GET" if is_entry => Self::CommitGetHit,
            "PUT" if is_entry => Self::CommitPut,
            "GET" | "PUT" if in_log => Self::Checkpoint,
            "GET" => Self::DataGet,
            "PUT" if query.is_empty() || query.starts_with("x-id=") => Self::DataPut,
            "DELETE" => Self::Delete,
            "POST" if query.starts_with("delete") => Self::Delete,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
struct Counter {
    attempts: AtomicU64,
    failed: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

/// The counters of one [`super::Store`], shared by its clients.
#[derive(Debug, Default)]
pub struct RequestCounts {
    by_purpose: [Counter; Purpose::ALL.len()],
    /// What the store calls itself in its answers.
    server: OnceLock<String>,
    /// What their dates say of its clock.
    clock: Mutex<OffsetBounds>,
    /// When they came.
    availability: Availability,
}

impl RequestCounts {
    /// `status` is `None` where no answer came.
    fn record(
        &self,
        method: &str,
        path: &str,
        query: Option<&str>,
        status: Option<u16>,
        sent: u64,
        received: u64,
    ) {
        let purpose = Purpose::of(method, path, query, status);
        let counter = &self.by_purpose[purpose as usize];
        match status {
            // No answer: whoever sent it knows why.
            None => {}
            Some(status @ (408 | 429 | 500..)) => self.availability.failed(Failure::Refused(status)),
            Some(_) => self.availability.answered(),
        }
        counter.attempts.fetch_add(1, Relaxed);
        // An absent object and a condition that does not hold are answers, not failures.
        if !matches!(status, Some(200..=399 | 404 | 412)) {
            counter.failed.fetch_add(1, Relaxed);
        }
        counter.bytes_sent.fetch_add(sent, Relaxed);
        counter.bytes_received.fetch_add(received, Relaxed);
    }

    /// When the store last answered, and for how long it did not.
    pub fn availability(&self) -> &Availability {
        &self.availability
    }

    /// The store's clock against ours, as far as the answers tell.
    pub fn store_clock(&self) -> Option<StoreClock> {
        self.clock.lock().estimate()
    }

    /// Takes in what an answer's headers tell of the store.
    fn look_at(&self, headers: &http::HeaderMap, asked_us: i64) {
        let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        if self.server.get().is_none()
            && let Some(server) = text(SERVER)
        {
            let _ = self.server.set(server.to_owned());
        }
        if let Some(date) = text(DATE) {
            self.clock.lock().observe(date, asked_us, s3mq_clock::wall_us());
        }
    }

    /// The `Server` header of the first answer that had one.
    pub fn server(&self) -> Option<&str> {
        self.server.get().map(String::as_str)
    }

    /// The counts as they stand.
    pub fn snapshot(&self) -> Requests {
        Requests {
            rows: Purpose::ALL
                .iter()
                .zip(&self.by_purpose)
                .map(|(&purpose, counter)| RequestRow {
                    purpose,
                    attempts: counter.attempts.load(Relaxed),
                    failed: counter.failed.load(Relaxed),
                    bytes_sent: counter.bytes_sent.load(Relaxed),
                    bytes_received: counter.bytes_received.load(Relaxed),
                })
                .filter(|row| row.attempts > 0)
                .collect(),
        }
    }
}

/// How many attempts of each purpose were sent; purposes without any are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Requests {
    /// One row a purpose.
    pub rows: Vec<RequestRow>,
}

/// The attempts of one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// What they were for.
    pub purpose: Purpose,
    /// How many were sent, retries included.
    pub attempts: u64,
    /// How many of them got no answer, or one that is neither a success, nor 404, nor 412.
    pub failed: u64,
    /// Body bytes sent.
    pub bytes_sent: u64,
    /// Body bytes received.
    pub bytes_received: u64,
}

impl Requests {
    /// Attempts sent for one purpose.
    pub fn attempts(&self, purpose: Purpose) -> u64 {
        self.rows.iter().filter(|row| row.purpose == purpose).map(|row| row.attempts).sum()
    }

    /// What has been sent since `earlier`, an older reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |purpose| earlier.rows.iter().find(|row| row.purpose == purpose);
        let rows = self.rows.iter().map(|row| match before(row.purpose) {
            Some(old) => RequestRow {
                purpose: row.purpose,
                attempts: row.attempts - old.attempts,
                failed: row.failed - old.failed,
                bytes_sent: row.bytes_sent - old.bytes_sent,
                bytes_received: row.bytes_received - old.bytes_received,
            },
            None => *row,
        });
        Self { rows: rows.filter(|row| row.attempts > 0).collect() }
    }

    /// Adds what was counted elsewhere to these.
    pub fn add(&mut self, other: &Self) {
        for row in &other.rows {
            match self.rows.iter_mut().find(|mine| mine.purpose == row.purpose) {
                Some(mine) => {
                    mine.attempts += row.attempts;
                    mine.failed += row.failed;
                    mine.bytes_sent += row.bytes_sent;
                    mine.bytes_received += row.bytes_received;
                }
                None => self.rows.push(*row),
            }
        }
    }

    /// Attempts of all purposes.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.attempts).sum()
    }

    /// Attempts that failed, of all purposes.
    pub fn failed(&self) -> u64 {
        self.rows.iter().map(|row| row.failed).sum()
    }
}

/// Builds `object_store`'s usual HTTP client with a counter in front.
#[derive(Debug)]
pub(super) struct CountingConnector {
    counts: Arc<RequestCounts>,
}

impl CountingConnector {
    pub(super) fn new(counts: Arc<RequestCounts>) -> Self {
        Self { counts }
    }
}

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingService { inner, counts: self.counts.clone() }))
    }
}

#[derive(Debug)]
struct CountingService {
    inner: HttpClient,
    counts: Arc<RequestCounts>,
}

#[async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let sent = request.body().content_length() as u64;
        let asked_us = s3mq_clock::wall_us();
        let response = self.inner.execute(request).await;
        let (status, received) = match &response {
            Ok(response) => {
                self.counts.look_at(response.headers(), asked_us);
                (Some(response.status().as_u16()), content_length(response.headers()))
            }
            Err(error) => {
                self.counts.availability.failed(Failure::NoAnswer(one_line(error)));
                (None, 0)
            }
        };
        self.counts.record(method.as_str(), uri.path(), uri.query(), status, sent, received);
        retry::note(Outcome { status, ..Outcome::default() });
        // Answered 200, whatever became of each key.
        let is_deletion =
            method == http::Method::POST && uri.query().is_some_and(|query| query.starts_with("delete"));
        match response {
            Ok(response) if is_deletion || response.status().as_u16() >= 400 => with_code(response).await,
            response => response,
        }
    }
}

/// Notes the status and S3's code of an answer, whose body is read for it and put back.
async fn with_code(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let status = Some(response.status().as_u16());
    let (parts, body) = response.into_parts();
    let body = match body.bytes().await {
        Ok(body) => body,
        Err(error) => {
            // Nothing is known of an answer that broke off.
            retry::note(Outcome::default());
            return Err(error);
        }
    };
    let code = element(&String::from_utf8_lossy(&body), "Code").map(str::to_owned);
    retry::note(Outcome { status, code, is_cut_off: false });
    Ok(HttpResponse::from_parts(parts, body.into()))
}

fn content_length(headers: &http::HeaderMap) -> u64 {
    headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

/// Counts the attempts of the AWS SDK's client.
#[derive(Debug)]
pub(super) struct CountingInterceptor {
    counts: Arc<RequestCounts>,
}

impl CountingInterceptor {
    pub(super) fn new(counts: Arc<RequestCounts>) -> Self {
        Self { counts }
    }
}

#[aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint]
impl Intercept for CountingInterceptor {
    fn name(&self) -> &'static str {
        "CountingInterceptor"
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(request) = context.request()
            && let Ok(uri) = request.uri().parse::<http::Uri>()
        {
            let sent = request.body().content_length().unwrap_or(0);
            let (status, received) = match context.response() {
                Some(response) => (
                    Some(response.status().as_u16()),
                    response
                        .headers()
                        .get("content-length")
                        .and_then(|value| value.parse().ok())
                        .unwrap_or(0),
                ),
                None => (None, 0),
            };
            self.counts.record(request.method(), uri.path(), uri.query(), status, sent, received);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_sorted_by_what_they_are_for() {
        let entry = "/bucket/q/_delta_log/00000000000000000007.json";
        for (method, path, query, status, purpose) in [
            ("PUT", "/bucket/q/part-1.parquet", None, Some(200), Purpose::DataPut),
            ("PUT", entry, None, Some(412), Purpose::CommitPut),
            ("GET", entry, None, Some(200), Purpose::CommitGetHit),
            ("GET", entry, None, Some(404), Purpose::CommitGetMiss),
            ("GET", "/bucket/q/part-1.parquet", None, Some(200), Purpose::DataGet),
            ("GET", "/bucket", Some("list-type=2&prefix=q"), Some(200), Purpose::List),
            ("GET", "/bucket/q/_delta_log/_last_checkpoint", None, Some(404), Purpose::Checkpoint),
            (
                "PUT",
                "/bucket/q/_delta_log/00000000000000000007.checkpoint.parquet",
                None,
                Some(200),
                Purpose::Checkpoint,
            ),
            ("POST", "/bucket", Some("delete"), Some(200), Purpose::Delete),
            ("HEAD", "/bucket", None, Some(200), Purpose::Other),
            ("PUT", "/bucket/q/part", Some("partNumber=1&uploadId=x"), Some(200), Purpose::Other),
        ] {
            assert_eq!(Purpose::of(method, path, query, status), purpose, "{method} {path}");
        }
    }

    #[test]
    fn refusals_are_answers_and_silence_is_a_failure() {
        let counts = RequestCounts::default();
        for status in [Some(200), Some(412), Some(404), Some(503), None] {
            counts.record("PUT", "/b/q/_delta_log/1.json", None, status, 10, 0);
        }
        let requests = counts.snapshot();
        assert_eq!((requests.total(), requests.failed()), (5, 2));
        assert_eq!(requests.attempts(Purpose::CommitPut), 5);
        assert_eq!(requests.rows[0].bytes_sent, 50);
    }
}
