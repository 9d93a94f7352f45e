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
use s3s::{S3Error, S3ErrorCode, s3_error};
use uuid::Uuid;

use super::blob::{About, Attributes, Blob, Object, now};
use super::budget::{Budget, Piece};
use super::files::{Files, StagedFile};

const STRIPES: usize = 64;

/// The sorted objects of a bucket.
pub(super) type Objects = BTreeMap<String, Arc<Object>>;

/// The server's buckets and objects.
pub(super) struct Store {
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    stripes: [Mutex<()>; STRIPES],
    hasher: RandomState,
    /// The sequence of the latest write.
    sequence: AtomicU64,
    /// The memory that clients may fill.
    pub(super) budget: Arc<Budget>,
    /// Where the bytes are; `None` if in memory.
    files: Option<Files>,
}

/// One bucket.
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

/// Why the store refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("The bucket does not exist.")]
    NoSuchBucket,
    #[error("The bucket exists already and is yours.")]
    BucketExists,
    #[error("The bucket is not empty.")]
    BucketNotEmpty,
    #[error("The key does not exist.")]
    NoSuchKey,
    #[error("A condition of the request does not hold.")]
    PreconditionFailed,
    #[error("The server has no more room: {0}")]
    Full(io::Error),
    #[error("The server's disk failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            _ => Self::Io(error),
        }
    }
}

impl Store {
    /// A store with the objects that were found.
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

    /// Whether writes wait for a disk.
    pub(super) fn blocks(&self) -> bool {
        self.files.is_some()
    }

    /// The buckets' names and when they were created, sorted by name.
    pub(super) fn bucket_names(&self) -> Vec<(String, SystemTime)> {
        self.buckets.read().iter().map(|(name, bucket)| (name.clone(), bucket.created)).collect()
    }

    pub(super) fn bucket(&self, name: &str) -> Result<Arc<Bucket>, StoreError> {
        self.buckets.read().get(name).cloned().ok_or(StoreError::NoSuchBucket)
    }

    pub(super) fn object(&self, bucket: &str, key: &str) -> Result<Arc<Object>, StoreError> {
        self.bucket(bucket)?.object(key).ok_or(StoreError::NoSuchKey)
    }

    /// Creates a bucket. Its name has been checked.
    pub(super) fn create_bucket(&self, name: &str) -> Result<(), StoreError> {
        let mut buckets = self.buckets.write();
        if buckets.contains_key(name) {
            return Err(StoreError::BucketExists);
        }
        if let Some(files) = &self.files {
            files.create_bucket(name)?;
        }
        let bucket = Bucket { created: now(), objects: RwLock::default() };
        buckets.insert(name.to_owned(), Arc::new(bucket));
        Ok(())
    }

    /// Removes an empty bucket.
    pub(super) fn delete_bucket(&self, name: &str) -> Result<(), StoreError> {
        // With all stripes held, nobody is writing into the bucket. A writer holds one stripe and
        // waits for no other, so this cannot deadlock.
        let _no_writers: Vec<MutexGuard<'_, ()>> = self.stripes.iter().map(Mutex::lock).collect();
        if !self.bucket(name)?.objects.read().is_empty() {
            return Err(StoreError::BucketNotEmpty);
        }
        if let Some(files) = &self.files {
            files.delete_bucket(name)?;
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
    ) -> Result<About, StoreError> {
        // What is refused now need not be written; the rest is decided below.
        conditions.check(self.bucket(bucket)?.object(key).as_deref())?;
        let about = About {
            etag: Uuid::new_v4().simple().to_string(),
            size: pieces.iter().map(|piece| piece.bytes.len() as u64).sum(),
            modified: now(),
            attributes,
        };
        let held = Some(self.budget.take(about.attributes.entry_bytes(key))?);
        let staged = match &self.files {
            None => Staged::Memory(Piece::join(pieces, &self.budget)?),
            Some(files) => Staged::File(files.stage(bucket, key, &about, pieces)?),
        };

        let _sole_writer = self.lock(bucket, key);
        let home = self.bucket(bucket)?;
        conditions.check(home.object(key).as_deref())?;
        let sequence = 1 + self.sequence.fetch_add(1, Ordering::Relaxed);
        let blob = match staged {
            Staged::Memory(piece) => Blob::Memory(piece),
            Staged::File(file) => Blob::File(file.publish(sequence)?),
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
    pub(super) fn delete(&self, bucket: &str, key: &str, conditions: &Conditions) -> Result<(), StoreError> {
        let _sole_writer = self.lock(bucket, key);
        let home = self.bucket(bucket)?;
        conditions.check(home.object(key).as_deref())?;
        // From the index first: a reader that finds the bytes gone looks again, and must then see
        // that the object is too.
        let Some(object) = home.objects.write().remove(key) else { return Ok(()) };
        if let Err(error) = object.blob.remove() {
            home.objects.write().insert(key.to_owned(), object);
            return Err(error.into());
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
    pub(super) fn check(&self, current: Option<&Object>) -> Result<(), StoreError> {
        if let Some(wanted) = &self.if_match {
            let current = current.ok_or(StoreError::NoSuchKey)?;
            if !matches(wanted, &current.about) {
                return Err(StoreError::PreconditionFailed);
            }
        }
        match (&self.if_none_match, current) {
            (Some(unwanted), Some(current)) if matches(unwanted, &current.about) => {
                Err(StoreError::PreconditionFailed)
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

impl From<StoreError> for S3Error {
    fn from(error: StoreError) -> Self {
        let mut answer = match error {
            StoreError::NoSuchBucket => s3_error!(NoSuchBucket),
            StoreError::BucketExists => s3_error!(BucketAlreadyOwnedByYou),
            StoreError::BucketNotEmpty => s3_error!(BucketNotEmpty),
            StoreError::NoSuchKey => s3_error!(NoSuchKey),
            StoreError::PreconditionFailed => s3_error!(PreconditionFailed),
            StoreError::Full(_) => {
                let mut full = S3Error::new(S3ErrorCode::Custom("InsufficientStorage".into()));
                // Not 507: clients ask again after a 5xx, and there won't be more room.
                full.set_status_code(StatusCode::BAD_REQUEST);
                full
            }
            StoreError::Io(_) => s3_error!(InternalError),
        };
        if matches!(error, StoreError::Full(_) | StoreError::Io(_)) {
            tracing::warn!("refused a request: {error}");
        }
        answer.set_message(error.to_string());
        answer
    }
}
