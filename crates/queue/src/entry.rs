//! Log entries: a file of JSON lines, one [action](https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions) a
//! line. Reading passes over unknown actions and fields. What is written is `commitInfo`, one `txn` a producer epoch and
//! one `add` a data file; an end of stream is a `commitInfo` alone.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::shortened;
use super::stamps::ProducerStamps;

/// What our commits and tables say that they were made by.
pub(super) const ENGINE_INFO: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));

/// Who wrote a batch: a producer and the epoch that it drew when it was opened, which a restart changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProducerEpoch {
    /// `--producer-id`
    pub producer: i32,
    /// Drawn at random.
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
    /// Which one.
    #[serde(flatten)]
    pub by: ProducerEpoch,
    /// How many messages it committed in all.
    pub count: u64,
    /// When its commit was sent, in Unix microseconds of the producer's clock, where the log says so.
    #[serde(skip)]
    pub committed_us: Option<i64>,
}

/// A data file that a version adds. What is optional, only some writers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Add {
    /// As the log has it, percent-decoded once: relative to the table, or absolute.
    pub path: String,
    pub size: u64,
    pub rows: Option<u64>,
    pub origin: Option<Origin>,
    pub stamps: Option<ProducerStamps>,
}

/// What the queue needs to know of a version. What is optional, only some entries have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    pub commit_id: Option<Uuid>,
    pub commit_sent_us: Option<i64>,
    pub end: Option<EndOfStream>,
    /// Data files whose rows are new; those of `dataChange=false` (OPTIMIZE) are left out.
    pub adds: Vec<Add>,
    /// Whether rows are taken away (`remove` with `dataChange=true`).
    pub removes_rows: bool,
    /// Whether a file is added of which some rows are deleted, whatever the table declares.
    pub has_deletion_vectors: bool,
    pub protocol: Option<Protocol>,
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub min_reader_version: i32,
    pub min_writer_version: i32,
    pub reader_features: Option<Vec<String>>,
    pub writer_features: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    /// Absent where a writer (Delta Live Tables) gives the schema a commit later.
    #[serde(default)]
    pub schema_string: Option<String>,
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default)]
    pub configuration: HashMap<String, String>,
}

/// A value of delta-rs in the form that the log has it in: one type and one check, wherever it was read.
pub(super) fn through_json<T: DeserializeOwned>(value: &impl Serialize) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::to_value(value)?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    add: Option<AddLine>,
    remove: Option<RemoveLine>,
    commit_info: Option<CommitInfoLine>,
    protocol: Option<Protocol>,
    #[serde(rename = "metaData")]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddLine {
    path: String,
    size: u64,
    #[serde(default = "yes")]
    data_change: bool,
    stats: Option<String>,
    tags: Option<HashMap<String, Option<String>>>,
    deletion_vector: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoveLine {
    #[serde(default = "yes")]
    data_change: bool,
}

pub(super) fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct CommitInfoLine {
    /// Milliseconds, where it is one of ours; of other writers, anything.
    timestamp: Option<Value>,
    #[serde(rename = "s3mq.commitId")]
    commit_id: Option<Uuid>,
    #[serde(rename = "s3mq.commitSentUs")]
    commit_sent_us: Option<i64>,
    #[serde(rename = "s3mq.end")]
    end: Option<EndOfStream>,
    /// One text for each `add`, in the order of the adds.
    #[serde(default, rename = "s3mq.stamps")]
    stamps: Vec<String>,
}

