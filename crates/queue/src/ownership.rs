//! Which objects s3mq may delete, and deleting them.
//!
//! An object is deleted only where both hold:
//!
//! - **s3mq made the directory.** The first `metaData` of the table in it says so ([`CREATED_BY`]; builds that didn't
//!   write it are recognised by the columns and properties of their tables), or its [marker](mark) was written before
//!   anything else.
//! - **The key has the form of one that s3mq writes there.** A file that somebody put beside a table of ours stays.
//!
//! What shows that a directory is ours is deleted last, so that emptying it can be interrupted at any moment and
//! taken up again.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future, stream};
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::entry::{Entry, Metadata, Protocol};
use super::error::QueueError;
use super::lake::{Lake, is_log_file};
use super::open::open;
use super::patience::until_answered;
use super::table::{Access, is_created_by_s3mq};
use crate::storage::{BENCH_LOCK, CLOCK_PREFIX, PREFLIGHT, one_line};

/// The value of the table property [`CREATED_BY`], and of the marker's field.
pub(super) const VERSION: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));
/// The table property by which a table of ours is known.
pub(super) const CREATED_BY: &str = "s3mq.createdBy";
/// The marker's key within its directory.
const MARKER: &str = "_s3mq/marker.json";
/// Version 0, whose `metaData` is the table's first.
const FIRST_ENTRY: &str = "_delta_log/00000000000000000000.json";
/// What shows that a directory is ours.
const EVIDENCE: [&str; 2] = [MARKER, FIRST_ENTRY];
/// So many foreign objects are counted; the rest of a bucket need not be listed to say that it isn't ours.
const MAX_COUNTED: u64 = 10_000;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marker {
    created_by: String,
}

/// Objects that s3mq didn't make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The key of the first.
    pub first: String,
    /// How many there are.
    pub count: u64,
    /// Whether there may be more.
    pub is_at_least: bool,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_at_least { "at least " } else { "" };
        let objects = if self.count == 1 { "object" } else { "objects" };
        write!(f, "{at_least}{} {objects} that s3mq didn't make, the first is `{}`", self.count, self.first)
    }
}

/// Writes the marker by which the directory of `lake` is one of ours. For a directory that is empty and won't hold a
/// table of ours; before anything else is written there.
///
/// # Errors
/// When the store fails.
pub async fn mark(lake: &Lake) -> Result<(), QueueError> {
    let marker = serde_json::json!(Marker { created_by: VERSION.to_owned() });
    lake.write_file(MARKER, Bytes::from(marker.to_string())).await
}

/// Sees that everything below the prefix of `lake` is s3mq's, in whatever directories below it.
///
/// # Errors
/// [`QueueError::Foreign`] when something isn't, or what the store said.
pub async fn refuse_foreign(lake: &Lake) -> Result<(), QueueError> {
    let Survey { mut foreign, by_directory, .. } = survey(lake).await?;
    for (directory, objects) in by_directory {
        if !is_ours(&lake.below(&directory)?).await? {
            foreign.merge(objects);
        }
    }
    refuse(lake, foreign.found())
}

/// Sees that a table may be written to: that we can, and that s3mq created it or its owner lets us.
///
/// # Errors
/// [`QueueError::Unsupported`] names what we don't do; [`QueueError::ForeignTable`].
pub(super) async fn check_writable(
    lake: &Lake,
    protocol: &Protocol,
    metadata: &Metadata,
    append_to_existing: bool,
) -> Result<(), QueueError> {
    Access::Write.check(lake, Some(protocol), Some(metadata))?;
    // Somebody may have changed the table since: then the first `metaData` tells.
    if append_to_existing || is_created_by_s3mq(metadata) || is_ours(lake).await? {
        return Ok(());
    }
    Err(QueueError::ForeignTable { place: lake.describe() })
}

/// Sees that nothing but objects of ours is where a table is about to be created. VACUUM takes every file below a
/// table for one of that table.
pub(super) async fn refuse_foreign_files(lake: &Lake) -> Result<(), QueueError> {
    refuse(lake, survey(lake).await?.but_for_this_directory().found())
}

