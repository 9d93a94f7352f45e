//! What can go wrong with a queue, sorted by what the reader should do about it.

use std::ops::RangeInclusive;

use tokio::task::JoinError;

use super::ownership::Foreign;
use crate::storage::{CHECK, StorageError, advice};

/// A failure of the queue; its text is one line.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A request about the log or a data file failed after its retries.
    #[error("{what} failed: {detail}")]
    Request {
        /// What was asked for, such as `GET of version 7`.
        what: String,
        /// What the store said.
        detail: String,
    },
    /// The store has not answered anything for the stall timeout.
    #[error(
        "the store {answer} for {seconds:.0} s: {detail}; {} ({place}), or wait longer with --stall-timeout-seconds",
        advice(.detail).unwrap_or(CHECK)
    )]
    Stalled {
        /// Which store.
        place: String,
        /// What it did instead, such as `has not answered`.
        answer: String,
        /// For how long.
        seconds: f64,
        /// What was asked, and what came of it.
        detail: String,
    },
    /// A commit was refused or could not be brought to an end.
    #[error("the commit of version {version} failed after {attempts} attempts in {seconds:.1} s: {detail}")]
    Commit {
        /// The version it was meant to be.
        version: u64,
        /// PUTs sent.
        attempts: u32,
        /// How long it was tried.
        seconds: f64,
        /// What the store said last.
        detail: String,
    },
    /// Delta Lake could not create or open the table.
    #[error("cannot {action} the table at {place}: {detail}")]
    Table {
        /// `create` or `open`.
        action: &'static str,
        /// Which table.
        place: String,
        /// What delta-rs said.
        detail: String,
    },
    /// The table asks for something that we don't do.
    #[error("cannot {action} {place}: {reason}")]
    Unsupported {
        /// `write to` or `read`.
        action: &'static str,
        /// Which table.
        place: String,
        /// What it asks for.
        reason: String,
    },
    /// The table at this place was created by somebody else, who didn't say that it may be written to.
    #[error(
        "the table at {0} was not created by s3mq; give --append-to-existing to write to it all the same, or another \
         --lake-path"
    )]
    ForeignTable(String),
    /// Objects are where s3mq would write and delete its own that it didn't make.
    #[error(
        "{place} has {foreign}; delete them if they are of no use, or give another --prefix or --lake-path (a producer \
         also goes on with --append-to-existing)"
    )]
    Foreign {
        /// Which prefix.
        place: String,
        /// What there is.
        foreign: Foreign,
    },
    /// Versions are missing in the middle of the log.
    #[error("the log has a gap: {} missing, while {next} exists; some writer or cleanup lost messages", versions(.missing))]
    Gap {
        /// The versions that are not there.
        missing: RangeInclusive<u64>,
        /// The first version after them.
        next: u64,
    },
    /// Versions that were still to be read have been cleaned away.
    #[error("{} gone, the oldest that is left is {oldest}; start at `earliest`, or keep the log longer (delta.logRetentionDuration)", versions(.gone))]
    CleanedAway {
        /// The versions that are no longer there.
        gone: RangeInclusive<u64>,
        /// The first one that is.
        oldest: u64,
    },
    /// The store doesn't give an entry that it lists.
    #[error("{} not delivered: {detail}", versions(.lost))]
    Unreadable {
        /// The version that can't be had, and those after it that are in the log.
        lost: RangeInclusive<u64>,
        /// What was asked for, and what the store said.
        detail: String,
    },
    /// The table went away under a reader or writer, or another took its place.
    #[error(
        "the table at {place} was deleted or made anew: its version {known} is gone or another one, and no later one is there"
    )]
    MadeAnew {
        /// Which table.
        place: String,
        /// A version that it had.
        known: u64,
    },
    /// A producer's versions went away while it ran.
    #[error(
        "{} gone that this producer committed to {place}: the log was deleted or made anew while it ran, and readers don't come to what it sent", versions(.gone)
    )]
    Vanished {
        /// Which table.
        place: String,
        /// Versions of its own, or among its own, that are not there any more.
        gone: RangeInclusive<u64>,
    },
    /// A log entry can't be understood.
    #[error("version {version} of the log can't be read: {detail}")]
    BadEntry {
        /// Which version.
        version: u64,
        /// What is wrong.
        detail: String,
    },
    /// A checkpoint could not be made.
    #[error("{0}")]
    Checkpoint(String),
    /// A batch is larger than one data file may be, or could not be encoded.
    #[error("a batch {0}")]
    Batch(String),
    /// A writer changed existing rows, which a queue can't deliver.
    #[error(
        "version {version} removes rows that may have been delivered; another writer uses this table as more than a queue"
    )]
    RowsRemoved {
        /// Which version.
        version: u64,
    },
    /// A background task ended unexpectedly.
    #[error("the queue's background task ended unexpectedly: {0}")]
    TaskEnded(String),
}

impl From<JoinError> for QueueError {
    fn from(error: JoinError) -> Self {
        Self::TaskEnded(error.to_string())
    }
}

impl QueueError {
    /// Whether the command was pointed at something that isn't s3mq's.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::ForeignTable(_))
    }

    /// Whether committed messages can't be delivered; other failures leave them where they are.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Gap { .. }
                | Self::CleanedAway { .. }
                | Self::Unreadable { .. }
                | Self::MadeAnew { .. }
                | Self::BadEntry { .. }
        )
    }
}

/// What others wrote, for a message: on one line of bounded length.
pub(super) fn shortened(text: &str) -> String {
    const MAX_BYTES: usize = 300;
    let mut escaped = String::new();
    for character in text.chars() {
        if escaped.len() >= MAX_BYTES {
            return escaped + "…";
        }
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

fn versions(range: &RangeInclusive<u64>) -> String {
    if range.start() == range.end() {
        format!("version {} is", range.start())
    } else {
        format!("versions {}-{} are", range.start(), range.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_said_on_one_line_of_bounded_length() {
        assert_eq!(shortened("part-1.parquet: größer"), "part-1.parquet: größer");
        assert_eq!(shortened("a\nb\u{7}"), "a\\nb\\u{7}");
        let long = shortened(&"ü\n".repeat(1 << 20));
        assert!(long.len() < 310 && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn ranges_are_named_in_words() {
        let gap = QueueError::Gap { missing: 3..=3, next: 4 };
        assert!(gap.to_string().contains("version 3 is missing, while 4 exists"), "{gap}");
        let gone = QueueError::CleanedAway { gone: 51..=99, oldest: 100 };
        assert!(
            gone.to_string().contains("versions 51-99 are gone, the oldest that is left is 100"),
            "{gone}"
        );
    }
}
