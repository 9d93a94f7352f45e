//! The table: its schema, and whether we may write or read it. Commits go past delta-rs's own checks, so those that
//! matter to a queue are made here: when a table is opened, and for each log entry of another writer that carries
//! `protocol` or `metaData`.

use serde::Deserialize;

use super::entry::{Metadata, Protocol, yes};
use super::error::QueueError;
use super::lake::Lake;

/// The message.
pub(super) const DATA: &str = "data";
/// Who sent it.
pub(super) const PRODUCER: &str = "producer";
/// Its number within the producer's epoch.
pub(super) const SEQ: &str = "seq";
/// Pathway's change column: rows below 0 are retractions.
pub(super) const DIFF: &str = "diff";

/// The property by which a table of ours is known; its value is of the form `s3mq/0.1.0`.
pub(super) const CREATED_BY: &str = "s3mq.createdBy";

/// Reader features that change nothing for somebody who follows the log's JSON entries.
/// `columnMapping` is in use or not by what the properties say.
const READER_FEATURES: &[&str] = &["columnMapping", "timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"];
/// Writer features that an append of ours honours.
const WRITER_FEATURES: &[&str] = &["appendOnly", "invariants"];

/// Whether s3mq created the table, by its `metaData`. Builds that did not write [`CREATED_BY`] gave their tables these
/// columns and properties, and no others.
pub(super) fn is_created_by_s3mq(metadata: &Metadata) -> bool {
    let has = |name: &str, value: &str| metadata.configuration.get(name).is_some_and(|is| is == value);
    let is_of_an_older_build = || {
        let schema = serde_json::from_str::<Schema>(metadata.schema_string.as_deref().unwrap_or_default());
        let columns = schema.map(|schema| schema.fields).unwrap_or_default();
        let columns =
            columns.iter().map(|field| (field.name.as_str(), field.data_type.as_str().unwrap_or("")));
        columns.eq([(DATA, "binary"), (PRODUCER, "integer"), (SEQ, "long")])
            && metadata.configuration.len() == 2
            && has("delta.appendOnly", "true")
            && has("delta.enableExpiredLogCleanup", "false")
    };
    let creator = metadata.configuration.get(CREATED_BY);
    creator.is_some_and(|creator| creator.starts_with("s3mq/")) || is_of_an_older_build()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Access {
    /// Checks what a table, or a log entry of another writer, declares.
    pub(super) fn check(
        self,
        lake: &Lake,
        protocol: Option<&Protocol>,
        metadata: Option<&Metadata>,
    ) -> Result<(), QueueError> {
        let protocol = protocol.map_or(Ok(()), |protocol| self.check_protocol(protocol));
        let verdict =
            protocol.and_then(|()| metadata.map_or(Ok(()), |metadata| self.check_metadata(metadata)));
        let action = if self == Self::Read { "read" } else { "write to" };
        verdict.map_err(|reason| QueueError::Unsupported { action, place: lake.describe(), reason })
    }

    pub(super) fn check_protocol(self, protocol: &Protocol) -> Result<(), String> {
        let features = |list: &Option<Vec<String>>, allowed: &[&str], kind: &str| {
            let missing = list.iter().flatten().find(|name| !allowed.contains(&name.as_str()));
            missing.map_or(Ok(()), |name| {
                Err(format!("the table needs the {kind} feature `{name}`, which s3mq doesn't have"))
            })
        };
        match protocol.min_reader_version {
            ..=1 => {}
            2 => {} // column mapping
            3 => features(&protocol.reader_features, READER_FEATURES, "reader")?,
            other => return Err(format!("the table needs reader version {other}; s3mq has 1 to 3")),
        }
        if self == Self::Write {
            match protocol.min_writer_version {
                ..=2 => {}
                7 => features(&protocol.writer_features, WRITER_FEATURES, "writer")?,
                other => {
                    return Err(format!(
                        "the table needs writer version {other}; s3mq writes 2, and 7 with {WRITER_FEATURES:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_metadata(self, metadata: &Metadata) -> Result<(), String> {
        let mode = metadata.configuration.get("delta.columnMapping.mode").filter(|mode| *mode != "none");
        if let Some(mode) = mode {
            return Err(format!("the table maps its columns (delta.columnMapping.mode={mode})"));
        }
        let schema = metadata.schema_string.as_deref().ok_or("it has no schema yet")?;
        let schema: Schema =
            serde_json::from_str(schema).map_err(|error| format!("its schema can't be read ({error})"))?;
        let type_of = |name: &str| {
            let field = schema.fields.iter().find(|field| field.name == name);
            field.and_then(|field| field.data_type.as_str())
        };
        match type_of(DATA) {
            Some("binary") => {}
            Some("string") if self == Self::Read => {}
            Some(other) => return Err(format!("its column `data` is {other}, not binary")),
            None => return Err("it has no column `data` of binary or string".to_owned()),
        }
        // A column that the table is partitioned by is not in its files.
        let mut partitions = metadata.partition_columns.iter();
        if let Some(column) =
            partitions.find(|column| self == Self::Write || [DATA, DIFF].contains(&column.as_str()))
        {
            return Err(format!("it is partitioned by `{column}`"));
        }
        if self == Self::Read {
            return Ok(());
        }
        for (name, expected) in [(PRODUCER, "integer"), (SEQ, "long")] {
            if type_of(name) != Some(expected) {
                return Err(format!(
                    "it has no column `{name}` of type {expected}; s3mq writes only to tables that it made"
                ));
            }
        }
        if let Some(name) = metadata.configuration.keys().find(|key| key.starts_with("delta.constraints.")) {
            return Err(format!("it has the constraint `{name}`"));
        }
        for field in &schema.fields {
            if field.metadata.contains_key("delta.invariants") {
                return Err(format!("its column `{}` has an invariant", field.name));
            }
            if !field.nullable && ![DATA, PRODUCER, SEQ].contains(&field.name.as_str()) {
                let name = &field.name;
                return Err(format!("its column `{name}` must not be null, and s3mq doesn't write it"));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Schema {
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    data_type: serde_json::Value,
    #[serde(default = "yes")]
    nullable: bool,
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(reader: i32, writer: i32, features: &[&str]) -> Protocol {
        let features = Some(features.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        Protocol {
            min_reader_version: reader,
            min_writer_version: writer,
            reader_features: features.clone(),
            writer_features: features,
        }
    }

    fn metadata(fields: &str) -> Metadata {
        Metadata {
            schema_string: Some(format!(r#"{{"type":"struct","fields":[{fields}]}}"#)),
            partition_columns: vec![],
            configuration: Default::default(),
        }
    }

    fn field(name: &str, data_type: &str) -> String {
        format!(r#"{{"name":"{name}","type":"{data_type}","nullable":true,"metadata":{{}}}}"#)
    }

    fn ours() -> String {
        [field("data", "binary"), field("producer", "integer"), field("seq", "long")].join(",")
    }

    #[test]
    fn our_own_table_may_be_written() {
        assert_eq!(Access::Write.check_protocol(&protocol(1, 2, &[])), Ok(()));
        assert_eq!(Access::Write.check_protocol(&protocol(1, 7, &["appendOnly", "invariants"])), Ok(()));
        assert_eq!(Access::Write.check_metadata(&metadata(&ours())), Ok(()));
        let wider = [ours(), field("extra", "string")].join(",");
        assert_eq!(Access::Write.check_metadata(&metadata(&wider)), Ok(()));
    }

    #[test]
    fn features_we_lack_are_named() {
        for (access, protocol, name) in [
            (Access::Read, protocol(3, 7, &["deletionVectors"]), "deletionVectors"),
            (Access::Read, protocol(3, 7, &["madeUp"]), "madeUp"),
            (Access::Write, protocol(1, 7, &["changeDataFeed"]), "changeDataFeed"),
            (Access::Read, protocol(9, 9, &[]), "reader version 9"),
            (Access::Write, protocol(1, 4, &[]), "writer version 4"),
        ] {
            let reason = access.check_protocol(&protocol).unwrap_err();
            assert!(reason.contains(name), "{reason}");
        }
    }

    #[test]
    fn tables_of_ours_are_distinguished_from_those_of_others() {
        let configured = |fields: &str, properties: &[(&str, &str)]| Metadata {
            configuration: properties
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            ..metadata(fields)
        };
        let older = [("delta.appendOnly", "true"), ("delta.enableExpiredLogCleanup", "false")];
        assert!(is_created_by_s3mq(&configured(&field("other", "long"), &[(CREATED_BY, "s3mq/9.9.9")])));
        assert!(is_created_by_s3mq(&configured(&ours(), &older)));
        let more = [older[0], older[1], ("delta.logRetentionDuration", "interval 1 day")];
        let wider = [ours(), field("extra", "string")].join(",");
        for foreign in [
            metadata(&ours()),
            configured(&ours(), &older[..1]),
            configured(&ours(), &more),
            configured(&wider, &older),
            configured(&field("data", "binary"), &older),
        ] {
            assert!(!is_created_by_s3mq(&foreign), "{foreign:?}");
        }
    }

    #[test]
    fn a_reader_needs_only_data() {
        assert_eq!(Access::Read.check_metadata(&metadata(&field("data", "string"))), Ok(()));
        assert!(Access::Read.check_metadata(&metadata(&field("data", "long"))).is_err());
        assert!(Access::Read.check_metadata(&metadata(&field("other", "binary"))).is_err());
    }

    #[test]
    fn tables_with_rules_of_their_own_may_not_be_written() {
        let mut partitioned = metadata(&ours());
        partitioned.partition_columns = vec!["day".to_owned()];
        let mut constrained = metadata(&ours());
        constrained.configuration.insert("delta.constraints.c".to_owned(), "x > 0".to_owned());
        let mut mapped = metadata(&ours());
        mapped.configuration.insert("delta.columnMapping.mode".to_owned(), "name".to_owned());
        let invariant = metadata(&format!(
            r#"{},{{"name":"x","type":"long","nullable":true,"metadata":{{"delta.invariants":"{{}}"}}}}"#,
            ours()
        ));
        let not_null =
            metadata(&format!(r#"{},{{"name":"x","type":"long","nullable":false,"metadata":{{}}}}"#, ours()));
        let foreign = metadata(&field("data", "binary"));
        for refused in [partitioned, constrained, mapped, invariant, not_null, foreign] {
            assert!(Access::Write.check_metadata(&refused).is_err(), "{refused:?}");
        }
    }
}
