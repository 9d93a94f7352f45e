//! The one place that decides whether a request is retried, after which pause and until when.
//!
//! Every request of `object_store`'s client goes through [`RetryingStore`], those of delta-rs and its kernel too; the
//! client's own retries are off. What an attempt came to is noted where the answer is seen (`counting`).

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, future, stream};
use object_store::aws::AmazonS3;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use s3mq_clock::{monotonic_ns, wall_us};
use tokio::sync::Semaphore;

use super::availability::{Availability, AvailableTime, WARN_AFTER};
use super::config::Config;
use super::counting::RequestCounts;
use super::error::{compact, element, one_line};

/// The longest of the pauses before the first retry.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);
/// The longest pause between two attempts: a store that answers again is soon noticed.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Keys of one DeleteObjects request.
const MAX_KEYS_PER_DELETE: usize = 1_000;

/// Codes for one of many keys that mean "not now"; others, such as `AccessDenied`, stay as they are.
const RETRYABLE_CODES: [&str; 4] = ["InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout"];

tokio::task_local! {
    /// What the attempt that is running came to.
    static OUTCOME: RefCell<Outcome>;
    /// How many attempts were made within [`counting_attempts`].
    static ATTEMPTS: Cell<u32>;
}

/// What an attempt on the wire came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The status of the answer; `None` where none came.
    pub status: Option<u16>,
    /// S3's code and sentence, where the answer was an error that has them.
    pub code: Option<String>,
    pub message: Option<String>,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// How many seconds the store's clock, as its `Date` has it, is ahead of this host's.
    pub clock_offset_seconds: Option<i64>,
    /// Whether the body of the answer broke off.
    pub is_cut_off: bool,
    /// Whether nothing was sent, because this process or the system can't open another file.
    pub is_out_of_files: bool,
}

impl Outcome {
    /// Whether its code means that the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        self.code.as_deref().is_some_and(|code| RETRYABLE_CODES.contains(&code))
    }

    /// What an answer says.
    pub(super) fn of<'a>(status: u16, header: impl Fn(&str) -> Option<&'a str>, body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        let text = |name| element(&body, name).map(compact);
        let date = header("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let date_seconds =
            date.and_then(|date| date.duration_since(UNIX_EPOCH).ok()).map(|date| date.as_secs() as i64);
        Self {
            status: Some(status),
            code: text("Code"),
            message: text("Message"),
            location: header("location").map(str::to_owned),
            clock_offset_seconds: date_seconds.map(|date| date - wall_us().div_euclid(1_000_000)),
            is_cut_off: false,
            is_out_of_files: false,
        }
    }
}

/// Notes the outcome of the attempt that is running, where one is.
pub(super) fn note(outcome: Outcome) {
    let _ = OUTCOME.try_with(|noted| *noted.borrow_mut() = outcome);
}

/// Makes an attempt, and says what it came to on the wire.
async fn noting<T>(attempt: impl Future<Output = T>) -> (T, Outcome) {
    let noted = async {
        let result = attempt.await;
        (result, OUTCOME.with(RefCell::take))
    };
    OUTCOME.scope(RefCell::default(), noted).await
}

/// Runs requests, and says how many attempts they took.
pub(crate) async fn counting_attempts<T>(requests: impl Future<Output = T>) -> (T, u32) {
    let counted = async {
        let done = requests.await;
        (done, ATTEMPTS.with(Cell::get))
    };
    ATTEMPTS.scope(Cell::new(0), counted).await
}

/// A request that failed for good; its text has the method and the key where it was sent several times.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct RequestFailed {
    text: String,
    pub attempts: u32,
    /// What the last attempt came to.
    pub outcome: Outcome,
    /// Where the store answered nothing: for how long, when it was given up.
    pub outage: Option<Duration>,
    /// Whether it was given up, where it might have succeeded later.
    pub is_retryable: bool,
}

impl RequestFailed {
    /// The failed request among the causes of an error.
    pub(crate) fn among_causes<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |cause| (*cause).source()).find_map(|cause| cause.downcast_ref())
    }
}

/// Pauses between attempts: each up to twice as long as the one before, and drawn from nothing to the whole (full
/// jitter), so that contenders that lost to the same commit don't meet again.
#[derive(Debug)]
pub(crate) struct Backoff(pub Duration);

impl Backoff {
    /// The next pause is at most `max`.
    pub(crate) async fn pause(&mut self, max: Duration) {
        tokio::time::sleep(self.0.mul_f64(rand::random::<f64>())).await;
        self.0 = (self.0 * 2).min(max);
    }
}

