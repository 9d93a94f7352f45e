//! What the queue depends on, tried out before anything is measured.
//!
//! A queue over Delta is only as good as the store's conditional PUT: where `If-None-Match: *` is
//! ignored, two producers silently overwrite each other's commits. So each assumption is tested on
//! the store itself, below the prefix that will be used, and what was written is deleted again.

use std::future::Future;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, future};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use super::error::StorageError;
use super::lake_path::Prefix;
use super::{Store, one_line};
use s3mq_clock::monotonic_ns;

/// The directory below a prefix where a store is tried out; each try has a UUID in it.
pub(crate) const PREFLIGHT: &str = ".s3mq-preflight";

/// One assumption that held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The store answers, knows the credentials, and has the bucket.
    Bucket,
    /// A PUT with `If-None-Match: *` of a new key succeeds.
    ConditionalPut,
    /// The same PUT again is refused.
    ConditionHeld,
    /// The object is listed at once.
    Listed,
    /// It reads back as written.
    ReadBack,
    /// A key that isn't there is answered "not found".
    AbsentGet,
    /// It can be deleted.
    Deleted,
}

impl Check {
    /// What was found to be so, in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Bucket => "the store answers, the credentials work, the bucket is there",
            Self::ConditionalPut => "PUT with If-None-Match: * creates an object",
            Self::ConditionHeld => "the same PUT again is refused, the object is unchanged",
            Self::Listed => "the object is listed at once",
            Self::ReadBack => "GET returns what was written",
            Self::AbsentGet => "GET of an absent key says so",
            Self::Deleted => "DELETE works",
        }
    }
}

/// What a store turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// The bucket is versioned: what is deleted stays as an old version behind a delete marker.
    pub is_versioned: bool,
}

/// Tries out each assumption below `prefix`, telling `report` of each that holds.
///
/// # Errors
/// The first assumption that doesn't hold.
pub async fn preflight(
    store: &Store,
    prefix: &Prefix,
    mut report: impl FnMut(Check),
) -> Result<Traits, StorageError> {
    let start_ns = monotonic_ns();
    while let Err(error) = store.admin().probe(prefix).await {
        // One that can't be reached isn't waited for: its address may be wrong.
        if !error.is_failing() || is_late(store, start_ns) {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
    report(Check::Bucket);

    let directory = prefix.child(PREFLIGHT);
    let key = directory.path().clone().join(Uuid::new_v4().to_string());
    let result = try_out(store, &directory, &key, &mut report).await;
    let deleted = store.objects().delete(&key).await;
    let traits = result?;
    deleted.map_err(|error| refused(store, "DELETE", error))?;
    report(Check::Deleted);
    Ok(traits)
}

/// Between two attempts at one request.
const PAUSE: Duration = Duration::from_millis(100);

fn is_late(store: &Store, start_ns: u64) -> bool {
    Duration::from_nanos(monotonic_ns() - start_ns) > store.config().retry_timeout
}

async fn try_out(
    store: &Store,
    directory: &Prefix,
    key: &Path,
    report: &mut impl FnMut(Check),
) -> Result<Traits, StorageError> {
    let objects = store.objects().as_ref();
    match create(objects, key, "first").await {
        // The key is nobody else's: the answer to an earlier attempt was lost.
        Ok(()) | Err(object_store::Error::AlreadyExists { .. }) => report(Check::ConditionalPut),
        Err(error) => return Err(refused(store, "PUT with If-None-Match: *", error)),
    }

    let again = create(objects, key, "second").await;
    // Whatever the answer says, it is the object that counts.
    let kept = objects.get(key).await.map_err(|error| refused(store, "GET", error))?;
    // Where versioning is suspended, there is but the one of this name.
    let is_versioned = kept.meta.version.as_ref().is_some_and(|version| version != "null");
    let kept = kept.bytes().await.map_err(|error| refused(store, "GET", error))?;
    match again {
        Ok(_) => return Err(StorageError::ConditionIgnored { place: store.config().describe() }),
        Err(object_store::Error::AlreadyExists { .. }) if kept == "first" => report(Check::ConditionHeld),
        Err(object_store::Error::AlreadyExists { .. }) => {
            return Err(StorageError::ConditionIgnored { place: store.config().describe() });
        }
        Err(error) => return Err(refused(store, "a second PUT with If-None-Match: *", error)),
    }

    let listed: Vec<_> = objects
        .list(Some(directory.path()))
        .try_collect()
        .await
        .map_err(|error| refused(store, "LIST", error))?;
    if !listed.iter().any(|object| object.location == *key) {
        return Err(StorageError::StaleList { place: store.config().describe() });
    }
    report(Check::Listed);
    report(Check::ReadBack);

    let absent = key.clone().join("absent");
    match objects.get(&absent).await {
        Err(object_store::Error::NotFound { .. }) => report(Check::AbsentGet),
        Ok(_) => {
            return Err(StorageError::Other(format!(
                "{} returns an object that nobody wrote",
                store.config().describe()
            )));
        }
        Err(error) => return Err(refused(store, "GET of an absent key", error)),
    }
    Ok(Traits { is_versioned })
}

async fn create(objects: &dyn ObjectStore, key: &Path, body: &'static str) -> object_store::Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    objects.put_opts(key, PutPayload::from_static(body.as_bytes()), options).await.map(drop)
}

fn refused(store: &Store, what: &str, error: object_store::Error) -> StorageError {
    let place = store.config().describe();
    match &error {
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            StorageError::Denied { place, detail: format!("{what}: {}", one_line(&error)) }
        }
        _ => StorageError::Other(format!("{what} on {place}: {}", one_line(&error))),
    }
}

/// The round trips of one kind of request, in microseconds, sorted.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// `PUT`, `conditional PUT`, `GET`, `absent GET`, `LIST`.
    pub request: &'static str,
    /// Each measured time, ascending.
    pub sorted_us: Vec<u64>,
}

