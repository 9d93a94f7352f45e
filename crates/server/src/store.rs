//! The index of all objects, and the only place where a write is decided.
//!
//! A writer first stages its bytes, then takes the lock of its key, and under it checks the conditions, publishes the
//! bytes and changes the index, so that a condition cannot become untrue between check and write. Readers never take
//! that lock. The locks are striped: several keys share one.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard, RwLock};
use s3s::dto::{ETag, ETagCondition};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use uuid::Uuid;

use super::blob::{About, Attributes, Blob, Object, now};
use super::budget::{Budget, Piece};
use super::files::{Files, StagedFile};

const STRIPES: usize = 64;

/// The sorted objects of a bucket.
pub(super) type Objects = BTreeMap<String, Arc<Object>>;

pub(super) struct Store {
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    stripes: [Mutex<()>; STRIPES],
    hasher: RandomState,
    sequence: AtomicU64,
    pub(super) budget: Arc<Budget>,
    /// Where the bytes are; `None` if in memory.
    files: Option<Files>,
}

pub(super) struct Bucket {
    pub(super) created: SystemTime,
    pub(super) objects: RwLock<Objects>,
}

/// What a store finds on disk when it starts.
#[derive(Default)]
pub(super) struct Found {
    pub(super) buckets: BTreeMap<String, (SystemTime, Objects)>,
    pub(super) last_sequence: u64,
}

/// The bytes of a write that is not decided yet.
enum Staged {
    Memory(Piece),
    File(StagedFile),
}

/// What must hold of a key's object for a write to happen.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
}

impl Store {
    pub(super) fn new(files: Option<Files>, found: Found, budget: Arc<Budget>) -> Self {
        let buckets = found.buckets.into_iter().map(|(name, (created, objects))| {
            let objects = RwLock::new(objects);
            (name, Arc::new(Bucket { created, objects }))
        });
        Self {
            buckets: RwLock::new(buckets.collect()),
            stripes: [const { Mutex::new(()) }; STRIPES],
            hasher: RandomState::new(),
            sequence: AtomicU64::new(found.last_sequence),
            budget,
            files,
        }
    }

    /// Whether writes wait for a disk, and so don't belong on an async thread.
    pub(super) fn blocks(&self) -> bool {
        self.files.is_some()
    }

    /// The buckets' names and when they were created, sorted by name.
    pub(super) fn bucket_names(&self) -> Vec<(String, SystemTime)> {
        self.buckets.read().iter().map(|(name, bucket)| (name.clone(), bucket.created)).collect()
    }

