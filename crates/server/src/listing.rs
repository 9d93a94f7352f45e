//! Pages of a sorted listing: prefix, delimiter, where to begin, how many.
//!
//! A page costs what it shows, not what the bucket holds: a group of keys that the delimiter folds
//! into one common prefix is stepped over by one search, however many keys it has.

use std::ops::Bound;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::blob::Object;
use super::store::Objects;

/// The most a page shows, as in S3.
pub(super) const MAX_KEYS: usize = 1000;

/// What S3 leaves as it is under `encoding-type=url`.
const SHOWN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'*');

/// What to list.
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

/// One page.
pub(super) struct Page {
    pub(super) objects: Vec<(String, Arc<Object>)>,
    pub(super) prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<Position>,
}

/// Lists a page.
pub(super) fn page(all: &Objects, query: &Query<'_>) -> Page {
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    let Some(mut from) = begin(query) else { return page };
    let mut last = None;
    loop {
        let mut group_end = None;
        for (key, object) in all.range::<str, _>((as_str(&from), Bound::Unbounded)) {
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

fn as_str(bound: &Bound<String>) -> Bound<&str> {
    bound.as_ref().map(String::as_str)
}

/// The least string above all strings with this prefix: its last character replaced by the next
/// one (the order of UTF-8's bytes is that of the characters). `None` where there is none.
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

    /// Reads a token.
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
