//! Keeps two benches off one prefix by an object with a heartbeat; against accidents, not against a bench that sleeps
//! through its own staleness.
//!
//! Created, rewritten and taken over conditionally, so that of two that try only one succeeds. Its age is that of its
//! last modification by the store's own clock, never by comparing two hosts' clocks.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::error::StorageError;
use super::lake_path::Prefix;
use super::{Store, one_line};

/// The lock's name below its prefix.
pub(crate) const BENCH_LOCK: &str = ".s3mq-bench.lock";
/// Names of the objects that show the store's time begin with this; a UUID follows.
pub(crate) const CLOCK_PREFIX: &str = ".s3mq-clock-";
/// How often the holder rewrites its lock.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How old a heartbeat may be before the lock counts as abandoned.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// A held lock; [`PrefixLock::release`] gives it back.
#[derive(Debug)]
pub struct PrefixLock {
    heartbeat: JoinHandle<()>,
    release: oneshot::Sender<()>,
}

impl PrefixLock {
    /// Takes the lock of `prefix`; `holder` is shown to others. Fails when another bench holds it, or the store fails.
    pub async fn acquire(store: &Store, prefix: &Prefix, holder: &str) -> Result<Self, StorageError> {
        let key = prefix.join(BENCH_LOCK);
        // Differs from anybody else's, so that it is known again where its answer was lost.
        let body = lock_of(holder);
        let version = match put(store, &key, &body, PutMode::Create).await {
            Err(Error::AlreadyExists { .. }) => take_over(store, prefix, &key, &body).await?,
            created => created.map_err(|error| cannot_lock(&key, &one_line(&error)))?,
        };
        let (release, released) = oneshot::channel();
        let heartbeat = tokio::spawn(keep(store.clone(), key, body, version, released));
        Ok(Self { heartbeat, release })
    }

    /// Ends the heartbeat and marks the lock as free, unless another bench has it by now. The object stays: a DELETE can't
    /// be made on condition, and might take a successor's lock away.
    pub async fn release(self) {
        let _ = self.release.send(());
        let _ = self.heartbeat.await;
    }
}

/// Says who holds a lock that nobody holds.
const FREE: &str = "free";

fn lock_of(holder: &str) -> PutPayload {
    PutPayload::from(format!("{holder}, {}", Uuid::new_v4()))
}

async fn put(
    store: &Store,
    key: &Path,
    body: &PutPayload,
    mode: PutMode,
) -> object_store::Result<UpdateVersion> {
    let options = PutOptions { mode, ..PutOptions::default() };
    store.objects().put_opts(key, body.clone(), options).await.map(UpdateVersion::from)
}

async fn take_over(
    store: &Store,
    prefix: &Prefix,
    key: &Path,
    body: &PutPayload,
) -> Result<UpdateVersion, StorageError> {
    let failed = |error: Error| cannot_lock(key, &one_line(&error));
    let (seen, modified, holder) = match read(store, key).await {
        // Deleted between our two requests; whoever comes first now has it.
        Err(Error::NotFound { .. }) => {
            return put(store, key, body, PutMode::Create).await.map_err(failed);
        }
        current => current.map_err(failed)?,
    };
    if is_ours(&holder, body) {
        return Ok(seen);
    }
    if !is_lock(&holder) {
        let foreign = "an object is there that s3mq didn't write; give another --prefix";
        return Err(cannot_lock(key, foreign));
    }
    if holder.starts_with(FREE.as_bytes()) {
        return match put(store, key, body, PutMode::Update(seen)).await {
            // Whoever came first has it by now; or it was us, and the answer was lost.
            Err(Error::Precondition { .. }) => Box::pin(take_over(store, prefix, key, body)).await,
            taken => taken.map_err(failed),
        };
    }
    let age = store_now(store, prefix).await.map_err(failed)? - modified;
    let max_age = STALE_AFTER.as_secs();
    if age < max_age as i64 {
        let holder = String::from_utf8_lossy(&holder);
        return Err(StorageError::Other(format!(
            "another bench uses {prefix} ({holder}); choose another --prefix, or wait {max_age} s if it was killed"
        )));
    }
    tracing::warn!("taking over the lock {key}, whose holder has not been heard of for {age} s");
    put(store, key, body, PutMode::Update(seen)).await.map_err(failed)
}

fn cannot_lock(key: &Path, detail: &str) -> StorageError {
    StorageError::Other(format!("cannot lock {key}: {detail}"))
}

/// The lock's version, when it was modified in Unix seconds of the store, and its bytes.
async fn read(store: &Store, key: &Path) -> object_store::Result<(UpdateVersion, i64, Bytes)> {
    let lock = store.objects().get(key).await?;
    let version = UpdateVersion { e_tag: lock.meta.e_tag.clone(), version: lock.meta.version.clone() };
    Ok((version, lock.meta.last_modified.timestamp(), lock.bytes().await?))
}

fn is_ours(holder: &[u8], body: &PutPayload) -> bool {
    body.iter().flatten().eq(holder)
}

/// Whether these are the bytes of a lock, anybody's: who holds it, and a UUID.
fn is_lock(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.rsplit_once(", ").is_some_and(|(_, id)| Uuid::try_parse(id).is_ok())
}

/// The store's own time, in Unix seconds: when it says an object written now was modified.
async fn store_now(store: &Store, prefix: &Prefix) -> object_store::Result<i64> {
    let key = prefix.join(&format!("{CLOCK_PREFIX}{}", Uuid::new_v4()));
    store.objects().put(&key, PutPayload::new()).await?;
    let now = store.objects().head(&key).await.map(|meta| meta.last_modified.timestamp());
    store.objects().delete(&key).await?;
    now
}

async fn give_back(store: &Store, key: &Path, version: UpdateVersion) {
    let free = lock_of(FREE);
    let Err(error) = put(store, key, &free, PutMode::Update(version)).await else { return };
    // It may have been applied, and its answer lost.
    if !read(store, key).await.is_ok_and(|(_, _, holder)| is_ours(&holder, &free)) {
        tracing::warn!("could not give the lock {key} back: {}", one_line(&error));
    }
}

async fn keep(
    store: Store,
    key: Path,
    body: PutPayload,
    mut version: UpdateVersion,
    mut released: oneshot::Receiver<()>,
) {
    loop {
        // One that is dropped without a word is left to become stale.
        if let Ok(released) = tokio::time::timeout(HEARTBEAT, &mut released).await {
            if released.is_ok() {
                give_back(&store, &key, version).await;
            }
            return;
        }
        let renewed = match put(&store, &key, &body, PutMode::Update(version.clone())).await {
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {
                // It may have been applied, and its answer lost.
                let current = read(&store, &key).await;
                current.map(|(version, _, holder)| is_ours(&holder, &body).then_some(version))
            }
            renewed => renewed.map(Some),
        };
        match renewed {
            Ok(Some(next)) => version = next,
            Ok(None) => {
                tracing::error!("another bench has taken the lock {key}: results may be mixed");
                return;
            }
            Err(error) => tracing::warn!("could not renew the lock {key}: {}", one_line(&error)),
        }
    }
}
