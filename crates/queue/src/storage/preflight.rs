//! What the queue depends on, tried out below the prefix before anything is measured: where `If-None-Match: *` is
//! ignored, two producers silently overwrite each other's commits. What was written is deleted again.

use std::future::Future;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, future, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use super::Store;
use super::error::StorageError;
use super::lake_path::Prefix;
use s3mq_clock::monotonic_ns;

/// The directory below a prefix where a store is tried out; each try has a UUID in it.
pub(crate) const PREFLIGHT: &str = ".s3mq-preflight";
/// Objects that are written: enough for an order of their listing to show.
const KEYS: usize = 4;
/// More than fits the answers that some servers hold back to tell their length.
const BODY_BYTES: usize = 4 << 10;
/// Between two attempts at one request.
const PAUSE: Duration = Duration::from_millis(100);

/// Tries out each assumption below `prefix`, reports in words each that holds, and fails at the first that doesn't. Gives
/// whether the bucket is versioned: what is deleted stays as an old version behind a delete marker.
pub async fn preflight(
    store: &Store,
    prefix: &Prefix,
    mut report: impl FnMut(&'static str),
) -> Result<bool, StorageError> {
    let started_ns = monotonic_ns();
    let is_late = || Duration::from_nanos(monotonic_ns() - started_ns) > store.config().retry_timeout;
    while let Err(error) = store.admin().probe(prefix).await {
        // One that can't be reached isn't waited for: its address may be wrong.
        if !matches!(error, StorageError::Failing(_)) || is_late() {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
    report("the store answers, the credentials work, the bucket is there");

    let directory = prefix.child(PREFLIGHT).child(&Uuid::new_v4().to_string());
    let keys: Vec<_> = (0..KEYS).map(|key| directory.join(&format!("object-{key}"))).collect();
    let result = try_out(store, &directory, &keys, &mut report).await;
    let deleted = store.objects().delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
    let deleted = deleted.try_for_each(|_| future::ready(Ok(()))).await;
    let is_versioned = result?;
    deleted.map_err(|error| refused(store, "DELETE", error))?;
    report("DELETE works");
    Ok(is_versioned)
}

async fn try_out(
    store: &Store,
    directory: &Prefix,
    keys: &[Path],
    report: &mut impl FnMut(&'static str),
) -> Result<bool, StorageError> {
    let objects = store.objects().as_ref();
    let fails = |how: &str| Err(StorageError::Other(format!("{} {how}", store.config().describe())));
    let refused = |what| move |error| refused(store, what, error);
    let (key, others) = keys.split_first().ok_or_else(|| StorageError::Other("no key".to_owned()))?;
    let first = "first ".repeat(BODY_BYTES / 6);
    match create(objects, key, first.clone()).await {
        // The key is nobody else's: the answer to an earlier attempt was lost.
        Ok(()) | Err(Error::AlreadyExists { .. }) => report("PUT with If-None-Match: * creates an object"),
        Err(error) => return Err(refused("PUT with If-None-Match: *")(error)),
    }

    let again = create(objects, key, "second".to_owned()).await;
    // Whatever the answer says, it is the object that counts.
    let kept = objects.get(key).await.map_err(refused("GET"))?;
    // Where versioning is suspended, there is but the one of this name.
    let is_versioned = kept.meta.version.as_ref().is_some_and(|version| version != "null");
    let kept = kept.bytes().await.map_err(refused("GET"))?;
    match again {
        Err(Error::AlreadyExists { .. }) if kept == first => {
            report("the same PUT again is refused, the object is unchanged");
        }
        Ok(()) | Err(Error::AlreadyExists { .. }) => {
            return fails(
                "ignores `If-None-Match: *` on PUT: two producers would overwrite each other's commits; a Delta queue can't work there",
            );
        }
        Err(error) => return Err(refused("a second PUT with If-None-Match: *")(error)),
    }

    for key in others {
        objects.put(key, PutPayload::from_static(b"x")).await.map_err(refused("PUT"))?;
    }
    let listed: Vec<_> = objects.list(Some(directory.path())).try_collect().await.map_err(refused("LIST"))?;
    if keys.iter().any(|key| listed.iter().all(|object| object.location != *key)) {
        return fails("does not list an object that was just written; a queue needs consistent listings");
    }
    report("objects are listed at once");
    if !store.lists_in_order() {
        report("they are listed in an order of the store's own: listings are read to their end and sorted");
    }
    report("GET returns what was written");

    match objects.get(&key.clone().join("absent")).await {
        Err(Error::NotFound { .. }) => report("GET of an absent key says so"),
        Ok(_) => return fails("returns an object that nobody wrote"),
        Err(error) => return Err(refused("GET of an absent key")(error)),
    }
    Ok(is_versioned)
}

async fn create(objects: &dyn ObjectStore, key: &Path, body: String) -> object_store::Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    objects.put_opts(key, PutPayload::from(body), options).await.map(drop)
}

fn refused(store: &Store, what: &str, error: Error) -> StorageError {
    StorageError::of_request(&store.config().describe(), what, &error)
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

/// What to do about a store whose small answers to GETs take so long, where its answers to PUTs don't. Nagle's algorithm at
/// the store keeps the last, short packet of an answer back until the client has acknowledged the one before, and the
/// client's kernel does that after some 40 ms (RFC 896, RFC 1122 section 4.2.3.2).
pub fn advice_on_slow_gets(get_us: u64, put_us: u64) -> Option<&'static str> {
    let is_delayed = (35_000..60_000).contains(&get_us) && put_us < get_us / 3;
    is_delayed.then_some(
        "GETs take about 40 ms and PUTs far less: the store keeps small answers back until they are acknowledged; set \
         TCP_NODELAY there (Ceph: tcp_nodelay=1 in rgw_frontends), or whatever its proxy calls that",
    )
}

/// How long it may take to clean up after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Measures `count` round trips of each request the queue makes, one after the other over warm connections, with bodies
/// of `body_bytes` (the conditional PUT's is a single byte); `None` where `stop` came first. Deletes what it wrote. Fails
/// when the store refuses any of them.
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
                "conditional PUT" => create(objects, &key("create", i), "x".to_owned()).await,
                "GET" => read(objects, &key("put", i)).await,
                "absent GET" => match read(objects, &key("absent", i)).await {
                    Err(Error::NotFound { .. }) => Ok(()),
                    other => other,
                },
                // As the consumer lists: everything after a key, of which nothing is there.
                _ => {
                    let mut listing = objects.list_with_offset(Some(directory.path()), &key("put-", 0));
                    listing.try_next().await.map(drop)
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
