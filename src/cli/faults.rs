//! Faults of the embedded server, for the commands that have one.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use super::given_file;
use crate::report;
use s3mq_server::{FaultCount, Faults, FaultsError};

/// Faults of the embedded server.
#[derive(Clone, Debug, Args)]
pub(super) struct FaultArgs {
    /// Faults that the embedded store injects, as a TOML file of rules: delays, refusals, resets, lost answers, stalls
    /// and more, by request (docs/faults.md)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
}

impl FaultArgs {
    /// The rules of the file; `None` where there is no file.
    pub(super) fn faults(&self) -> Result<Option<Faults>, Failure> {
        self.read(|_| Ok(()))
    }

    /// The rules of the file, all of which can be put in front of another store.
    pub(super) fn before_another_store(&self) -> Result<Option<Faults>, Failure> {
        self.read(Faults::check_for_a_proxy)
    }

    /// The file as a result has it, from what was read of it.
    pub(super) fn described(&self, faults: &Faults) -> report::FaultRules {
        report::FaultRules { file: self.name(), seed: faults.seed(), rules: faults.written().to_vec() }
    }

    /// The file's path as it was given; empty where there is none.
    pub(super) fn name(&self) -> String {
        self.faults.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }

    fn read(&self, check: impl Fn(&Faults) -> Result<(), FaultsError>) -> Result<Option<Faults>, Failure> {
        let Some(path) = &self.faults else {
            return Ok(None);
        };
        let read = |text: &str| Faults::parse(text).and_then(|faults| check(&faults).map(|()| faults));
        given_file::read("--faults", path, read).map(Some)
    }
}

/// How often each rule's turn came so far, as a result has it.
pub(super) fn fired(counts: Vec<FaultCount>) -> Vec<report::FaultCount> {
    let count = |FaultCount { position, rule, matcher, action, matched, fired }| report::FaultCount {
        position,
        rule,
        matcher,
        action: action.to_owned(),
        matched,
        fired,
    };
    counts.into_iter().map(count).collect()
}
