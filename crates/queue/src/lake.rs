//! One table's place on the store, and the few requests the queue makes of its log.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deltalake::kernel::transaction::TransactionError;
use deltalake::logstore::{CommitOrBytes, LogStoreRef, StorageConfig, default_logstore};
use futures::StreamExt;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;
use uuid::Uuid;

use super::error::QueueError;
use crate::storage::{Prefix, RequestFailed, StorageError, Store, advice, counting_attempts, one_line};

/// How often an entry is asked for that a listing shows, and the pause between.
const LISTED_TRIES: u32 = 10;
const LISTED_PAUSE: Duration = Duration::from_millis(300);

/// A table's place: a store and a prefix. Nothing need be there yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lake {
    store: Store,
    prefix: Prefix,
    log: LogStoreRef,
}

/// The answer to a PUT of a log entry.
#[derive(Debug)]
pub(super) enum Written {
    Yes,
    /// The store says that something is there already: maybe ours, after a lost answer.
    Exists,
    /// The store refused for a reason that a retry won't change; nothing was written.
    Refused(String),
}

impl Lake {
    /// The table at `prefix` of the store's bucket. Sends nothing. Fails when bucket and prefix make no URL.
    pub fn new(store: &Store, prefix: Prefix) -> Result<Self, QueueError> {
        let location = location(&store.config().bucket, &prefix).map_err(|error| QueueError::Table {
            action: "open",
            place: prefix.to_string(),
            detail: error.to_string(),
        })?;
        let root: Arc<dyn ObjectStore> = store.objects().clone();
        let prefixed = Arc::new(PrefixStore::new(root.clone(), prefix.path().clone()));
        // delta-rs's factory for s3:// URLs is the same, behind a parse of every AWS_* variable.
        let log = default_logstore(prefixed, root, &location, &StorageConfig::default());
        Ok(Self { store: store.clone(), prefix, log })
    }

