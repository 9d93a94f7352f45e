//! Pages of a sorted listing. A page costs what it shows, not what the bucket holds: a group of keys that the delimiter
//! folds into one common prefix is stepped over by one search.

use std::ops::Bound;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::dto::{CommonPrefix, EncodingType, Object, ObjectStorageClass, Timestamp};
use s3s::{S3Result, s3_error};

use super::blob;
use super::objects::etag;
use super::store::Objects;

/// How many keys a page shows, as in S3.
const MAX_KEYS: usize = 1000;

/// What S3 leaves as it is under `encoding-type=url`.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'*');

#[derive(Debug)]
pub(super) struct Query<'a> {
    pub(super) prefix: &'a str,
    pub(super) delimiter: Option<&'a str>,
    pub(super) after: Position,
    pub(super) max_keys: usize,
}

/// Where a page begins: past everything up to here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    Start,
    Key(String),
    /// Past all keys with this prefix.
    Prefix(String),
}

pub(super) struct Page {
    pub(super) objects: Vec<(String, Arc<blob::Object>)>,
    pub(super) prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<Position>,
}

pub(super) fn page(all: &Objects, query: &Query<'_>) -> Page {
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    let Some(mut from) = begin(query) else { return page };
    let mut last = None;
    loop {
        let mut group_end = None;
        for (key, object) in all.range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded)) {
            let Some(rest) = key.strip_prefix(query.prefix) else { return page };
            if page.objects.len() + page.prefixes.len() == query.max_keys {
                page.next = last;
                return page;
            }
            let group = query.delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
            if let Some(length) = group {
                let prefix = &key[..query.prefix.len() + length];
                page.prefixes.push(prefix.to_owned());
                last = Some(Position::Prefix(prefix.to_owned()));
                group_end = Some(past(prefix));
                break;
            }
            page.objects.push((key.clone(), object.clone()));
            last = Some(Position::Key(key.clone()));
        }
        match group_end {
            Some(Some(end)) => from = Bound::Included(end),
            Some(None) | None => return page,
        }
    }
}

/// Where to begin, or `None` where nothing can follow.
fn begin(query: &Query<'_>) -> Option<Bound<String>> {
    let prefix = query.prefix.to_owned();
    Some(match &query.after {
        Position::Key(key) if *key >= prefix => Bound::Excluded(key.clone()),
        Position::Prefix(group) => Bound::Included(past(group)?.max(prefix)),
        Position::Key(_) | Position::Start => Bound::Included(prefix),
    })
}

/// The least string above all strings with this prefix, if any: its last character replaced by the next.
fn past(prefix: &str) -> Option<String> {
    let mut past = prefix.to_owned();
    while let Some(last) = past.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            past.push(next);
            return Some(past);
        }
    }
    None
}

impl Position {
    /// A continuation token: opaque to clients, and safe in URLs and XML.
    pub(super) fn token(&self) -> String {
        match self {
            Self::Start => "s".to_owned(),
            Self::Key(key) => format!("k{}", utf8_percent_encode(key, NON_ALPHANUMERIC)),
            Self::Prefix(prefix) => format!("p{}", utf8_percent_encode(prefix, NON_ALPHANUMERIC)),
        }
    }

    pub(super) fn from_token(token: &str) -> Option<Self> {
        let (kind, position) = token.split_at_checked(1)?;
        let position = percent_decode_str(position).decode_utf8().ok()?.into_owned();
        match kind {
            "s" => Some(Self::Start),
            "k" => Some(Self::Key(position)),
            "p" => Some(Self::Prefix(position)),
            _ => None,
        }
    }

    /// The last key or prefix shown.
    pub(super) fn name(self) -> String {
        match self {
            Self::Start => String::new(),
            Self::Key(name) | Self::Prefix(name) => name,
        }
    }
}

/// A name as a listing shows it: a client asks for URL encoding since XML cannot hold every key.
pub(super) fn shown(name: String, url: bool) -> String {
    if url { utf8_percent_encode(&name, SHOWN).to_string() } else { name }
}

/// How many keys a page may show.
pub(super) fn max_keys(asked: Option<i32>) -> S3Result<usize> {
    match asked.map(usize::try_from) {
        None => Ok(MAX_KEYS),
        Some(Ok(count)) => Ok(count.min(MAX_KEYS)),
        Some(Err(_)) => Err(s3_error!(InvalidArgument, "max-keys must not be negative.")),
    }
}

pub(super) fn is_url(encoding: &Option<EncodingType>) -> bool {
    encoding.as_ref().is_some_and(|encoding| encoding.as_str() == EncodingType::URL)
}

/// A page as an answer has it.
pub(super) fn rows(page: Page, url: bool) -> (Vec<Object>, Vec<CommonPrefix>) {
    let prefix = |prefix| CommonPrefix { prefix: Some(shown(prefix, url)) };
    let object = |(key, object): (String, Arc<blob::Object>)| Object {
        key: Some(shown(key, url)),
        e_tag: Some(etag(&object.about)),
        size: Some(object.about.size as i64),
        last_modified: Some(Timestamp::from(object.about.modified)),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Object::default()
    };
    (page.objects.into_iter().map(object).collect(), page.prefixes.into_iter().map(prefix).collect())
}