/// Sees the objects that are read.
pub(crate) trait ReadObserver: fmt::Debug + Send + Sync {
    /// An object was read whole.
    fn read(&self, location: &Path, body: &[u8]);
}

/// Few GETs at once, and somebody who sees what they read.
#[derive(Clone, Debug)]
pub(crate) struct ObservedReads {
    permits: Arc<Semaphore>,
    observer: Arc<dyn ReadObserver>,
}

impl ObservedReads {
    pub(crate) fn new(max_at_once: usize, observer: Arc<dyn ReadObserver>) -> Self {
        Self { permits: Arc::new(Semaphore::new(max_at_once)), observer }
    }
}

/// A store whose requests are retried.
///
/// A failure is retryable when the same request may succeed a little later: no answer came, it was "not now" (5xx, 429,
/// 408), or a body broke off. It is retried for the retry timeout, in time in which the store answers other requests, or
/// until an outage has lasted for the stall timeout. A PUT whose answer was lost is sent again, so a conditional one may
/// be told "exists" of its own object: whoever sends it reads what is there.
#[derive(Clone, Debug)]
pub(super) struct RetryingStore {
    pub(super) inner: Arc<dyn ObjectStore>,
    /// The same store, whose listings are asked for page by page.
    pub(super) pages: Arc<AmazonS3>,
    pub(super) requests: Arc<RequestCounts>,
    pub(super) config: Arc<Config>,
    pub(super) reads: Option<ObservedReads>,
    /// The name of an object that is said not to be there, wherever it is.
    pub(super) hidden: Option<&'static str>,
}

impl RetryingStore {
    async fn get(&self, location: Path, options: GetOptions) -> Result<GetResult> {
        if self.hidden.is_some_and(|hidden| location.filename() == Some(hidden)) {
            return Err(StoreError::NotFound { path: location.to_string(), source: "it is hidden".into() });
        }
        let (inner, is_head, is_whole) = (self.inner.clone(), options.head, options.range.is_none());
        let observer = self.reads.as_ref().map(|reads| reads.observer.clone());
        let get = async move {
            let result = inner.get_opts(&location, options).await?;
            if is_head {
                return Ok(result);
            }
            let (meta, range, attributes) =
                (result.meta.clone(), result.range.clone(), result.attributes.clone());
            let body = result.bytes().await.inspect_err(|_| {
                let _ = OUTCOME.try_with(|noted| noted.borrow_mut().is_cut_off = true);
            })?;
            if let Some(observer) = observer.filter(|_| is_whole) {
                observer.read(&location, &body);
            }
            let payload = GetResultPayload::Stream(stream::iter([Ok(body)]).boxed());
            Ok(GetResult { payload, meta, range, attributes })
        };
        let Some(ObservedReads { permits, .. }) = self.reads.clone() else {
            return get.await;
        };
        // A task of its own: the kernel begins to fetch one file and doesn't go on with it until it has read another, which
        // would wait for the permit of the first.
        let task = tokio::spawn(noting(async move {
            let _permit = permits.acquire_owned().await;
            get.await
        }));
        let (result, outcome) = task.await.map_err(|source| StoreError::JoinError { source })?;
        note(outcome);
        result
    }

    async fn retry<T, F>(&self, method: &str, key: &str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let request = || format!("{method} {key}");
        let (availability, started_ns) = (&self.requests.availability, monotonic_ns());
        let _waiting = availability.ask();
        let tried = AvailableTime::begin(availability, self.config.stall_timeout);
        let mut stall = pin!(stall(availability, self.config.stall_timeout, request));
        let mut backoff = Backoff(FIRST_BACKOFF);
        let failed = |attempts, outcome, outage, is_retryable, detail: String| {
            let seconds = (monotonic_ns() - started_ns) as f64 / 1e9;
            let text = match attempts {
                ..=1 => detail,
                _ => format!("{detail} ({}, {attempts} attempts in {seconds:.1} s)", request()),
            };
            RequestFailed { text, attempts, outcome, outage, is_retryable }
        };
        let (mut attempts, mut last) = (0, Outcome::default());
        loop {
            attempts += 1;
            let _ = ATTEMPTS.try_with(|counted| counted.set(counted.get() + 1));
            let attempt_and_pause = async {
                let (result, outcome) = noting(attempt()).await;
                let Err(error) = result else { return Some(result) };
                let is_retryable = is_retryable(method, &error, &outcome);
                last = outcome;
                if is_retryable && tried.elapsed() <= self.config.retry_timeout {
                    backoff.pause(MAX_BACKOFF).await;
                    return None;
                }
                Some(Err(wrapped(error, |error| {
                    let advice = if is_timeout(error) { self.timeout_advice() } else { String::new() };
                    let detail = one_line(error) + &advice;
                    failed(attempts, last.clone(), None, is_retryable, detail)
                })))
            };
            tokio::select! {
                biased;
                ended = attempt_and_pause => match ended {
                    None => {}
                    Some(Ok(done)) => {
                        availability.answered();
                        return Ok(done);
                    }
                    Some(Err(error)) => return Err(error),
                },
                outage = &mut stall => {
                    let (answer, said) = availability.failure();
                    let detail = format!("the store {answer} for {:.0} s{said}", outage.as_secs_f64());
                    let source = Box::new(failed(attempts, last, Some(outage), true, detail));
                    return Err(StoreError::Generic { store: "S3", source });
                }
            }
        }
    }

