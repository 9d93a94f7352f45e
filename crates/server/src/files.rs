//! Objects as files of one directory, so that they outlive the process.
//!
//! ```text
//! s3mq.lock                    held while a server runs; a second one is refused
//! tmp/                         writes that were not published; emptied at every start
//! buckets/{bucket}/{sequence}  one write: a line of JSON (key, ETag, size, ...), then the bytes
//! ```
//!
//! A file is renamed once its conditions hold, so that every file in a bucket is whole. Nothing is fsynced. No key becomes
//! part of a path: `../x`, or `a` beside `a/b`, are keys like any other. Of two files of one key (a server was killed
//! between publishing one and removing the other) the higher number is the later.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use s3s::Body;
use s3s::dto::StreamingBlob;
use serde::{Deserialize, Serialize};

use super::blob::{About, Blob, Object};
use super::budget::Piece;
use super::error::ServerError;
use super::store::{Found, Objects};

/// How much of a large object is read ahead of its client.
const CHUNK_BYTES: u64 = 1 << 20;

/// A longer first line is not one of ours: keys have at most 1 KiB, headers come in one request.
const MAX_HEADER_BYTES: u64 = 1 << 20;

const FORMAT: u32 = 1;

pub(super) struct Files {
    tmp: PathBuf,
    buckets: PathBuf,
    staged: AtomicU64,
    /// The system releases it with the process, however that ends.
    _lock: File,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Header<K> {
    s3mq: u32,
    key: K,
    #[serde(flatten)]
    about: About,
}

impl Files {
    /// Opens a directory, creating it where absent, and reads which objects it holds.
    pub(super) fn open(root: PathBuf) -> Result<(Self, Found), ServerError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ServerError::DataDir(path, source)
        };
        let (tmp, buckets, lock_file) = (root.join("tmp"), root.join("buckets"), root.join("s3mq.lock"));
        fs::create_dir_all(&root).map_err(failed(&root))?;
        let is_empty = fs::read_dir(&root).map_err(failed(&root))?.next().is_none();
        if !is_empty && !lock_file.exists() {
            return Err(ServerError::NotADataDir(root));
        }
        let lock = File::options().create(true).append(true).open(&lock_file);
        let lock = lock.map_err(failed(&lock_file))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ServerError::DataDirInUse(root.clone()),
            TryLockError::Error(source) => failed(&lock_file)(source),
        })?;
        fs::create_dir_all(&tmp).map_err(failed(&tmp))?;
        for unpublished in fs::read_dir(&tmp).map_err(failed(&tmp))? {
            unpublished.and_then(|file| fs::remove_file(file.path())).map_err(failed(&tmp))?;
        }
        fs::create_dir_all(&buckets).map_err(failed(&buckets))?;
        let found = find(&buckets).map_err(failed(&buckets))?;
        Ok((Self { tmp, buckets, staged: AtomicU64::new(0), _lock: lock }, found))
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> io::Result<()> {
        fs::create_dir(self.buckets.join(bucket))
    }

    pub(super) fn delete_bucket(&self, bucket: &str) -> io::Result<()> {
        fs::remove_dir(self.buckets.join(bucket))
    }

    /// Writes the concatenated `pieces` to a file that nobody sees yet.
    pub(super) fn stage(
        &self,
        bucket: &str,
        key: &str,
        about: &About,
        pieces: Vec<Piece>,
    ) -> io::Result<StagedFile> {
        let mut header = serde_json::to_vec(&Header { s3mq: FORMAT, key, about: about.clone() })?;
        header.push(b'\n');
        let path = self.tmp.join(self.staged.fetch_add(1, Ordering::Relaxed).to_string());
        let mut file = File::create_new(&path)?;
        // From here on a failure removes the file again.
        let staged = StagedFile { path, bucket: self.buckets.join(bucket), offset: header.len() as u64 };
        file.write_all(&header)?;
        for piece in pieces {
            file.write_all(&piece.bytes)?;
        }
        Ok(staged)
    }
}

/// A file that is not published. Dropped, it is gone.
pub(super) struct StagedFile {
    path: PathBuf,
    bucket: PathBuf,
    offset: u64,
}