    /// The store the table is on.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The table's URL, for messages.
    pub fn describe(&self) -> String {
        format!("s3://{}/{}", self.store.config().bucket, self.prefix)
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The place of a directory below this one; of this one where that is empty.
    pub(super) fn below(&self, directory: &str) -> Result<Self, QueueError> {
        let below = self.prefix.below(directory);
        let failed = |detail| QueueError::Table { action: "open", place: self.key(directory), detail };
        Self::new(&self.store, below.map_err(failed)?)
    }

    pub(super) fn key(&self, relative: &str) -> String {
        format!("{}{relative}", self.prefix.directory())
    }

    pub(super) fn relative(&self, key: &Path) -> String {
        key.as_ref().strip_prefix(&self.prefix.directory()).unwrap_or_default().to_owned()
    }

    pub(super) fn log(&self) -> &LogStoreRef {
        &self.log
    }

    /// GETs a version's entry; `None` when it isn't there.
    pub(super) async fn read_entry(&self, version: u64) -> Result<Option<Bytes>, QueueError> {
        self.log.read_commit_entry(version).await.map_err(|error| {
            let entry = format!("{}/_delta_log/{}", self.describe(), entry_name(version));
            self.failed(format!("GET of version {version}, {entry}"), &error)
        })
    }

    /// GETs the entry of a version that a listing shows, and asks again for a while where it isn't there: it may be late.
    pub(super) async fn read_listed_entry(&self, version: u64) -> Result<Option<Bytes>, QueueError> {
        for _ in 1..LISTED_TRIES {
            if let Some(bytes) = self.read_entry(version).await? {
                return Ok(Some(bytes));
            }
            tokio::time::sleep(LISTED_PAUSE).await;
        }
        self.read_entry(version).await
    }

    /// PUTs a version's entry with `If-None-Match: *`, once more where an answer is lost, and gives how often.
    pub(super) async fn write_entry(
        &self,
        version: u64,
        entry: Bytes,
        commit_id: Uuid,
    ) -> Result<(Written, u32), QueueError> {
        let entry = CommitOrBytes::LogBytes(entry);
        let (written, sent) = counting_attempts(self.log.write_commit_entry(version, entry, commit_id)).await;
        let written = match written {
            Ok(()) => Written::Yes,
            Err(TransactionError::VersionAlreadyExists(_)) => Written::Exists,
            Err(error) if RequestFailed::among_causes(&error).is_some_and(|failed| failed.is_retryable) => {
                return Err(self.failed(format!("PUT of version {version} of {}", self.describe()), &error));
            }
            Err(error) => {
                let refused = self.refusal(&error).map(|refused| refused.to_string());
                Written::Refused(refused.unwrap_or_else(|| one_line(&error)))
            }
        };
        Ok((written, sent))
    }

    /// LISTs the versions in the log, ascending: those after `after`, at most `limit` of them.
    pub(super) async fn list_versions(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, QueueError> {
        self.list("log", after, limit, version_of_entry).await
    }

    /// LISTs the versions after `after` that have a checkpoint, or a part of one; ascending.
    pub(super) async fn list_checkpoints(&self, after: Option<u64>) -> Result<Vec<u64>, QueueError> {
        self.list("checkpoints", after, usize::MAX, version_of_checkpoint).await
    }

    async fn list(
        &self,
        what: &str,
        after: Option<u64>,
        limit: usize,
        version_of: fn(&str) -> Option<u64>,
    ) -> Result<Vec<u64>, QueueError> {
        let log = self.prefix.child("_delta_log");
        let objects = self.store.objects();
        let mut listing = match after {
            Some(version) => objects.list_with_offset(Some(log.path()), &log.join(&entry_name(version))),
            None => objects.list(Some(log.path())),
        };
        let mut versions = Vec::new();
        while versions.len() < limit
            && let Some(object) = listing.next().await
        {
            let object = object
                .map_err(|error| self.failed(format!("LIST of the {what} of {}", self.describe()), &error))?;
            // What somebody keeps in folders below the log is none of its entries.
            let mut below = object.location.prefix_match(log.path()).into_iter().flatten();
            if let (Some(name), None) = (below.next(), below.next()) {
                versions.extend(version_of(name.as_ref()));
            }
        }
        versions.sort_unstable();
        Ok(versions)
    }

    /// The key of a data file, from its path in the log: relative to the table, or a URL (RFC 3986) within the same bucket.
    /// Why it can't be read, where it is elsewhere.
    pub(super) fn data_key(&self, path: &str) -> Result<Path, String> {
        let bucket = &self.store.config().bucket;
        let key = match path.split_once("://") {
            Some(("s3" | "s3a", rest)) => match rest.split_once('/') {
                Some((host, key)) if host == bucket => key.to_owned(),
                _ => return Err(format!("outside the bucket `{bucket}`")),
            },
            Some((scheme, _)) => return Err(format!("on another kind of store ({scheme})")),
            None => self.key(path),
        };
        let mut segments = Vec::new();
        for segment in key.split('/') {
            match segment {
                "." => {}
                ".." => drop(segments.pop()),
                segment => segments.push(segment),
            }
        }
        let unnamable = "at a key that can't be asked for (an empty segment, or a control character)";
        Path::parse(segments.join("/")).map_err(|_| unnamable.to_owned())
    }

    pub(super) async fn read_file(&self, key: &Path) -> Result<Option<Bytes>, QueueError> {
        let read = async { self.store.objects().get(key).await?.bytes().await };
        match read.await {
            Ok(file) => Ok(Some(file)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(format!("GET of data file {key}"), &error)),
        }
    }

    pub(super) async fn write_file(&self, name: &str, body: Bytes) -> Result<(), QueueError> {
        let stored = self.store.objects().put(&self.prefix.join(name), body.into()).await;
        stored.map(drop).map_err(|error| self.failed(format!("PUT of {name} to {}", self.describe()), &error))
    }

    pub(super) fn failed(&self, what: String, error: &(dyn Error + 'static)) -> QueueError {
        if let Some(refused) = self.refusal(error) {
            return refused.into();
        }
        match RequestFailed::among_causes(error) {
            Some(RequestFailed { outage: Some(outage), .. }) => self.stalled(what, *outage),
            _ => {
                let detail = one_line(error);
                let advice = advice(&detail).map(|advice| format!("; {advice}"));
                QueueError::Request { what, detail: detail + &advice.unwrap_or_default() }
            }
        }
    }

    /// The error of a store that has answered nothing for this long.
    pub(super) fn stalled(&self, what: String, outage: Duration) -> QueueError {
        let (answer, said) = self.store.availability().failure();
        let (place, seconds) = (self.store.config().describe(), outage.as_secs_f64());
        QueueError::Stalled { place, answer, seconds, detail: what + &said }
    }

    /// The error of a table that can't be opened, created or the like.
    pub(super) fn cannot(&self, action: &'static str, detail: String) -> QueueError {
        QueueError::Table { action, place: self.describe(), detail }
    }

    /// What the store has against the credentials, if that is what is wrong.
    fn refusal(&self, error: &(dyn Error + 'static)) -> Option<StorageError> {
        StorageError::of_failure(&self.store.config().describe(), error)
    }
}

/// The URL of a prefix. Its segments are encoded, so that `?`, `#` and `%` in a key stay what they are.
fn location(bucket: &str, prefix: &Prefix) -> Result<Url, url::ParseError> {
    let mut url = Url::parse(&format!("s3://{bucket}/"))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        // The empty one at the end makes it a directory.
        segments.pop_if_empty().extend(prefix.directory().split('/'));
    }
    Ok(url)
}

fn entry_name(version: u64) -> String {
    format!("{version:020}.json")
}

/// Whether a file in `_delta_log` is one of the log's own: entries, checkpoints, `.crc`, the last checkpoint's hint.
pub(super) fn is_log_file(name: &str) -> bool {
    name == "_last_checkpoint"
        || version_of_entry(name).is_some()
        || version_of_checkpoint(name).is_some()
        || versions_of_compaction(name).is_some()
        || name.strip_suffix(".crc").and_then(version).is_some()
}

/// The version of a log entry's file name; `None` for any other file.
pub(super) fn version_of_entry(name: &str) -> Option<u64> {
    match name.split_at_checked(VERSION_DIGITS)? {
        (digits, ".json") => version(digits),
        _ => None,
    }
}

/// The versions of a [log compaction file](https://github.com/delta-io/delta/blob/master/PROTOCOL.md#log-compaction-files)
/// by its name; `None` for any other file.
pub(super) fn versions_of_compaction(name: &str) -> Option<(u64, u64)> {
    let (first, last) = name.strip_suffix(".compacted.json")?.split_once('.')?;
    Some((version(first)?, version(last)?))
}

/// The version of a checkpoint's file name, classic, of several parts or V2; `None` for any other file.
fn version_of_checkpoint(name: &str) -> Option<u64> {
    let (digits, rest) = name.split_at_checked(VERSION_DIGITS)?;
    rest.strip_prefix(".checkpoint.").and_then(|_| version(digits))
}

const VERSION_DIGITS: usize = 20;

fn version(digits: &str) -> Option<u64> {
    let is_whole = digits.len() == VERSION_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    // Versions are signed in every reader.
    let version: i64 = is_whole.then(|| digits.parse().ok())??;
    version.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_are_versions() {
        assert_eq!(version_of_entry(&entry_name(0)), Some(0));
        assert_eq!(version_of_entry("00000000000000012345.json"), Some(12_345));
        for name in [
            "00000000000000000010.checkpoint.parquet",
            "00000000000000000010.crc",
            "00000000000000000001.00000000000000000010.compacted.json",
            "_last_checkpoint",
            "_commit_3f.json.tmp",
            "1.json",
            "0000000000000000001x.json",
            "99999999999999999999.json",
            "18446744073709551615.json",
        ] {
            assert_eq!(version_of_entry(name), None, "{name}");
        }
    }

    #[test]
    fn compactions_are_known_by_their_versions() {
        let name = "00000000000000000001.00000000000000000010.compacted.json";
        assert_eq!(versions_of_compaction(name), Some((1, 10)));
        for name in
            ["1.10.compacted.json", "00000000000000000001.json", "00000000000000000001.compacted.json"]
        {
            assert_eq!(versions_of_compaction(name), None, "{name}");
        }
    }

    #[test]
    fn checkpoints_of_all_kinds_are_known() {
        for name in [
            "00000000000000000010.checkpoint.parquet",
            "00000000000000000010.checkpoint.0000000001.0000000003.parquet",
            "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        ] {
            assert_eq!(version_of_checkpoint(name), Some(10), "{name}");
        }
        for name in [
            "00000000000000000010.json",
            "10.checkpoint.parquet",
            "_last_checkpoint",
            "00000000000000000010.crc",
        ] {
            assert_eq!(version_of_checkpoint(name), None, "{name}");
        }
    }
}