/// Deletes what s3mq made in the directory of `lake`. Gives what else is there, and was left.
///
/// # Errors
/// [`QueueError::Foreign`] when the directory isn't ours, and then nothing is deleted; or what the store said.
pub async fn empty(lake: &Lake) -> Result<Option<Foreign>, QueueError> {
    let found = survey(lake).await?;
    if !found.by_directory.contains_key("") || !is_ours(lake).await? {
        return refuse(lake, found.all().found()).map(|()| None);
    }
    let objects = lake.store().objects();
    delete(lake, || {
        let (place, listing) = (lake.clone(), objects.list(Some(lake.prefix().path())));
        let keys = listing.map_ok(|object| object.location).try_filter(move |key| {
            let key = place.relative(key);
            let is_evidence = EVIDENCE.contains(&&*key);
            future::ready(form_of(&key) == Form::Ours("") && !is_evidence)
        });
        keys.boxed()
    })
    .await?;
    // Only what was there: in a versioned bucket, deleting anything else leaves a delete marker behind.
    let evidence: Vec<_> = found.evidence.iter().map(|key| lake.prefix().join(key)).collect();
    delete(lake, || stream::iter(evidence.clone()).map(Ok).boxed()).await?;
    Ok(found.but_for_this_directory().found())
}

fn refuse(lake: &Lake, foreign: Option<Foreign>) -> Result<(), QueueError> {
    let place = lake.describe();
    foreign.map_or(Ok(()), |foreign| Err(QueueError::Foreign { place, foreign }))
}