impl StagedFile {
    /// Moves it into its bucket. Of two files of a key, the higher `sequence` is the later one.
    pub(super) fn publish(self, sequence: u64) -> io::Result<ObjectFile> {
        let path = self.bucket.join(format!("{sequence:016x}"));
        fs::rename(&self.path, &path)?;
        Ok(ObjectFile { path, offset: self.offset })
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // It is gone if it was published. The next start removes what a failure leaves.
        let _ = fs::remove_file(&self.path);
    }
}

pub(super) struct ObjectFile {
    path: PathBuf,
    /// Where its object begins.
    offset: u64,
}

impl ObjectFile {
    pub(super) async fn read(&self, range: Range<u64>) -> io::Result<StreamingBlob> {
        let (path, range) = (self.path.clone(), self.offset + range.start..self.offset + range.end);
        let whole = range.end - range.start <= CHUNK_BYTES;
        let rest = (range.start + CHUNK_BYTES).min(range.end)..range.end;
        let (file, first) = blocking(move || {
            let file = File::open(path)?;
            let first = read_chunk(&file, &range)?;
            Ok((file, first))
        })
        .await?;
        if whole {
            return Ok(StreamingBlob::from(Body::from(first)));
        }
        // The open file stays whole if the object is removed or replaced meanwhile.
        let rest = stream::try_unfold((Arc::new(file), rest), |(file, rest)| async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let next = (rest.start + CHUNK_BYTES).min(rest.end)..rest.end;
            let reader = file.clone();
            let chunk = blocking(move || read_chunk(&reader, &rest)).await?;
            Ok::<_, io::Error>(Some((chunk, (file, next))))
        });
        Ok(StreamingBlob::wrap(stream::iter([Ok(first)]).chain(rest)))
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The beginning of a range, as much as is read at once.
fn read_chunk(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let length = (range.end - range.start).min(CHUNK_BYTES);
    let mut chunk = vec![0; length as usize];
    file.read_exact_at(&mut chunk, range.start)?;
    Ok(chunk.into())
}

fn find(buckets: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(buckets)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Some(name) if s3s::path::check_bucket_name(name) => {
                let created = entry.metadata()?.modified()?;
                let (objects, last_sequence) = find_objects(&entry.path())?;
                found.last_sequence = found.last_sequence.max(last_sequence);
                found.buckets.insert(name.to_owned(), (created, objects));
            }
            _ => tracing::warn!("{} is no bucket; ignored", entry.path().display()),
        }
    }
    Ok(found)
}

fn find_objects(bucket: &Path) -> io::Result<(Objects, u64)> {
    let mut latest: BTreeMap<String, (u64, Object)> = BTreeMap::new();
    let mut last_sequence = 0;
    for entry in fs::read_dir(bucket)? {
        let path = entry?.path();
        let Some((sequence, key, object)) = read_object(&path)? else {
            tracing::warn!("{} is not a whole object; ignored", path.display());
            continue;
        };
        last_sequence = last_sequence.max(sequence);
        match latest.entry(key) {
            Entry::Vacant(free) => drop(free.insert((sequence, object))),
            Entry::Occupied(mut other) if other.get().0 < sequence => {
                other.insert((sequence, object)).1.blob.remove()?;
            }
            Entry::Occupied(_) => object.blob.remove()?,
        }
    }
    let objects = latest.into_iter().map(|(key, (_, object))| (key, Arc::new(object))).collect();
    Ok((objects, last_sequence))
}

/// The object in a file, or `None` where it is not one, or not all of one.
fn read_object(path: &Path) -> io::Result<Option<(u64, String, Object)>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(Ok(sequence)) = name.map(|name| u64::from_str_radix(name, 16)) else { return Ok(None) };
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEADER_BYTES)).read_until(b'\n', &mut line)?;
    let Ok(header) = serde_json::from_slice::<Header<String>>(&line) else { return Ok(None) };
    let offset = line.len() as u64;
    if header.s3mq != FORMAT || length != offset + header.about.size {
        return Ok(None);
    }
    let blob = Blob::File(ObjectFile { path: path.to_owned(), offset });
    Ok(Some((sequence, header.key, Object { about: header.about, blob, _held: None })))
}