impl RoundTrip {
    /// The nearest-rank percentile, in microseconds.
    pub fn percentile_us(&self, percentile: f64) -> u64 {
        let rank = (percentile / 100.0 * self.sorted_us.len() as f64).ceil().max(1.0) as usize;
        self.sorted_us.get(rank - 1).copied().unwrap_or(0)
    }
}

/// How long it may take to clean up after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Measures `count` round trips of each request the queue makes, one after the other over warm connections, with bodies
/// of `body_bytes` (the conditional PUT's is a single byte); `None` where `stop` came first. Deletes what it wrote.
///
/// # Errors
/// When the store refuses any of them.
pub async fn round_trips(
    store: &Store,
    prefix: &Prefix,
    count: usize,
    body_bytes: usize,
    stop: impl Future<Output = ()>,
) -> Result<Option<Vec<RoundTrip>>, StorageError> {
    let directory = prefix.child(PREFLIGHT).child(&Uuid::new_v4().to_string());
    let stop = stop.shared();
    let given_up = async {
        stop.clone().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    let measured = tokio::select! {
        measured = measure(store, &directory, count, body_bytes, stop.clone()) => measured.transpose(),
        () = given_up => None,
    };
    let listing = store.objects().list(Some(directory.path()));
    let written = listing.map_ok(|object| object.location).boxed();
    let deleted = store.objects().delete_stream(written).try_for_each(|_| future::ready(Ok(())));
    let Some(measured) = measured else {
        if !matches!(tokio::time::timeout(STOP_GRACE, deleted).await, Ok(Ok(()))) {
            tracing::warn!("objects are left below `{directory}`");
        }
        return Ok(None);
    };
    let deleted = deleted.await;
    let trips = measured?;
    deleted.map_err(|error| refused(store, "DELETE", error))?;
    Ok(Some(trips))
}

async fn measure(
    store: &Store,
    directory: &Prefix,
    count: usize,
    body_bytes: usize,
    stop: impl Future<Output = ()> + Clone,
) -> Result<Option<Vec<RoundTrip>>, StorageError> {
    let objects = store.objects().as_ref();
    let key = |kind: &str, i: usize| directory.join(&format!("{kind}-{i}"));
    let body = PutPayload::from(vec![b'x'; body_bytes]);
    let mut all = Vec::new();
    for request in ["PUT", "conditional PUT", "GET", "absent GET", "LIST"] {
        let mut sorted_us = Vec::with_capacity(count);
        // The first turn warms the connection up and isn't kept.
        for i in 0..=count {
            let start_ns = monotonic_ns();
            let outcome = match request {
                "PUT" => objects.put(&key("put", i), body.clone()).await.map(drop),
                "conditional PUT" => create(objects, &key("create", i), "x").await,
                "GET" => read(objects, &key("put", i)).await,
                "absent GET" => match read(objects, &key("absent", i)).await {
                    Err(object_store::Error::NotFound { .. }) => Ok(()),
                    other => other,
                },
                _ => {
                    // As the consumer lists: everything after a key, of which nothing is there.
                    let offset = key("put-", 0);
                    match objects.list_with_offset(Some(directory.path()), &offset).next().await {
                        Some(Err(error)) => Err(error),
                        _ => Ok(()),
                    }
                }
            };
            outcome.map_err(|error| refused(store, request, error))?;
            // Not amid a request, which might write something after all was deleted.
            if stop.clone().now_or_never().is_some() {
                return Ok(None);
            }
            if i > 0 {
                sorted_us.push((monotonic_ns() - start_ns) / 1_000);
            }
        }
        sorted_us.sort_unstable();
        all.push(RoundTrip { request, sorted_us });
    }
    Ok(Some(all))
}

async fn read(objects: &dyn ObjectStore, key: &Path) -> object_store::Result<()> {
    objects.get(key).await?.bytes().await.map(drop)
}
