//! What the queue depends on, tried out before anything is measured.
//!
//! A queue over Delta is only as good as the store's conditional PUT: where `If-None-Match: *` is
//! ignored, two producers silently overwrite each other's commits. So each assumption is tested on
//! the store itself, below the prefix that will be used, and what was written is deleted again.

use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use super::error::StorageError;
use super::lake_path::Prefix;
use super::{Store, one_line};
use crate::clock::monotonic_ns;

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

/// Tries out each assumption below `prefix`, telling `report` of each that holds.
///
/// # Errors
/// The first assumption that doesn't hold.
pub async fn preflight(
    store: &Store,
    prefix: &Prefix,
    mut report: impl FnMut(Check),
) -> Result<(), StorageError> {
    store.admin().probe(prefix).await?;
    report(Check::Bucket);

    let directory = prefix.child(".s3mq-preflight");
    let key = directory.path().clone().join(Uuid::new_v4().to_string());
    let result = try_out(store, &directory, &key, &mut report).await;
    let deleted = store.objects().delete(&key).await;
    result?;
    deleted.map_err(|error| refused(store, "DELETE", error))?;
    report(Check::Deleted);
    Ok(())
}

async fn try_out(
    store: &Store,
    directory: &Prefix,
    key: &Path,
    report: &mut impl FnMut(Check),
) -> Result<(), StorageError> {
    let objects = store.objects();
    create(objects, key, "first")
        .await
        .map_err(|error| refused(store, "PUT with If-None-Match: *", error))?;
    report(Check::ConditionalPut);

    let again = create(objects, key, "second").await;
    // Whatever the answer says, it is the object that counts.
    let kept = objects.get(key).await.map_err(|error| refused(store, "GET", error))?;
    let kept = kept.bytes().await.map_err(|error| refused(store, "GET", error))?;
    match again {
        Ok(_) => return Err(StorageError::ConditionIgnored { place: store.config().describe() }),
        Err(object_store::Error::AlreadyExists { .. }) if kept == "first" => report(Check::ConditionHeld),
        Err(object_store::Error::AlreadyExists { .. }) => {
            return Err(StorageError::ConditionIgnored { place: store.config().describe() });
        }
        Err(error) => return Err(refused(store, "a second PUT with If-None-Match: *", error)),
    }

    let mut listing = objects.list(Some(directory.path()));
    let mut listed = false;
    while let Some(object) = listing.next().await {
        listed |= object.map_err(|error| refused(store, "LIST", error))?.location == *key;
    }
    if !listed {
        return Err(StorageError::StaleList { place: store.config().describe() });
    }
    report(Check::Listed);
    report(Check::ReadBack);

    match objects.get(&key.clone().join("absent")).await {
        Err(object_store::Error::NotFound { .. }) => report(Check::AbsentGet),
        Ok(_) => {
            return Err(StorageError::Other(format!(
                "{} returns an object that nobody wrote",
                store.config().describe()
            )));
        }
        Err(error) => return Err(refused(store, "GET of an absent key", error)),
    }
    Ok(())
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

/// Measures `count` round trips of each request the queue makes, one after the other over warm
/// connections, with bodies of `body_bytes` (the conditional PUT's is a single byte). Cleans up behind itself.
///
/// # Errors
/// When the store refuses any of them.
pub async fn round_trips(
    store: &Store,
    prefix: &Prefix,
    count: usize,
    body_bytes: usize,
) -> Result<Vec<RoundTrip>, StorageError> {
    let directory = prefix.child(".s3mq-preflight").child(&Uuid::new_v4().to_string());
    let result = measure(store, &directory, count, body_bytes).await;
    store.admin().clean(&directory).await?;
    result
}

async fn measure(
    store: &Store,
    directory: &Prefix,
    count: usize,
    body_bytes: usize,
) -> Result<Vec<RoundTrip>, StorageError> {
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
            if i > 0 {
                sorted_us.push((monotonic_ns() - start_ns) / 1_000);
            }
        }
        sorted_us.sort_unstable();
        all.push(RoundTrip { request, sorted_us });
    }
    Ok(all)
}

async fn read(objects: &dyn ObjectStore, key: &Path) -> object_store::Result<()> {
    objects.get(key).await?.bytes().await.map(drop)
}
