//! Log entries, with the stamps in them.

use s3mq::fuzz::LogEntry;
use serde_json::Value;

use super::is_one_line;

/// An entry is refused on one line, or the paths in it are decoded once; a commit as ours are, written as we write
/// it, reads as the same.
pub fn check(bytes: &[u8]) {
    let entry = match LogEntry::parse(bytes) {
        Ok(entry) => entry,
        Err(error) => return assert!(is_one_line(&error), "{error}"),
    };
    if let Some(expected) = paths(bytes) {
        assert!(entry.paths().eq(expected.iter().map(String::as_str)), "{entry:?} has not {expected:?}");
    }
    for refused in entry.check().iter().filter_map(|verdict| verdict.as_ref().err()) {
        assert!(!refused.is_empty());
    }
    if let Some(bytes) = entry.written_again() {
        let again = LogEntry::parse(&bytes).unwrap_or_else(|error| panic!("{error} in ours: {bytes:?}"));
        assert_eq!(again.commit(), entry.commit());
    }
}

/// The paths that an entry adds, by way of whole JSON values; `None` where those are not what is usual.
fn paths(bytes: &[u8]) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let line: Value = serde_json::from_slice(line).ok()?;
        match line.as_object()?.get("add") {
            None | Some(Value::Null) => {}
            Some(add) if add.as_object()?.get("dataChange") == Some(&Value::Bool(false)) => {}
            Some(add) => paths.push(decoded(add["path"].as_str()?)?),
        }
    }
    Some(paths)
}

/// `%` and two hexadecimal digits are a byte, everything else is itself.
fn decoded(path: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let byte = after.get(..2).and_then(|digits| {
            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        });
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
