//! The result files of one rate, whole or partial.

use std::io;
use std::path::{Path, PathBuf};

use crate::report;
use crate::units::Rate;

/// The result files of one rate.
pub(super) struct Files {
    pub(super) rows: PathBuf,
    pub(super) hlog: PathBuf,
    pub(super) raw: PathBuf,
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
    pub(super) fn discard(&self) -> io::Result<()> {
        self.of_consumer(report::discard)?;
        [&self.intervals, &self.json].into_iter().try_for_each(|file| report::discard(file))
    }

    /// Does this to each file that the consumer writes.
    pub(super) fn of_consumer(&self, act: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        [&self.rows, &self.hlog, &self.raw].into_iter().try_for_each(|file| act(file))
    }
}
