//! Log entries: what a commit writes and what the tail reads.
//!
//! An entry is a file of JSON lines, one action a line ([Delta protocol, Actions]). Reading is
//! tolerant, as the protocol asks: unknown actions and unknown fields are passed over. Writing is ours
//! alone and always looks the same: `commitInfo`, one `txn` a producer epoch, one `add` a data file;
//! an end of stream is a `commitInfo` alone.
//!
//! [Delta protocol, Actions]: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::error::shortened;
use super::stamps::ProducerStamps;

/// What our commits and tables say that they were made by.
pub(super) const ENGINE_INFO: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));

/// Who wrote a batch: a producer and the epoch that its process drew at start.
///
/// Sequences and the ledger are keyed by both, so that a restarted producer, or two with one id, are
/// not taken for duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProducerEpoch {
    /// `--producer-id`
    pub producer: i32,
    /// Drawn at random by each producer process.
    pub epoch: Uuid,
}

/// The sequence numbers of one data file of ours: consecutive from `first_seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Who wrote it.
    pub by: ProducerEpoch,
    /// Sequence number of its first row.
    pub first_seq: u64,
    /// How many rows.
    pub rows: u64,
}

/// The last commit of a producer epoch: no more will come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndOfStream {
    /// Whose stream ended.
    #[serde(flatten)]
    pub by: ProducerEpoch,
    /// How many messages it committed in all.
    pub count: u64,
}

/// A data file that a version adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Add {
    /// As the log has it, percent-decoded once: relative to the table, or absolute.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows, where the writer says so.
    pub rows: Option<u64>,
    /// Whose rows, where the writer is one of ours.
    pub origin: Option<Origin>,
    /// When what was done, where the writer says so.
    pub stamps: Option<ProducerStamps>,
}

/// What the queue needs to know of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    /// `s3mq.commitId`, where the writer is one of ours.
    pub commit_id: Option<Uuid>,
    /// When the commit was sent, in Unix microseconds, where the writer is one of ours.
    pub commit_sent_us: Option<i64>,
    /// An end of stream.
    pub end: Option<EndOfStream>,
    /// Data files whose rows are new; those of `dataChange=false` (OPTIMIZE) are left out.
    pub adds: Vec<Add>,
    /// Whether rows are taken away (`remove` with `dataChange=true`).
    pub removes_rows: bool,
    /// Whether a file is added of which some rows are deleted, whatever the table declares.
    pub has_deletion_vectors: bool,
    /// A new protocol.
    pub protocol: Option<Protocol>,
    /// A new schema or new properties.
    pub metadata: Option<Metadata>,
}

/// The `protocol` action.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub min_reader_version: i32,
    pub min_writer_version: i32,
    #[serde(default)]
    pub reader_features: Option<Vec<String>>,
    #[serde(default)]
    pub writer_features: Option<Vec<String>>,
}

/// The `metaData` action, as far as the queue looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub schema_string: String,
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default)]
    pub configuration: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    add: Option<AddLine>,
    #[serde(default)]
    remove: Option<RemoveLine>,
    #[serde(default, rename = "commitInfo")]
    commit_info: Option<CommitInfoLine>,
    #[serde(default)]
    protocol: Option<Protocol>,
    #[serde(default, rename = "metaData")]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddLine {
    path: String,
    size: u64,
    #[serde(default = "yes")]
    data_change: bool,
    #[serde(default)]
    stats: Option<String>,
    #[serde(default)]
    tags: Option<HashMap<String, Option<String>>>,
    #[serde(default)]
    deletion_vector: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoveLine {
    #[serde(default = "yes")]
    data_change: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct CommitInfoLine {
    #[serde(default, rename = "s3mq.commitId")]
    commit_id: Option<Uuid>,
    #[serde(default, rename = "s3mq.commitSentUs")]
    commit_sent_us: Option<i64>,
    #[serde(default, rename = "s3mq.end")]
    end: Option<EndOfStream>,
    /// One text for each `add`, in the order of the adds.
    #[serde(default, rename = "s3mq.stamps")]
    stamps: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    #[serde(default)]
    num_records: Option<u64>,
}

impl Entry {
    /// Parses an entry.
    ///
    /// # Errors
    /// Says which line is no JSON object or lacks a field that the protocol demands, or that there is none: a
    /// commit says at least who made it, so nothing at all is a write that was cut off.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let wrong = |line: usize, problem: &str| shortened(&format!("line {}: {problem}", line + 1));
        let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 ({error})"))?;
        let mut entry = Self::default();
        let (mut stamps, mut is_empty) = (Vec::new(), true);
        for (number, line) in text.split('\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            is_empty = false;
            if !line.trim_ascii_start().starts_with('{') {
                return Err(format!("line {}: it is no JSON object", number + 1));
            }
            let line: Line = serde_json::from_str(line).map_err(|error| wrong(number, &error.to_string()))?;
            entry.has_deletion_vectors |= line.add.as_ref().is_some_and(|add| add.deletion_vector.is_some());
            if let Some(add) = line.add.filter(|add| add.data_change) {
                entry.adds.push(add.resolve().map_err(|error| wrong(number, &error))?);
            }
            entry.removes_rows |= line.remove.is_some_and(|remove| remove.data_change);
            if let Some(info) = line.commit_info {
                entry.commit_id = entry.commit_id.or(info.commit_id);
                entry.commit_sent_us = entry.commit_sent_us.or(info.commit_sent_us);
                entry.end = entry.end.or(info.end);
                stamps = info.stamps;
            }
            entry.protocol = line.protocol.or(entry.protocol);
            entry.metadata = line.metadata.or(entry.metadata);
        }
        if is_empty {
            return Err("it is empty".to_owned());
        }
        if stamps.len() == entry.adds.len() {
            for (add, text) in entry.adds.iter_mut().zip(stamps) {
                add.stamps = ProducerStamps::parse(&text);
            }
        }
        Ok(entry)
    }
}

