//! The result files of one rate, whole or partial.

use std::path::{Path, PathBuf};

use crate::report;
use crate::units::Rate;

/// The result files of one rate.
pub(super) struct Files {
    /// The consumer's, which grow with the run.
    pub(super) rows: PathBuf,
    pub(super) hlog: PathBuf,
    pub(super) raw: PathBuf,
    /// Those that are written when it is over.
    pub(super) intervals: PathBuf,
    pub(super) json: PathBuf,
}

impl Files {
    pub(super) fn of(directory: &Path, rate: Rate) -> Self {
        let file = |ending: &str| directory.join(format!("{rate}.{ending}"));
        Self {
            rows: file("csv"),
            hlog: file("hlog"),
            raw: file("raw.csv"),
            intervals: file("intervals.csv"),
            json: file("json"),
        }
    }

    /// Removes what an earlier sweep left of this rate: the files of one rate are of one run.
    pub(super) fn discard(&self) -> std::io::Result<()> {
        [&self.rows, &self.hlog, &self.raw, &self.intervals, &self.json]
            .into_iter()
            .try_for_each(|file| report::discard(file))
    }

    /// Marks as partial what the consumer finished of a rate that came to nothing all the same.
    pub(super) fn demote(&self) -> std::io::Result<()> {
        [&self.rows, &self.hlog, &self.raw].into_iter().try_for_each(|file| report::demote(file))
    }

    /// Gives what the consumer left as partial its name.
    pub(super) fn promote(&self) -> std::io::Result<()> {
        [&self.rows, &self.hlog, &self.raw].into_iter().try_for_each(|file| report::promote(file))
    }
}