    pub(super) fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        self.buckets
            .read()
            .get(name)
            .cloned()
            .ok_or_else(|| s3_error!(NoSuchBucket, "The bucket does not exist."))
    }

    pub(super) fn object(&self, bucket: &str, key: &str) -> S3Result<Arc<Object>> {
        self.bucket(bucket)?.object(key).ok_or_else(no_such_key)
    }

    /// Creates a bucket. Its name has been checked.
    pub(super) fn create_bucket(&self, name: &str) -> S3Result<()> {
        let mut buckets = self.buckets.write();
        if buckets.contains_key(name) {
            return Err(s3_error!(BucketAlreadyOwnedByYou, "The bucket exists already and is yours."));
        }
        if let Some(files) = &self.files {
            files.create_bucket(name).map_err(failed)?;
        }
        let bucket = Bucket { created: now(), objects: RwLock::default() };
        buckets.insert(name.to_owned(), Arc::new(bucket));
        Ok(())
    }

    pub(super) fn delete_bucket(&self, name: &str) -> S3Result<()> {
        // With all stripes held, nobody writes into the bucket. A writer holds a single one: no deadlock.
        let _no_writers: Vec<MutexGuard<'_, ()>> = self.stripes.iter().map(Mutex::lock).collect();
        if !self.bucket(name)?.objects.read().is_empty() {
            return Err(s3_error!(BucketNotEmpty, "The bucket is not empty."));
        }
        if let Some(files) = &self.files {
            files.delete_bucket(name).map_err(failed)?;
        }
        self.buckets.write().remove(name);
        Ok(())
    }

    /// Writes the concatenated `pieces` where the conditions hold.
    pub(super) fn put(
        &self,
        bucket: &str,
        key: &str,
        conditions: &Conditions,
        attributes: Attributes,
        pieces: Vec<Piece>,
    ) -> S3Result<About> {
        // What is refused now need not be written; the rest is decided below.
        conditions.check(self.bucket(bucket)?.object(key).as_deref())?;
        let about = About {
            etag: Uuid::new_v4().simple().to_string(),
            size: pieces.iter().map(|piece| piece.bytes.len() as u64).sum(),
            modified: now(),
            attributes,
        };
        let held = Some(self.budget.take(about.attributes.entry_bytes(key)).map_err(failed)?);
        let staged = match &self.files {
            None => Staged::Memory(Piece::join(pieces, &self.budget).map_err(failed)?),
            Some(files) => Staged::File(files.stage(bucket, key, &about, pieces).map_err(failed)?),
        };

        let _sole_writer = self.lock(bucket, key);
        let home = self.bucket(bucket)?;
        conditions.check(home.object(key).as_deref())?;
        let sequence = 1 + self.sequence.fetch_add(1, Ordering::Relaxed);
        let blob = match staged {
            Staged::Memory(piece) => Blob::Memory(piece),
            Staged::File(file) => Blob::File(file.publish(sequence).map_err(failed)?),
        };
        let object = Arc::new(Object { about: about.clone(), blob, _held: held });
        let replaced = home.objects.write().insert(key.to_owned(), object);
        if let Some(Err(error)) = replaced.map(|old| old.blob.remove()) {
            // The write has happened; what is left over is removed at the next start.
            tracing::warn!("cannot remove what was overwritten in bucket {bucket}: {error}");
        }
        Ok(about)
    }

    /// Removes an object where the conditions hold. An absent one is no error, as in S3.
    pub(super) fn delete(&self, bucket: &str, key: &str, conditions: &Conditions) -> S3Result<()> {
        let _sole_writer = self.lock(bucket, key);
        let home = self.bucket(bucket)?;
        conditions.check(home.object(key).as_deref())?;
        // From the index first: a reader that finds the bytes gone looks there again.
        let Some(object) = home.objects.write().remove(key) else { return Ok(()) };
        if let Err(error) = object.blob.remove() {
            home.objects.write().insert(key.to_owned(), object);
            return Err(failed(error));
        }
        Ok(())
    }

    fn lock(&self, bucket: &str, key: &str) -> MutexGuard<'_, ()> {
        let stripe = self.hasher.hash_one((bucket, key)) as usize % STRIPES;
        self.stripes[stripe].lock()
    }
}

impl Bucket {
    pub(super) fn object(&self, key: &str) -> Option<Arc<Object>> {
        self.objects.read().get(key).cloned()
    }
}

impl Conditions {
    /// Checks them against what a key holds now.
    pub(super) fn check(&self, current: Option<&Object>) -> S3Result<()> {
        if let Some(wanted) = &self.if_match {
            let current = current.ok_or_else(no_such_key)?;
            if !matches(wanted, &current.about) {
                return Err(precondition_failed());
            }
        }
        match (&self.if_none_match, current) {
            (Some(unwanted), Some(current)) if matches(unwanted, &current.about) => {
                Err(precondition_failed())
            }
            _ => Ok(()),
        }
    }
}

/// Whether an object is the one a condition speaks of. A weak ETag is never one of ours.
pub(super) fn matches(condition: &ETagCondition, about: &About) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(ETag::Strong(etag)) => *etag == about.etag,
        ETagCondition::ETag(ETag::Weak(_)) => false,
    }
}

fn no_such_key() -> S3Error {
    s3_error!(NoSuchKey, "The key does not exist.")
}

pub(super) fn precondition_failed() -> S3Error {
    s3_error!(PreconditionFailed, "A condition of the request does not hold.")
}

/// The error of a disk that failed, or of memory or a disk that is full.
pub(super) fn failed(error: io::Error) -> S3Error {
    tracing::warn!("refused a request: {error}");
    if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return s3_error!(InternalError, "The server's disk failed: {error}");
    }
    let mut full = S3Error::new(S3ErrorCode::Custom("InsufficientStorage".into()));
    // Not 507: clients ask again after a 5xx, and there won't be more room.
    full.set_status_code(StatusCode::BAD_REQUEST);
    full.set_message(format!("The server has no more room: {error}"));
    full
}