    /// What to do where attempts end before their answer has come whole.
    fn timeout_advice(&self) -> String {
        let [one, all] =
            [self.config.request_timeout, self.config.retry_timeout].map(|limit| limit.as_secs_f64());
        format!(
            "; an attempt may take {one} s (--request-timeout-seconds), and all of a request together {all} s \
             (--retry-timeout-seconds)"
        )
    }

    /// The keys after `after`, in their order. A store that lists in an order of its own is read to
    /// the end first.
    fn listing(&self, prefix: Option<&Path>, after: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let after = after.cloned();
        let listing = Listing {
            store: self.clone(),
            // Of a directory.
            prefix: prefix.map(|prefix| format!("{prefix}/")).filter(|prefix| prefix != "/"),
            after: after.as_ref().map(ToString::to_string),
        };
        let is_after = move |object: &ObjectMeta| after.as_ref().is_none_or(|after| object.location > *after);
        let first = async move {
            let PaginatedListResult { result, page_token } = listing.page(None).await?;
            let requests = listing.store.requests.clone();
            let (mut objects, is_known) = (result.objects, requests.is_unsorted.load(Relaxed));
            let last = objects.last().map(|object| object.location.clone());
            let rest = listing.pages_after(page_token);
            if !is_known && is_sorted(&objects) {
                return Ok::<_, StoreError>(
                    stream::iter(objects.into_iter().map(Ok)).chain(in_order(requests, last, rest)).boxed(),
                );
            }
            requests.is_unsorted.store(true, Relaxed);
            objects.extend(rest.try_concat().await?);
            objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
            Ok(stream::iter(objects.into_iter().map(Ok)).boxed())
        };
        stream::once(first).try_flatten().try_filter(move |object| future::ready(is_after(object))).boxed()
    }
}

/// What is listed.
struct Listing {
    store: RetryingStore,
    prefix: Option<String>,
    after: Option<String>,
}

impl Listing {
    async fn page(&self, page_token: Option<String>) -> Result<PaginatedListResult> {
        let place = self.prefix.as_deref().unwrap_or_default();
        let page = || {
            let (page_token, offset) = (page_token.clone(), self.after.clone());
            let options = PaginatedListOptions { offset, page_token, ..PaginatedListOptions::default() };
            self.store.pages.list_paginated(self.prefix.as_deref(), options)
        };
        self.store.retry("LIST", place, page).await
    }

    fn pages_after(self, page_token: Option<String>) -> impl Stream<Item = Result<Vec<ObjectMeta>>> {
        stream::try_unfold((self, page_token), |(listing, page_token)| async move {
            let Some(page_token) = page_token else { return Ok(None) };
            let page = listing.page(Some(page_token)).await?;
            Ok(Some((page.result.objects, (listing, page.page_token))))
        })
    }
}

fn is_sorted(objects: &[ObjectMeta]) -> bool {
    objects.is_sorted_by(|a, b| a.location < b.location)
}

/// The objects of pages that are in order, `last` being what came before them.
fn in_order(
    requests: Arc<RequestCounts>,
    mut last: Option<Path>,
    pages: impl Stream<Item = Result<Vec<ObjectMeta>>> + Send + 'static,
) -> impl Stream<Item = Result<ObjectMeta>> + Send {
    let checked = pages.and_then(move |objects| {
        let before = last.take();
        let follows = objects.first().zip(before.as_ref()).is_none_or(|(first, last)| first.location > *last);
        last = objects.last().map(|object| object.location.clone()).or(before);
        future::ready(match follows && is_sorted(&objects) {
            true => Ok(objects),
            false => {
                requests.is_unsorted.store(true, Relaxed);
                let source = "a page of the listing is out of order; it is sorted from now on".into();
                Err(StoreError::Generic { store: "S3", source })
            }
        })
    });
    checked.map_ok(|objects| stream::iter(objects.into_iter().map(Ok))).try_flatten()
}

