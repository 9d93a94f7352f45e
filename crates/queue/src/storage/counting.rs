//! Counts every attempt on the wire, beneath both clients' retries.
//!
//! `object_store` sends through [`CountingConnector`], the AWS SDK reports through [`CountingInterceptor`]. Bodies are
//! counted by their declared length: a transfer that breaks off halfway counts as whole. Headers and TLS are not counted.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use aws_sdk_s3::config::interceptors::FinalizerInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use http::header::{CONTENT_LENGTH, DATE, HeaderName, SERVER};
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::availability::{Availability, Failure};
use super::error::{is_out_of_files, one_line};
use super::purpose::Purpose;
use super::retry::{self, Outcome};
use super::store_clock::OffsetBounds;

/// What is known of one [`super::Store`] from what its clients sent and received.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) requests: Mutex<Requests>,
    /// The `Server` header of the first answer that had one.
    pub(super) server: OnceLock<String>,
    pub(super) clock: Mutex<OffsetBounds>,
    pub(super) availability: Availability,
    /// Whether a listing came in another order than that of the keys.
    pub(super) is_unsorted: AtomicBool,
}

impl RequestCounts {
    /// Counts an attempt. `status` is `None` where no answer came.
    fn record(&self, method: &str, uri: &http::Uri, status: Option<u16>, sent: u64, received: u64) {
        match status {
            None => {}
            Some(status) if retry::is_not_now(status) => self.availability.failed(Failure::Refused(status)),
            Some(_) => self.availability.answered(),
        }
        // An absent object and a condition that does not hold are answers, not failures.
        let failed = u64::from(!matches!(status, Some(200..=399 | 404 | 412)));
        let purpose = Purpose::of(method, uri.path(), uri.query(), status);
        let row = RequestRow { purpose, attempts: 1, failed, bytes_sent: sent, bytes_received: received };
        self.requests.lock().add_row(row);
    }

    /// Takes in what an answer's headers say of the store.
    fn look_at(&self, headers: &http::HeaderMap, asked_us: i64) {
        if self.server.get().is_none()
            && let Some(server) = text(headers, SERVER)
        {
            let _ = self.server.set(server.to_owned());
        }
        if let Some(date) = text(headers, DATE) {
            self.clock.lock().observe(date, asked_us, s3mq_clock::wall_us());
        }
    }
}

fn text(headers: &http::HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
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

impl RequestRow {
    fn change(&mut self, other: &Self, by: fn(u64, u64) -> u64) {
        self.attempts = by(self.attempts, other.attempts);
        self.failed = by(self.failed, other.failed);
        self.bytes_sent = by(self.bytes_sent, other.bytes_sent);
        self.bytes_received = by(self.bytes_received, other.bytes_received);
    }
}

impl Requests {
    /// Attempts sent for one purpose.
    pub fn attempts(&self, purpose: Purpose) -> u64 {
        self.rows.iter().filter(|row| row.purpose == purpose).map(|row| row.attempts).sum()
    }

    /// What has been sent since `earlier`, an older reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for row in &mut since.rows {
            if let Some(old) = earlier.rows.iter().find(|old| old.purpose == row.purpose) {
                row.change(old, u64::wrapping_sub);
            }
        }
        since.rows.retain(|row| row.attempts > 0);
        since
    }

    /// Adds what was counted elsewhere to these.
    pub fn add(&mut self, other: &Self) {
        other.rows.iter().for_each(|row| self.add_row(*row));
    }

    fn add_row(&mut self, row: RequestRow) {
        match self.rows.iter_mut().find(|mine| mine.purpose == row.purpose) {
            Some(mine) => mine.change(&row, u64::wrapping_add),
            None => {
                let place = self.rows.partition_point(|mine| mine.purpose < row.purpose);
                self.rows.insert(place, row);
            }
        }
    }

    /// Attempts of all purposes.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| row.attempts).sum()
    }
}

/// Puts a counter before `object_store`'s HTTP client.
#[derive(Debug)]
pub(super) struct CountingConnector {
    pub(super) client: HttpClient,
    pub(super) counts: Arc<RequestCounts>,
}

impl HttpConnector for CountingConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let (inner, counts) = (self.client.clone(), self.counts.clone());
        Ok(HttpClient::new(CountingService { inner, counts }))
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
        if let Err(error) = &response
            && is_out_of_files(error)
        {
            // Nothing was sent, and the store is none the worse for it.
            retry::note(Outcome { is_out_of_files: true, ..Outcome::default() });
            return response;
        }
        let (status, received) = match &response {
            Ok(response) => {
                self.counts.look_at(response.headers(), asked_us);
                let length = text(response.headers(), CONTENT_LENGTH).and_then(|length| length.parse().ok());
                (Some(response.status().as_u16()), length.unwrap_or(0))
            }
            Err(error) => {
                self.counts.availability.failed(Failure::NoAnswer(one_line(error)));
                (None, 0)
            }
        };
        self.counts.record(method.as_str(), &uri, status, sent, received);
        retry::note(Outcome { status, ..Outcome::default() });
        let is_listing = Purpose::of(method.as_str(), uri.path(), uri.query(), status) == Purpose::List;
        match response {
            // A deletion of many keys is answered 200, whatever became of each.
            Ok(response)
                if is_listing || method == http::Method::POST || response.status().as_u16() >= 300 =>
            {
                look_into(response, is_listing).await
            }
            response => response,
        }
    }
}

/// Notes what an answer says, whose body is read for it and put back. S3 may begin to answer a listing with 200 and then
/// fail, which `object_store` would read as an empty one.
async fn look_into(response: HttpResponse, is_listing: bool) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = response.into_parts();
    // Nothing is known of an answer that broke off.
    let body = body.bytes().await.inspect_err(|_| retry::note(Outcome::default()))?;
    let header = |name: &str| parts.headers.get(name)?.to_str().ok();
    let mut outcome = Outcome::of(parts.status.as_u16(), header, &body);
    if is_listing && parts.status.is_success() && outcome.code.is_some() {
        parts.status = match outcome.is_temporary() {
            true => http::StatusCode::INTERNAL_SERVER_ERROR,
            false => http::StatusCode::BAD_REQUEST,
        };
        outcome.status = Some(parts.status.as_u16());
    }
    retry::note(outcome);
    Ok(HttpResponse::from_parts(parts, body.into()))
}

#[derive(Debug)]
pub(super) struct CountingInterceptor(pub(super) Arc<RequestCounts>);

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
            let response = context.response();
            let status = response.map(|response| response.status().as_u16());
            let received = response
                .and_then(|response| response.headers().get("content-length")?.parse().ok())
                .unwrap_or(0);
            self.0.record(request.method(), &uri, status, sent, received);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_answers_and_none_at_all_is_a_failure() {
        let counts = RequestCounts::default();
        for status in [Some(200), Some(412), Some(404), Some(503), None] {
            counts.record("PUT", &http::Uri::from_static("/b/q/_delta_log/1.json"), status, 10, 0);
        }
        let requests = counts.requests.lock().clone();
        assert_eq!((requests.total(), requests.rows[0].failed), (5, 2));
        assert_eq!(requests.attempts(Purpose::CommitPut), 5);
        assert_eq!(requests.rows[0].bytes_sent, 50);
    }
}
