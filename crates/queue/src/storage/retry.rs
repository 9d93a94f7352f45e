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
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use s3mq_clock::monotonic_ns;
use tokio::sync::{Mutex, Semaphore};

use super::availability::{Availability, AvailableTime, WARN_AFTER};
use super::config::Config;
use super::counting::RequestCounts;
use super::error::one_line;

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
    /// S3's code, where the answer was an error that has one.
    pub code: Option<String>,
    /// Whether the body of the answer broke off.
    pub is_cut_off: bool,
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
    pub(super) requests: Arc<RequestCounts>,
    pub(super) config: Arc<Config>,
    pub(super) reads: Option<ObservedReads>,
}

impl RetryingStore {
    async fn get(&self, location: Path, options: GetOptions) -> Result<GetResult> {
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
                    failed(attempts, last.clone(), None, is_retryable, one_line(error))
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

    /// A listing that goes on after the last key that it gave, where a page of it fails.
    fn listing(&self, prefix: Option<Path>, after: Option<Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let place = prefix.as_ref().map(ToString::to_string).unwrap_or_default();
        let start = (self.clone(), Mutex::new(None), after);
        stream::try_unfold(start, move |(store, pages, after)| {
            let (prefix, place) = (prefix.clone(), place.clone());
            async move {
                let next = store.retry("LIST", &place, || async {
                    let mut pages = pages.lock().await;
                    let mut listing = pages.take().unwrap_or_else(|| match &after {
                        Some(key) => store.inner.list_with_offset(prefix.as_ref(), key),
                        None => store.inner.list(prefix.as_ref()),
                    });
                    let next = listing.try_next().await?;
                    *pages = Some(listing);
                    Ok(next)
                });
                let next = next.await?;
                Ok(next.map(|object| {
                    let after = Some(object.location.clone());
                    (object, (store, pages, after))
                }))
            }
        })
        .boxed()
    }
}

/// Whether the same request may succeed a little later, with nothing else changed.
fn is_retryable(method: &str, error: &StoreError, outcome: &Outcome) -> bool {
    if !matches!(error, StoreError::Generic { .. }) {
        return false;
    }
    match outcome.status {
        None | Some(408 | 429 | 500..) => true,
        Some(200..=299) => match &outcome.code {
            Some(code) => RETRYABLE_CODES.contains(&&**code),
            // The other methods are answered with XML, which may be cut off as well.
            None => outcome.is_cut_off || !matches!(method, "GET" | "PUT"),
        },
        Some(_) => false,
    }
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
        self.listing(prefix.cloned(), None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(prefix.cloned(), Some(offset.clone()))
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