/// Whether an answer of this status means that the same request may succeed later. 501 (not implemented) and 505 (HTTP
/// version not supported) never will.
pub(super) fn is_not_now(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502..=504 | 506..)
}

/// Whether the same request may succeed a little later, with nothing else changed.
fn is_retryable(method: &str, error: &StoreError, outcome: &Outcome) -> bool {
    if !matches!(error, StoreError::Generic { .. }) {
        return false;
    }
    match outcome.status {
        None => !outcome.is_out_of_files,
        Some(status) if is_not_now(status) => true,
        Some(200..=299) => match &outcome.code {
            Some(code) => RETRYABLE_CODES.contains(&&**code),
            // The other methods are answered with XML, which may be cut off as well.
            None => outcome.is_cut_off || !matches!(method, "GET" | "PUT"),
        },
        Some(_) => false,
    }
}

/// Whether an attempt took longer than it may.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |cause| (*cause).source());
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref::<HttpError>()).map(HttpError::kind);
    kinds.any(|kind| kind == HttpErrorKind::Timeout)
}

/// The error with what is known of the request as its source. Answers such as "not found" stay as they are.
fn wrapped(error: StoreError, failed: impl FnOnce(&StoreError) -> RequestFailed) -> StoreError {
    match &error {
        StoreError::Generic { store, .. } => StoreError::Generic { store, source: Box::new(failed(&error)) },
        StoreError::PermissionDenied { path, .. } => {
            StoreError::PermissionDenied { path: path.clone(), source: Box::new(failed(&error)) }
        }
        StoreError::Unauthenticated { path, .. } => {
            StoreError::Unauthenticated { path: path.clone(), source: Box::new(failed(&error)) }
        }
        _ => error,
    }
}

/// Waits until the store has answered nothing for `timeout`, and gives for how long. Warns before.
pub(super) async fn stall(
    availability: &Availability,
    timeout: Duration,
    request: impl Fn() -> String,
) -> Duration {
    let mut next = WARN_AFTER.min(timeout);
    loop {
        tokio::time::sleep(next).await;
        let outage = availability.outage();
        if outage >= timeout {
            return outage;
        }
        next = if outage < WARN_AFTER { WARN_AFTER.min(timeout) } else { timeout } - outage;
        if outage >= WARN_AFTER && availability.take_warning() {
            let (answer, said) = availability.failure();
            tracing::warn!(
                "the store {answer} for {:.0} s: {}{said}; it is asked for another {:.0} s (--stall-timeout-seconds)",
                outage.as_secs_f64(),
                request(),
                next.as_secs_f64()
            );
        }
    }
}

impl fmt::Display for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for RetryingStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let get = || self.get(location.clone(), options.clone());
        self.retry("GET", location.as_ref(), get).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.retry("PUT", location.as_ref(), || {
            self.inner.put_opts(location, payload.clone(), options.clone())
        })
        .await
    }

    /// Keeps the parts and sends them as one object: a part can't be sent a second time.
    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(OnePut { store: self.clone(), location: location.clone(), parts: Vec::new() }))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .try_chunks(MAX_KEYS_PER_DELETE)
            .map_err(|error| error.1)
            .and_then(move |keys| {
                let store = store.clone();
                async move {
                    let first = keys.first().map(ToString::to_string).unwrap_or_default();
                    let delete = || {
                        let keys = keys.clone().into_iter().map(Ok);
                        store.inner.delete_stream(stream::iter(keys).boxed()).try_collect::<Vec<_>>()
                    };
                    let deleted = store.retry("DELETE", &first, delete).await?;
                    Ok(stream::iter(deleted.into_iter().map(Ok)))
                }
            })
            .try_flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let place = prefix.map(ToString::to_string).unwrap_or_default();
        self.retry("LIST", &place, || self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.retry("COPY", to.as_ref(), || self.inner.copy_opts(from, to, options.clone())).await
    }
}

/// An upload in parts that becomes one PUT.
#[derive(Debug)]
struct OnePut {
    store: RetryingStore,
    location: Path,
    parts: Vec<PutPayload>,
}

#[async_trait]
impl MultipartUpload for OnePut {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.parts.push(part);
        async { Ok(()) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let body: PutPayload = std::mem::take(&mut self.parts).into_iter().flatten().collect();
        self.store.put_opts(&self.location, body, PutOptions::default()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
