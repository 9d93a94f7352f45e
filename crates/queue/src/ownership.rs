//! Which objects s3mq may delete, and deleting them: only where s3mq made the directory ([`is_made_by_s3mq`]) and the key
//! has the form of one that it writes there ([`form_of`]); see `docs/decisions/0008`.
//!
//! A directory that is being emptied is marked first, and its marker is deleted last: an emptying can be taken up again.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future, stream};
use object_store::ObjectMeta;
use object_store::path::Path;
use serde_json::{Value, json};
use uuid::Uuid;

use super::entry::{ENGINE_INFO, Entry, Metadata, Protocol};
use super::error::QueueError;
use super::lake::{Lake, is_log_file};
use super::open::open;
use super::table::{Access, is_created_by_s3mq};
use crate::storage::{BENCH_LOCK, CLOCK_PREFIX, PREFLIGHT, one_line};

const MARKER: &str = "_s3mq/marker.json";
/// Foreign objects are counted up to this many; the message says "at least".
const MAX_COUNTED: u64 = 10_000;
/// After so many foreign directories with keys of our form, no more are looked into.
const MAX_FOREIGN_DIRECTORIES: usize = 100;

/// Objects that s3mq doesn't know to be its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The key of the first.
    pub first: String,
    /// How many there are.
    pub count: u64,
    /// Whether there may be more.
    pub is_at_least: bool,
}

impl Foreign {
    fn one(first: String) -> Self {
        Self { first, count: 1, is_at_least: false }
    }

    fn and(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            count: self.count + other.count,
            is_at_least: self.is_at_least || other.is_at_least,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_least = if self.is_at_least { "at least " } else { "" };
        let objects = if self.count == 1 { "object" } else { "objects" };
        write!(f, "{at_least}{} {objects} that s3mq didn't make, the first is `{}`", self.count, self.first)
    }
}

/// Marks the directory of `lake`, which is empty and won't hold a table, as one of ours, before anything else is written
/// there. Fails when the store does.
pub async fn mark_directory(lake: &Lake) -> Result<(), QueueError> {
    let marker = json!({ "createdBy": ENGINE_INFO });
    lake.write_file(MARKER, Bytes::from(marker.to_string())).await
}

/// Checks that everything below the prefix of `lake` was made by s3mq, and that the `directories` in it, which will be
/// emptied, have none of our tables below them. Fails with [`QueueError::Foreign`] where that isn't so.
pub async fn refuse_foreign(lake: &Lake, directories: &[String]) -> Result<(), QueueError> {
    let Survey { mut foreign, by_directory, folders } = survey(lake).await?;
    let is_below =
        |place: &str, other: &str| place.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'));
    for folder in folders {
        let is_used = |directory: &String| *directory == folder || is_below(directory, &folder);
        if !directories.iter().chain(by_directory.keys()).any(is_used) {
            add(&mut foreign, Foreign::one(format!("{}/", lake.key(&folder))));
        }
    }
    let mut foreign_directories = 0;
    for (directory, objects) in by_directory {
        if foreign_directories == MAX_FOREIGN_DIRECTORIES {
            foreign.iter_mut().for_each(|foreign| foreign.is_at_least = true);
            break;
        }
        let is_nested = directories.iter().any(|emptied| is_below(&directory, emptied));
        if is_nested || !is_made_by_s3mq(&lake.below(&directory)?).await? {
            add(&mut foreign, objects);
            foreign_directories += 1;
        }
    }
    refuse(lake, foreign)
}

/// Checks that a table may be written to: that we can, and that s3mq created it or its owner lets us.
pub(super) async fn check_writable(
    lake: &Lake,
    protocol: &Protocol,
    metadata: &Metadata,
    append_to_existing: bool,
) -> Result<(), QueueError> {
    Access::Write.check(lake, Some(protocol), Some(metadata))?;
    // Somebody may have changed the table since: the first `metaData` says who made it.
    if append_to_existing || is_created_by_s3mq(metadata) || is_made_by_s3mq(lake).await? {
        return Ok(());
    }
    Err(QueueError::ForeignTable(lake.describe()))
}