/// Whether s3mq made the table in the directory of `lake`, or marked the directory.
async fn is_ours(lake: &Lake) -> Result<bool, QueueError> {
    if let Some(entry) = lake.read_entry(0).await? {
        let metadata = Entry::parse(&entry).ok().and_then(|entry| entry.metadata);
        return Ok(metadata.is_some_and(|metadata| is_created_by_s3mq(&metadata)));
    }
    if let Some(marker) = lake.read_file(&lake.prefix().join(MARKER)).await? {
        let marker = serde_json::from_slice::<Marker>(&marker);
        return Ok(marker.is_ok_and(|marker| marker.created_by.starts_with("s3mq/")));
    }
    // A log that was cleaned: its last checkpoint has the `metaData`.
    match open(lake).await {
        Ok(opened) => Ok(is_created_by_s3mq(&opened.metadata)),
        Err(QueueError::Table { .. } | QueueError::Gap { .. } | QueueError::BadEntry { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Some objects: how many, and the first by its key.
#[derive(Default)]
struct Objects {
    first: Option<String>,
    count: u64,
    is_at_least: bool,
}

impl Objects {
    fn add(&mut self, key: String) {
        self.merge(Self { first: Some(key), count: 1, is_at_least: false });
    }

    fn merge(&mut self, other: Self) {
        let first = self.first.take();
        self.first = first.into_iter().chain(other.first).min();
        self.count += other.count;
        self.is_at_least |= other.is_at_least;
    }

    fn found(self) -> Option<Foreign> {
        let Self { first, count, is_at_least } = self;
        first.map(|first| Foreign { first, count, is_at_least })
    }
}

/// What is below a prefix.
#[derive(Default)]
struct Survey {
    /// Objects whose keys have no form of ours.
    foreign: Objects,
    /// The others, by the directory that would have to be ours. The one that was looked at is the empty string.
    by_directory: BTreeMap<String, Objects>,
    /// What is there to show that the directory that was looked at is ours.
    evidence: Vec<&'static str>,
}

impl Survey {
    fn all(self) -> Objects {
        self.by_directory.into_values().fold(self.foreign, |mut all, objects| {
            all.merge(objects);
            all
        })
    }

    fn but_for_this_directory(mut self) -> Objects {
        self.by_directory.remove("");
        self.all()
    }
}

async fn survey(lake: &Lake) -> Result<Survey, QueueError> {
    let what = || format!("LIST of {}", lake.describe());
    until_answered(lake.store(), what, || async {
        let mut survey = Survey::default();
        let mut listing = lake.store().objects().list(Some(lake.prefix().path()));
        while let Some(object) = listing.next().await {
            let key = match object {
                Ok(object) => object.location,
                Err(object_store::Error::InvalidPath { source }) => {
                    // With a key that no path can be made of, the client gives nothing of its page.
                    let first = Some(one_line(&source));
                    survey.foreign.merge(Objects { first, count: 1, is_at_least: true });
                    break;
                }
                Err(error) => return Err(lake.trouble(what(), &error)),
            };
            let relative = lake.relative(&key);
            survey.evidence.extend(EVIDENCE.into_iter().find(|evidence| relative == *evidence));
            match form_of(&relative) {
                Form::Ours(directory) => {
                    survey.by_directory.entry(directory.to_owned()).or_default().add(key.to_string());
                }
                Form::Temporary => {}
                Form::Foreign => survey.foreign.add(key.to_string()),
            }
            if survey.foreign.count >= MAX_COUNTED {
                survey.foreign.is_at_least = true;
                break;
            }
        }
        Ok(survey)
    })
    .await
}

/// Deletes the objects with these keys. That one isn't there is fine.
async fn delete(
    lake: &Lake,
    keys: impl Fn() -> BoxStream<'static, object_store::Result<Path>>,
) -> Result<(), QueueError> {
    let what = || format!("DELETE of objects in {}", lake.describe());
    until_answered(lake.store(), what, || {
        let deleted = lake.store().objects().delete_stream(keys());
        let deleted = deleted.map_err(|error| lake.trouble(what(), &error));
        deleted.try_for_each(|_| future::ready(Ok(())))
    })
    .await
}

/// What a key's form says of an object.
#[derive(Debug, PartialEq, Eq)]
enum Form<'a> {
    /// It is s3mq's if this directory is.
    Ours(&'a str),
    /// Something that s3mq tries out or holds while it works, of a name that nobody else has.
    Temporary,
    /// s3mq writes no such keys.
    Foreign,
}

/// The form of a key, of which the prefix that is looked at is left out.
fn form_of(key: &str) -> Form<'_> {
    let (directory, name) = key.rsplit_once('/').unwrap_or(("", key));
    let (parent, last) = directory.rsplit_once('/').unwrap_or(("", directory));
    let is_uuid = |text: &str| Uuid::try_parse(text).is_ok();
    if name == BENCH_LOCK
        || name.strip_prefix(CLOCK_PREFIX).is_some_and(is_uuid)
        || (last == PREFLIGHT && is_uuid(name))
        || (parent.rsplit('/').next() == Some(PREFLIGHT) && is_uuid(last))
    {
        return Form::Temporary;
    }
    if last == "_delta_log" && is_log_file(name) {
        return Form::Ours(parent);
    }
    if let Some(ours) = key.strip_prefix("_s3mq/").map(|_| "").or_else(|| Some(key.split_once("/_s3mq/")?.0))
    {
        return Form::Ours(ours);
    }
    match name.strip_prefix("part-").and_then(|name| name.strip_suffix(".parquet")) {
        Some(id) if is_uuid(id) => Form::Ours(directory),
        _ => Form::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f0e9a52-8c1e-4a57-9d3c-0b7a3f0e9a52";

    #[test]
    fn keys_of_our_form_are_told_from_others() {
        for (key, directory) in [
            ("part-ID.parquet", ""),
            ("a/b/part-ID.parquet", "a/b"),
            ("_delta_log/00000000000000000000.json", ""),
            ("a/_delta_log/00000000000000000010.checkpoint.parquet", "a"),
            ("_delta_log/_last_checkpoint", ""),
            ("_s3mq/marker.json", ""),
            ("a/b/_s3mq/index/00000000000000000000", "a/b"),
        ] {
            assert_eq!(form_of(&key.replace("ID", ID)), Form::Ours(directory), "{key}");
        }
        for key in [".s3mq-bench.lock", ".s3mq-clock-ID", ".s3mq-preflight/ID", "a/.s3mq-preflight/ID/put-3"]
        {
            assert_eq!(form_of(&key.replace("ID", ID)), Form::Temporary, "{key}");
        }
        for key in [
            "",
            "report.txt",
            "part-1.parquet",
            "part-00000-ID-c000.snappy.parquet",
            "part-ID.parquet.crc",
            "xpart-ID.parquet",
            "_delta_log",
            "_delta_log/notes.txt",
            "_delta_log/0.json",
            "_delta_log/a/00000000000000000000.json",
            "x_delta_log/00000000000000000000.json",
            "_s3mq",
            "x_s3mq/marker.json",
            ".s3mq-clock-now",
            ".s3mq-preflight/mine",
        ] {
            assert_eq!(form_of(&key.replace("ID", ID)), Form::Foreign, "{key}");
        }
    }
}
