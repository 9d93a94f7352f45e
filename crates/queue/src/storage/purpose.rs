//! What an attempt is for, by its method and by how the keys of a Delta table look.

use serde::{Deserialize, Serialize};

/// What an attempt on the wire is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// PUT of anything outside `_delta_log`: a data file, or a probe.
    DataPut,
    /// PUT of a log entry.
    CommitPut,
    /// GET of a log entry that was there.
    CommitGetHit,
    /// GET of a log entry that was not (yet) there.
    CommitGetMiss,
    /// GET of anything outside `_delta_log`.
    DataGet,
    /// A listing.
    List,
    /// Reading or writing checkpoints and `_last_checkpoint`.
    Checkpoint,
    /// DELETE, or POST of many deletions.
    Delete,
    /// Everything else: HEAD, bucket operations, multipart uploads.
    Other,
}

impl Purpose {
    pub(super) fn of(method: &str, path: &str, query: Option<&str>, status: Option<u16>) -> Self {
        let query = query.unwrap_or_default();
        let in_log = path.contains("/_delta_log/");
        let is_entry = in_log && path.ends_with(".json") && !path.ends_with(".compacted.json");
        match method {
            "GET" if query.contains("list-type=2") => Self::List,
            "GET" if is_entry && status == Some(404) => Self::CommitGetMiss,
            "GET" if is_entry => Self::CommitGetHit,
            "PUT" if is_entry => Self::CommitPut,
            "GET" | "PUT" if in_log => Self::Checkpoint,
            "GET" => Self::DataGet,
            "PUT" if query.is_empty() || query.starts_with("x-id=") => Self::DataPut,
            "DELETE" => Self::Delete,
            "POST" if query.starts_with("delete") => Self::Delete,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_sorted_by_what_they_are_for() {
        let entry = "/bucket/q/_delta_log/00000000000000000007.json";
        for (method, path, query, status, purpose) in [
            ("PUT", "/bucket/q/part-1.parquet", None, Some(200), Purpose::DataPut),
            ("PUT", entry, None, Some(412), Purpose::CommitPut),
            ("GET", entry, None, Some(200), Purpose::CommitGetHit),
            ("GET", entry, None, Some(404), Purpose::CommitGetMiss),
            ("GET", "/bucket/q/part-1.parquet", None, Some(200), Purpose::DataGet),
            ("GET", "/bucket", Some("list-type=2&prefix=q"), Some(200), Purpose::List),
            ("GET", "/bucket/q/_delta_log/_last_checkpoint", None, Some(404), Purpose::Checkpoint),
            (
                "PUT",
                "/bucket/q/_delta_log/00000000000000000007.checkpoint.parquet",
                None,
                Some(200),
                Purpose::Checkpoint,
            ),
            ("POST", "/bucket", Some("delete"), Some(200), Purpose::Delete),
            ("HEAD", "/bucket", None, Some(200), Purpose::Other),
            ("PUT", "/bucket/q/part", Some("partNumber=1&uploadId=x"), Some(200), Purpose::Other),
        ] {
            assert_eq!(Purpose::of(method, path, query, status), purpose, "{method} {path}");
        }
    }
}
