//! See [`crate::fuzz`].

use std::fmt::Debug;

use super::entry::{Entry, StoredFile, commit_of_end, commit_of_files};
use super::table::Access;

/// A log entry, read as the tail reads it.
#[derive(Debug)]
pub struct LogEntry(Entry);

impl LogEntry {
    /// Reads an entry.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Entry::parse(bytes).map(Self)
    }

    /// The paths of the data files that it adds.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.adds.iter().map(|add| add.path.as_str())
    }

    /// What a producer of ours says in its commits.
    pub fn commit(&self) -> impl PartialEq + Debug {
        let Entry { commit_id, commit_sent_us, end, adds, .. } = &self.0;
        (commit_id, commit_sent_us, end.map(|end| (end.by, end.count)), adds)
    }

    /// Whether a table may be read and written to that has the entry's protocol and schema.
    pub fn check(&self) -> [Result<(), String>; 2] {
        [Access::Read, Access::Write].map(|access| {
            self.0.protocol.iter().try_for_each(|protocol| access.check_protocol(protocol))?;
            self.0.metadata.iter().try_for_each(|metadata| access.check_metadata(metadata))
        })
    }

    /// The entry as we would have written it; `None` where it isn't a commit that we make.
    pub fn written_again(&self) -> Option<Vec<u8>> {
        let Entry { commit_id, commit_sent_us, end, adds, .. } = &self.0;
        if let Some(end) = end {
            return (adds.is_empty() && commit_sent_us.is_none())
                .then(|| commit_id.map(|commit_id| commit_of_end(commit_id, *end, 0)))?;
        }
        let by = adds.first()?.origin?.by;
        let files = adds.iter().map(|add| {
            // Our names need no encoding, and our writer does none.
            let is_plain = !add.path.contains('%');
            let origin = add.origin.filter(|origin| origin.by == by && add.rows == Some(origin.rows))?;
            let (path, stamps) = (add.path.clone(), add.stamps.clone()?);
            is_plain.then_some(StoredFile { path, size: add.size, origin, stamps })
        });
        Some(commit_of_files((*commit_id)?, by, 1, (*commit_sent_us)?, &files.collect::<Option<Vec<_>>>()?))
    }
}
