//! A store for the tests: `s3mq serve`, reached as its own output says.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Finished, Running, S3mq, s3mq};

pub(crate) const ACCESS_KEY: &str = "test-access-key";
pub(crate) const SECRET_KEY: &str = "test-secret-key-that-nobody-may-see";

/// The four variables of the backend `minio`.
pub(crate) const VARIABLES: [&str; 4] =
    ["MINIO_S3_ENDPOINT", "MINIO_S3_BUCKET", "MINIO_S3_ACCESS_KEY", "MINIO_S3_SECRET_ACCESS_KEY"];

/// A running server with an empty bucket, on disk. It ends when it is dropped.
pub(crate) struct Store {
    server: Running,
    exports: Vec<(String, String)>,
}

impl Store {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// A server with these options.
    pub(crate) fn with(options: &str) -> Self {
        Self::of(
            s3mq(&format!("serve --data-dir data {options}"))
                .env("S3MQ_SERVE_ACCESS_KEY", ACCESS_KEY)
                .env("S3MQ_SERVE_SECRET_KEY", SECRET_KEY)
                .spawn(),
        )
    }

    /// A server that was started, once it has said how to reach it.
    pub(crate) fn of(mut server: Running) -> Self {
        let exports = VARIABLES.map(|name| {
            let value = server.wait_for_line(name, |line| {
                let (variable, value) = line.strip_prefix("export ")?.split_once('=')?;
                (variable == name).then(|| value.to_owned())
            });
            (name.to_owned(), value)
        });
        Self { server, exports: exports.into() }
    }

    /// `s3mq` with these arguments and the exported variables.
    pub(crate) fn s3mq(&self, arguments: &str) -> S3mq {
        self.variables().fold(s3mq(arguments), |command, (name, value)| command.env(name, value))
    }

    /// The exported variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.exports.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Where it listens, as a URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.exports[0].1
    }

    /// The keys of all objects, sorted.
    pub(crate) fn keys(&self) -> Vec<String> {
        keys_below(&self.server.path("data"))
    }

    /// Zeroes the last eight bytes of the objects whose key ends like this; how many there were.
    pub(crate) fn spoil(&self, ending: &str) -> usize {
        let objects = fs::read_dir(self.server.path("data/buckets/s3mq")).unwrap().flatten();
        objects
            .filter(|object| key(&object.path()).is_some_and(|key| key.ends_with(ending)))
            .map(|object| {
                let mut bytes = fs::read(object.path()).unwrap();
                let end = bytes.len() - 8;
                bytes[end..].fill(0);
                fs::write(object.path(), bytes).unwrap();
            })
            .count()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Ends it.
    pub(crate) fn finish(self) -> Finished {
        self.server.finish()
    }
}

/// The keys of all objects of an embedded store's directory, sorted, less the locks of prefixes, which stay; none where it
/// isn't there yet.
pub(crate) fn keys_below(data_dir: &Path) -> Vec<String> {
    let objects = fs::read_dir(data_dir.join("buckets/s3mq")).into_iter().flatten().flatten();
    let keys = objects.filter_map(|object| key(&object.path()));
    let mut keys: Vec<_> = keys.filter(|key| !key.ends_with("/.s3mq-bench.lock")).collect();
    keys.sort();
    keys
}

/// The key of the object in this file: a line of JSON has it, then come the bytes. An object that is just
/// being deleted has none.
fn key(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    let header = bytes.split(|&byte| byte == b'\n').next()?;
    Some(serde_json::from_slice::<Value>(header).ok()?["key"].as_str()?.to_owned())
}
