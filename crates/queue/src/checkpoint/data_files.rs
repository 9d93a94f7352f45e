//! The data files that a checkpoint must have, computed independently of the kernel that writes it: those of the checkpoint
//! before it, and what later entries remove and add. A checkpoint that lacks a file takes it away from every reader, so
//! the two counts are compared before it appears.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use delta_kernel::log_segment::LogSegment;
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use serde::Deserialize;

use crate::error::QueueError;
use crate::lake::{Lake, version_of_entry, versions_of_compaction};
use crate::storage::ReadObserver;

/// What an entry does to one data file, which is known by a hash of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add(u64),
    Remove(u64),
}

#[derive(Debug, Default)]
pub(super) struct EntriesRead {
    /// By the version they begin with: the one they end with, which is later where entries were put together.
    changes: Mutex<BTreeMap<u64, (u64, Vec<Change>)>>,
    hashes: RandomState,
}

#[derive(Deserialize)]
struct Line {
    add: Option<FileAction>,
    remove: Option<FileAction>,
}

#[derive(Deserialize)]
struct FileAction {
    path: String,
}

impl EntriesRead {
    /// How many data files the table has at `version`: those of the checkpoint `before`, and what all entries after it did
    /// to them. An entry that wasn't read is an error.
    pub(super) fn data_files(&self, before: &Base, version: u64) -> Result<usize, String> {
        let changes = self.changes.lock();
        let mut files = before.files.clone();
        let mut next = before.version.map_or(0, |version| version + 1);
        while next <= version {
            let (last, entry) = changes.get(&next).ok_or_else(|| format!("version {next} was not read"))?;
            for change in entry {
                match change {
                    Change::Add(file) => files.insert(*file),
                    Change::Remove(file) => files.remove(file),
                };
            }
            next = last + 1;
        }
        Ok(files.len())
    }

    fn note(&self, (first, last): (u64, u64), entry: &[u8]) {
        let lines = entry.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
        let mut changes = Vec::new();
        for line in lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
            changes.extend(line.remove.map(|file| Change::Remove(self.hash(&file.path))));
            changes.extend(line.add.map(|file| Change::Add(self.hash(&file.path))));
        }
        let mut noted = self.changes.lock();
        if noted.get(&first).is_none_or(|(noted, _)| *noted < last) {
            noted.insert(first, (last, changes));
        }
    }

    fn hash(&self, path: &str) -> u64 {
        self.hashes.hash_one(path)
    }
}

#[derive(Debug, Default)]
pub(super) struct Base {
    /// Of which version; without one, the log is read from its beginning.
    version: Option<u64>,
    files: HashSet<u64>,
}

impl Base {
    /// Reads the paths of the data files of the checkpoint that the kernel begins with, from its parts and the sidecars
    /// that they name.
    pub(super) async fn read(
        entries: &EntriesRead,
        lake: &Lake,
        segment: &LogSegment,
    ) -> Result<Self, QueueError> {
        let log = lake.prefix().child("_delta_log");
        let parts = segment.listed.checkpoint_parts.iter().filter(|_| segment.checkpoint_version.is_some());
        let mut left: Vec<_> = parts.map(|part| log.join(&part.filename)).collect();
        let mut files = HashSet::new();
        let failed =
            |part: &Path, detail: String| QueueError::Request { what: format!("reading {part}"), detail };
        while let Some(part) = left.pop() {
            let Some(bytes) = lake.read_file(&part).await? else {
                return Err(failed(&part, "it isn't there".to_owned()));
            };
            for batch in actions_with_paths(bytes).map_err(|error| failed(&part, error.to_string()))? {
                let batch = batch.map_err(|error| failed(&part, error.to_string()))?;
                files.extend(paths(&batch, "add").into_iter().flatten().map(|path| entries.hash(path)));
                left.extend(
                    paths(&batch, "sidecar")
                        .into_iter()
                        .flatten()
                        .map(|name| log.child("_sidecars").join(name)),
                );
            }
        }
        Ok(Self { version: segment.checkpoint_version, files })
    }
}

/// The columns of a part of a checkpoint that name files.
fn actions_with_paths(part: Bytes) -> parquet::errors::Result<ParquetRecordBatchReader> {
    // What the writer says of its Arrow types is left out: a path is a string, however it was held.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(part, options)?;
    let columns = ProjectionMask::columns(builder.parquet_schema(), ["add.path", "sidecar.path"]);
    builder.with_projection(columns).build()
}

/// The column `{action}.path` where it isn't null.
fn paths<'a>(batch: &'a RecordBatch, action: &str) -> Option<impl Iterator<Item = &'a str>> {
    let column = batch.column_by_name(action)?.as_struct_opt()?;
    let paths = column.column_by_name("path")?.as_string_opt::<i32>()?.iter().enumerate();
    Some(paths.filter(|(row, _)| column.is_valid(*row)).filter_map(|(_, path)| path))
}

impl ReadObserver for EntriesRead {
    fn read(&self, location: &Path, body: &[u8]) {
        let versions = location.filename().and_then(|name| {
            let of_entry = version_of_entry(name).map(|version| (version, version));
            of_entry.or_else(|| versions_of_compaction(name))
        });
        if let Some(versions) = versions {
            self.note(versions, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_checkpoint_and_of_the_entries_after_it() {
        let entries = EntriesRead::default();
        let add = |path: &str| format!("{{\"add\":{{\"path\":\"{path}\",\"size\":1}}}}\n");
        let remove = |path: &str| format!("{{\"remove\":{{\"path\":\"{path}\"}}}}\n");
        entries.note((0, 0), b"{\"metaData\":{\"id\":\"x\"}}\n{\"protocol\":{}}");
        entries.note((1, 1), (add("a") + &add("b")).as_bytes());
        // Of what was never there, and of what comes back.
        entries.note((2, 2), (remove("a") + &remove("never") + &add("c")).as_bytes());
        entries.note((3, 3), add("a").as_bytes());
        let count = |base: &Base, version| entries.data_files(base, version);
        let counts = [0, 1, 2, 3].map(|version| count(&Base::default(), version).unwrap());
        assert_eq!(counts, [0, 2, 2, 3]);
        let files = ["b", "old"].map(|path| entries.hash(path)).into();
        let base = Base { version: Some(1), files };
        assert_eq!([1, 2, 3].map(|version| count(&base, version).unwrap()), [2, 3, 4]);
        assert!(count(&base, 4).unwrap_err().contains("version 4"));
        // Entries 2 to 6, put together.
        entries.note((2, 6), add("d").as_bytes());
        assert_eq!(count(&base, 6), Ok(3));
    }
}