/// Checks that there is nothing of others where a table is about to be created: VACUUM takes every file below a table
/// for one of that table. Data files with names as ours have them are those of a table whose log is gone.
pub(super) async fn refuse_foreign_files(lake: &Lake) -> Result<(), QueueError> {
    refuse(lake, survey(lake).await?.foreign_to_this_directory(true))
}

/// Deletes what s3mq made in the directory of `lake`, and gives what else is there and was left. Fails with
/// [`QueueError::Foreign`] when the directory isn't ours, and then nothing is deleted.
pub async fn empty_directory(lake: &Lake) -> Result<Option<Foreign>, QueueError> {
    let found = survey(lake).await?;
    let is_ours = found.by_directory.contains_key("") && is_made_by_s3mq(lake).await?;
    let foreign = found.foreign_to_this_directory(is_ours);
    if !is_ours {
        return refuse(lake, foreign).map(|()| None);
    }
    mark_directory(lake).await?;
    let place = lake.clone();
    let listing = lake.store().objects().list(Some(lake.prefix().path()));
    let keys = listing.map_ok(|object| object.location).try_filter(move |key| {
        let key = place.relative(key);
        future::ready(form_of(&key) == Form::Ours("") && key != MARKER)
    });
    delete(lake, keys.boxed()).await?;
    delete(lake, stream::iter([Ok(lake.prefix().join(MARKER))]).boxed()).await?;
    Ok(foreign)
}

fn refuse(lake: &Lake, foreign: Option<Foreign>) -> Result<(), QueueError> {
    let place = lake.describe();
    foreign.map_or(Ok(()), |foreign| Err(QueueError::Foreign { place, foreign }))
}

/// Whether s3mq made the table in the directory of `lake`, or marked a directory without one.
async fn is_made_by_s3mq(lake: &Lake) -> Result<bool, QueueError> {
    if let Some(entry) = lake.read_entry(0).await? {
        let metadata = Entry::parse(&entry).ok().and_then(|entry| entry.metadata);
        return Ok(metadata.is_some_and(|metadata| is_created_by_s3mq(&metadata)));
    }
    // Where the log was cleaned, its last checkpoint has the `metaData`.
    match open(lake).await {
        Ok(opened) => return Ok(is_created_by_s3mq(&opened.metadata)),
        Err(QueueError::Table { .. } | QueueError::Gap { .. } | QueueError::BadEntry { .. }) => {}
        Err(error) => return Err(error),
    }
    let marker = lake.read_file(&lake.prefix().join(MARKER)).await?;
    let marker = marker.and_then(|marker| serde_json::from_slice::<Value>(&marker).ok()).unwrap_or_default();
    Ok(marker["createdBy"].as_str().is_some_and(|creator| creator.starts_with("s3mq/")))
}

fn add(found: &mut Option<Foreign>, more: Foreign) {
    *found = found.take().into_iter().chain([more]).reduce(Foreign::and);
}

#[derive(Default)]
struct Survey {
    /// Objects whose keys have no form of ours.
    foreign: Option<Foreign>,
    /// The others, by the directory that would have to be ours. The one that was looked at is the empty string.
    by_directory: BTreeMap<String, Foreign>,
    /// Empty objects that a console or another client makes for a folder, without the slash that their keys end with.
    folders: Vec<String>,
}

impl Survey {
    /// All that isn't ours, where this directory is or isn't, and none below it.
    fn foreign_to_this_directory(mut self, is_ours: bool) -> Option<Foreign> {
        if is_ours {
            self.by_directory.remove("");
        }
        self.foreign.into_iter().chain(self.by_directory.into_values()).reduce(Foreign::and)
    }
}