impl AddLine {
    fn resolve(self) -> Result<Add, String> {
        let path = percent_decode_str(&self.path)
            .decode_utf8()
            .map_err(|_| format!("the path `{}` is not UTF-8", self.path))?
            .into_owned();
        let rows = self
            .stats
            .as_deref()
            .and_then(|stats| serde_json::from_str::<Stats>(stats).ok())
            .and_then(|stats| stats.num_records);
        let origin = self.tags.as_ref().and_then(origin_of_tags);
        Ok(Add { path, size: self.size, rows, origin, stamps: None })
    }
}

fn origin_of_tags(tags: &HashMap<String, Option<String>>) -> Option<Origin> {
    let tag = |name: &str| tags.get(name)?.as_deref();
    Some(Origin {
        by: ProducerEpoch {
            producer: tag("s3mq.producer")?.parse().ok()?,
            epoch: tag("s3mq.epoch")?.parse().ok()?,
        },
        first_seq: tag("s3mq.firstSeq")?.parse().ok()?,
        rows: tag("s3mq.rows")?.parse().ok()?,
    })
}

/// A data file of ours that is stored and waits to be committed.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    /// Its name within the table.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Whose rows, and which.
    pub origin: Origin,
    /// When what was done.
    pub stamps: ProducerStamps,
}

/// The bytes of a commit that adds `files`, all of one producer epoch. `last_batch` counts the
/// batches of that epoch, this commit's included.
pub(super) fn commit_of_files(
    commit_id: Uuid,
    by: ProducerEpoch,
    last_batch: u64,
    now_us: i64,
    files: &[StoredFile],
) -> Vec<u8> {
    let now_ms = now_us.div_euclid(1_000);
    let mut lines = Vec::with_capacity(1024 * (files.len() + 1));
    push_line(
        &mut lines,
        &json!({ "commitInfo": {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": { "mode": "Append" },
            "engineInfo": ENGINE_INFO,
            "isBlindAppend": true,
            "s3mq.commitId": commit_id,
            "s3mq.commitSentUs": now_us,
            // Here and not with each add: a checkpoint keeps adds and their tags for ever.
            "s3mq.stamps": files.iter().map(|file| file.stamps.to_text()).collect::<Vec<_>>(),
        }}),
    );
    push_line(
        &mut lines,
        &json!({ "txn": {
            "appId": format!("{}/{}", by.producer, by.epoch),
            "version": last_batch,
            "lastUpdated": now_ms,
        }}),
    );
    for file in files {
        push_line(
            &mut lines,
            &json!({ "add": {
                "path": file.path,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now_ms,
                "dataChange": true,
                "stats": format!("{{\"numRecords\":{}}}", file.origin.rows),
                "tags": {
                    "s3mq.producer": file.origin.by.producer.to_string(),
                    "s3mq.epoch": file.origin.by.epoch,
                    "s3mq.firstSeq": file.origin.first_seq.to_string(),
                    "s3mq.rows": file.origin.rows.to_string(),
                },
            }}),
        );
    }
    lines
}

/// The bytes of a commit that ends a stream: a `commitInfo` alone.
pub(super) fn commit_of_end(commit_id: Uuid, end: EndOfStream, now_us: i64) -> Vec<u8> {
    let now_ms = now_us.div_euclid(1_000);
    let mut lines = Vec::with_capacity(512);
    push_line(
        &mut lines,
        &json!({ "commitInfo": {
            "timestamp": now_ms,
            "operation": "END OF STREAM",
            "operationParameters": {},
            "engineInfo": ENGINE_INFO,
            "isBlindAppend": true,
            "s3mq.commitId": commit_id,
            "s3mq.end": end,
        }}),
    );
    lines
}

fn push_line(lines: &mut Vec<u8>, action: &serde_json::Value) {
    if !lines.is_empty() {
        lines.push(b'\n');
    }
    lines.extend_from_slice(action.to_string().as_bytes());
}

#[cfg(test)]
mod tests;
