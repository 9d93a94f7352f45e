//! Names of places in a bucket: the lake path of a command line and the prefix it stands for.

use std::fmt;
use std::str::FromStr;

use object_store::path::Path;

/// Names of a table's own directories: Delta's log, and what s3mq keeps beside it.
const RESERVED: [&str; 2] = ["_delta_log", "_s3mq"];

/// A key prefix without slashes at its ends: never empty, no empty or dot segments. What is listed or deleted below it
/// goes through [`Prefix::directory`]: `queue/1000` must not match `queue/10000/part.parquet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Path);

impl Prefix {
    /// The prefix with its closing slash, as a listing or a deletion needs it.
    pub fn directory(&self) -> String {
        format!("{}/", self.0)
    }

    /// The prefix as an object path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A key or prefix below this one. `name` may have several segments.
    pub fn join(&self, name: &str) -> Path {
        name.split('/').fold(self.0.clone(), |path, segment| path.join(segment))
    }

    /// The prefix below this one that has these segments more.
    pub(crate) fn below(&self, segments: &str) -> Result<Self, String> {
        let below = if segments.is_empty() { self.to_string() } else { format!("{self}/{segments}") };
        Path::parse(below).map(Self).map_err(|error| error.to_string())
    }

    /// The prefix below this one that has this one segment more.
    pub fn child(&self, segment: &str) -> Self {
        Self(self.0.clone().join(segment))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let trimmed = trimmed.strip_prefix('/').unwrap_or(trimmed);
        if trimmed.is_empty() {
            return Err("is empty; it must name a place below the bucket".to_owned());
        }
        // Libraries decode a table's path once, twice or not at all, and would each find another key.
        if trimmed.contains('%') {
            return Err(format!(
                "`{text}` has a `%`, which readers of Delta tables take for different things"
            ));
        }
        if let Some(reserved) = trimmed.split('/').find(|segment| RESERVED.contains(segment)) {
            return Err(format!("`{text}` is within a `{reserved}`, where no table can be"));
        }
        match Path::parse(trimmed) {
            // It takes one slash more at either end, and would make the whole bucket of nothing but slashes.
            Ok(path) if path.as_ref() == trimmed => Ok(Self(path)),
            _ => Err(format!(
                "`{text}` has an empty, `.` or `..` segment, or a character that S3 keys should not have"
            )),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `--lake-path`: `s3://BUCKET/PATH`, or a plain `PATH` within the configured bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LakePath {
    /// The bucket, where the path names one.
    pub bucket: Option<String>,
    /// Where the table is within the bucket.
    pub prefix: Prefix,
}

impl FromStr for LakePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self { bucket: None, prefix: text.parse()? });
        };
        let problem = match rest.split_once('/').unwrap_or((rest, "")) {
            _ if !matches!(scheme, "s3" | "s3a") => "is not an S3 location",
            ("", _) => "has no bucket",
            (_, "") => "has no path below the bucket",
            (bucket, path) => return Ok(Self { bucket: Some(bucket.to_owned()), prefix: path.parse()? }),
        };
        Err(format!("`{text}` {problem}; give s3://BUCKET/PATH"))
    }
}

impl fmt::Display for LakePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bucket {
            Some(bucket) => write!(f, "s3://{bucket}/{}", self.prefix),
            None => self.prefix.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lake_paths_name_a_bucket_or_not() {
        let path: LakePath = "s3://bucket/a/b/".parse().unwrap();
        assert_eq!((path.bucket.as_deref(), path.prefix.to_string().as_str()), (Some("bucket"), "a/b"));
        let path: LakePath = "a/b".parse().unwrap();
        assert_eq!((path.bucket, path.prefix.directory().as_str()), (None, "a/b/"));
    }

    #[test]
    fn paths_that_would_reach_elsewhere_are_refused() {
        for text in [
            "",
            "/",
            "//",
            "///",
            "////",
            "//a",
            "a//",
            "s3://bucket////",
            "a//b",
            "a/../b",
            "./a",
            "s3://",
            "s3://bucket",
            "s3://bucket/",
            "s3:///path",
            "gs://b/p",
            "s3://b/../p",
            "a/%41",
            "_delta_log",
            "a/_s3mq/b",
        ] {
            assert!(text.parse::<LakePath>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_does_not_match_its_longer_sibling() {
        let prefix: Prefix = "queue/1000".parse().unwrap();
        assert!(!"queue/10000/x".starts_with(&prefix.directory()));
        assert_eq!(prefix.child("5").to_string(), "queue/1000/5");
        assert_eq!(prefix.join("_delta_log/0.json").as_ref(), "queue/1000/_delta_log/0.json");
    }
}