async fn survey(lake: &Lake) -> Result<Survey, QueueError> {
    let mut survey = Survey::default();
    let mut listing = lake.store().objects().list(Some(lake.prefix().path()));
    while let Some(object) = listing.next().await {
        let ObjectMeta { location: key, size, .. } = match object {
            Ok(object) => object,
            Err(object_store::Error::InvalidPath { source }) => {
                // With a key that no path can be made of, the client gives nothing of its page.
                add(&mut survey.foreign, Foreign { is_at_least: true, ..Foreign::one(one_line(&source)) });
                break;
            }
            Err(error) => return Err(lake.failed(format!("LIST of {}", lake.describe()), &error)),
        };
        let (relative, object) = (lake.relative(&key), Foreign::one(key.to_string()));
        match form_of(&relative) {
            Form::Ours(directory) => {
                let mut objects = survey.by_directory.remove(directory);
                add(&mut objects, object);
                survey.by_directory.extend(objects.map(|objects| (directory.to_owned(), objects)));
            }
            Form::Temporary => {}
            Form::Foreign if size == 0 && !key.as_ref().contains('.') => survey.folders.push(relative),
            Form::Foreign => add(&mut survey.foreign, object),
        }
        if let Some(foreign) = survey.foreign.as_mut().filter(|foreign| foreign.count >= MAX_COUNTED) {
            foreign.is_at_least = true;
            break;
        }
    }
    survey.folders.retain(|folder| !folder.is_empty());
    Ok(survey)
}

/// Deletes the objects with these keys. Some may be gone already.
async fn delete(lake: &Lake, keys: BoxStream<'static, object_store::Result<Path>>) -> Result<(), QueueError> {
    let deleted = lake.store().objects().delete_stream(keys);
    let deleted = deleted.try_for_each(|_| future::ready(Ok(()))).await;
    deleted.map_err(|error| lake.failed(format!("DELETE of objects in {}", lake.describe()), &error))
}

/// What a key's form says of an object.
#[derive(Debug, PartialEq, Eq)]
enum Form<'a> {
    /// It is s3mq's if this directory is.
    Ours(&'a str),
    /// Something that s3mq tries out or holds while it works, of a name that nobody else has.
    Temporary,
    Foreign,
}

/// The form of a key, of which the prefix that is looked at is left out.
fn form_of(key: &str) -> Form<'_> {
    let (directory, name) = key.rsplit_once('/').unwrap_or(("", key));
    let (parent, last) = directory.rsplit_once('/').unwrap_or(("", directory));
    let is_uuid = |text: &str| Uuid::try_parse(text).is_ok_and(|id| id.hyphenated().to_string() == text);
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
    let beside = key.strip_prefix("_s3mq/").map(|name| ("", name)).or_else(|| key.split_once("/_s3mq/"));
    if let Some((directory, name)) = beside {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // The marker, and what the layer benchmark's plain loops write.
        let is_ours = name == "marker.json"
            || name.strip_prefix("index/").is_some_and(is_number)
            || name.strip_prefix("data-").is_some_and(is_number);
        return if is_ours { Form::Ours(directory) } else { Form::Foreign };
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
    fn keys_of_our_form_are_distinguished_from_others() {
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
            "part-3f0e9a528c1e4a579d3c0b7a3f0e9a52.parquet",
            "_delta_log/00000000000000000000.json.bak",
            "part-00000-ID-c000.snappy.parquet",
            "part-ID.parquet.crc",
            "xpart-ID.parquet",
            "_delta_log",
            "_delta_log/notes.txt",
            "_delta_log/0.json",
            "_delta_log/a/00000000000000000000.json",
            "x_delta_log/00000000000000000000.json",
            "_s3mq",
            "_s3mq/notes.txt",
            "_s3mq/index/a",
            "x_s3mq/marker.json",
            ".s3mq-clock-now",
            ".s3mq-preflight/mine",
        ] {
            assert_eq!(form_of(&key.replace("ID", ID)), Form::Foreign, "{key}");
        }
    }
}