impl Entry {
    /// Parses an entry, or says which line is no JSON object or lacks a field that the protocol demands, or that there is
    /// none, as after a write that was cut off.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let wrong = |line: usize, problem: &str| shortened(&format!("line {}: {problem}", line + 1));
        let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 ({error})"))?;
        let mut entry = Self::default();
        let mut stamps = Vec::new();
        let lines = text.split('\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
        let mut is_empty = true;
        for (number, line) in lines {
            is_empty = false;
            if !line.trim_ascii_start().starts_with('{') {
                return Err(wrong(number, "it is no JSON object"));
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
                let committed_us = info.timestamp.and_then(|ms| ms.as_i64()?.checked_mul(1_000));
                entry.end = entry.end.or(info.end.map(|end| EndOfStream { committed_us, ..end }));
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
        let stats = self.stats.and_then(|stats| serde_json::from_str::<Value>(&stats).ok());
        let rows = stats.and_then(|stats| stats["numRecords"].as_u64());
        let origin = self.tags.as_ref().and_then(origin_of_tags);
        Ok(Add { path, size: self.size, rows, origin, stamps: None })
    }
}

fn origin_of_tags(tags: &HashMap<String, Option<String>>) -> Option<Origin> {
    let tag = |name: &str| tags.get(name)?.as_deref();
    let producer = tag("s3mq.producer")?.parse().ok()?;
    let by = ProducerEpoch { producer, epoch: tag("s3mq.epoch")?.parse().ok()? };
    let first_seq = tag("s3mq.firstSeq")?.parse().ok()?;
    Some(Origin { by, first_seq, rows: tag("s3mq.rows")?.parse().ok()? })
}

/// A data file of ours that is stored and waits to be committed.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    pub path: String,
    pub size: u64,
    pub origin: Origin,
    pub stamps: ProducerStamps,
}

/// The bytes of a commit that adds `files`, all of one producer epoch, whose batches so far `last_batch` counts.
pub(super) fn commit_of_files(
    commit_id: Uuid,
    by: ProducerEpoch,
    last_batch: u64,
    now_us: i64,
    files: &[StoredFile],
) -> Vec<u8> {
    let now_ms = now_us.div_euclid(1_000);
    let mut info = commit_info("WRITE", commit_id, now_ms);
    info["operationParameters"] = json!({ "mode": "Append" });
    info["s3mq.commitSentUs"] = json!(now_us);
    // Here and not with each add: a checkpoint keeps adds and their tags for ever.
    info["s3mq.stamps"] = files.iter().map(|file| file.stamps.to_text()).collect();
    let txn = json!({ "txn": {
        "appId": format!("{}/{}", by.producer, by.epoch),
        "version": last_batch,
        "lastUpdated": now_ms,
    }});
    let mut lines = Vec::with_capacity(1024 * (files.len() + 1));
    push_line(&mut lines, &json!({ "commitInfo": info }));
    push_line(&mut lines, &txn);
    for StoredFile { path, size, origin, .. } in files {
        let add = json!({ "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": now_ms,
            "dataChange": true,
            "stats": format!("{{\"numRecords\":{}}}", origin.rows),
            "tags": {
                "s3mq.producer": origin.by.producer.to_string(),
                "s3mq.epoch": origin.by.epoch,
                "s3mq.firstSeq": origin.first_seq.to_string(),
                "s3mq.rows": origin.rows.to_string(),
            },
        }});
        push_line(&mut lines, &add);
    }
    lines
}

/// The bytes of a commit that ends a stream: a `commitInfo` alone.
pub(super) fn commit_of_end(commit_id: Uuid, end: EndOfStream, now_us: i64) -> Vec<u8> {
    let mut info = commit_info("END OF STREAM", commit_id, now_us.div_euclid(1_000));
    info["s3mq.end"] = json!(end);
    json!({ "commitInfo": info }).to_string().into_bytes()
}

fn commit_info(operation: &str, commit_id: Uuid, now_ms: i64) -> Value {
    json!({
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": ENGINE_INFO,
        "isBlindAppend": true,
        "s3mq.commitId": commit_id,
    })
}

fn push_line(lines: &mut Vec<u8>, action: &Value) {
    if !lines.is_empty() {
        lines.push(b'\n');
    }
    lines.extend_from_slice(action.to_string().as_bytes());
}

#[cfg(test)]
mod tests;
