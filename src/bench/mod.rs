//! The sweep: for each rate a consumer and a producer, as child processes of the same binary, over a clean prefix. Their
//! printed commands can be run by hand; secrets go by environment. What a step found out is written when it ends.

mod arguments;
mod console;
mod deadlines;
mod files;
mod growth;
mod step;
mod verdict;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OutputArgs;
use crate::report::{self, FaultCount, PartialFile, RunInfo, StepReport};
use crate::units::Rate;
use files::Files;
use s3mq_queue::storage::{PrefixLock, StorageError, Store};
use s3mq_queue::{Foreign, Lake, Poll, QueueError};

pub(crate) use arguments::StoreFlags;
pub(crate) use console::Console;
use step::Step;

/// The file that lists the rates of a sweep.
const SUMMARY: &str = "summary.csv";
/// How long a bench that ends early may take to empty its table and give its prefix back, together.
const TIDY_GRACE: Duration = Duration::from_secs(2);

/// What a bench does. Validated.
pub(crate) struct Config {
    /// The rates, in order.
    pub(crate) rates: Vec<Rate>,
    /// Where it writes; the directory exists.
    pub(crate) output: OutputArgs,
    /// How the consumer polls.
    pub(crate) poll: Poll,
    /// Which store, for the children.
    pub(crate) store: StoreFlags,
    /// What holds for all rates, as the result files have it.
    pub(crate) info: RunInfo,
}

/// What ended a bench before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// The store failed, or a table isn't s3mq's.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Results can't be written.
    #[error("cannot write results: {0}")]
    Results(#[from] std::io::Error),
    /// A child failed or could not be started.
    #[error("rate {rate}: the {role} {problem}")]
    Role {
        /// At which rate.
        rate: Rate,
        /// `consumer`, `producer` or `preload`.
        role: &'static str,
        /// What happened to it.
        problem: String,
    },
}

/// A sweep: its configuration, what it works with, and the results so far.
pub(crate) struct Sweep<'a> {
    /// What it does.
    pub(crate) config: &'a Config,
    /// The store, which has passed its preflight.
    pub(crate) store: &'a Store,
    /// Cancelled to interrupt it.
    pub(crate) stop: CancellationToken,
    /// Shows how far it is.
    pub(crate) console: Console,
    /// Gives how often each fault rule of the store has fired so far, always the same rules.
    pub(crate) faults: &'a (dyn Fn() -> Vec<FaultCount> + Sync),
    /// The steps that were finished, even where it fails.
    pub(crate) steps: Vec<StepReport>,
}

impl Sweep<'_> {
    /// Runs it.
    pub(crate) async fn run(&mut self) -> Result<(), BenchError> {
        let holder =
            format!("process {} since {} s Unix time", std::process::id(), s3mq_clock::wall_us() / 1_000_000);
        let prefix = &self.config.output.prefix;
        // Before the lock, which stays there.
        let place = Lake::new(self.store, prefix.clone())?;
        let directories: Vec<_> = self.config.rates.iter().map(ToString::to_string).collect();
        let refused = self.stop.run_until_cancelled(s3mq_queue::refuse_foreign(&place, &directories)).await;
        refused.ok_or(BenchError::Interrupted)??;
        let lock = PrefixLock::acquire(self.store, prefix, &holder).await.map_err(QueueError::from)?;
        let mut grace = TIDY_GRACE;
        let swept = self.rates(&mut grace).await;
        if !grace.is_zero() {
            let _ = tokio::time::timeout(grace, lock.release()).await;
        }
        swept
    }

    async fn rates(&mut self, grace: &mut Duration) -> Result<(), BenchError> {
        let summary = self.config.output.output_dir.join(SUMMARY);
        // What it lists is about to be replaced: from now on it lists what this sweep has finished.
        report::discard(&summary)?;
        for &rate in &self.config.rates {
            let table = Lake::new(self.store, self.config.output.prefix.child(&rate.to_string()))?;
            // What an earlier run left there would be received as if it were this one's.
            if let Some(foreign) = empty(&table, &self.stop).await? {
                return Err(QueueError::Foreign { place: table.describe(), foreign }.into());
            }
            let step = self.rate(rate, &table, grace).await?;
            self.console.step_ended(&step);
            self.steps.push(step);
            let (info, steps) = (&self.config.info, &self.steps);
            PartialFile::write_whole(&summary, &report::summary_csv(info, steps))?;
            if !self.config.output.keep_data {
                match empty(&table, &self.stop).await {
                    Ok(None) => {}
                    Ok(Some(left)) => tracing::warn!("{} was emptied, but for {left}", table.describe()),
                    Err(error) => {
                        tracing::warn!("objects are left below {}", table.describe());
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one rate over its empty table and writes its files.
    async fn rate(
        &mut self,
        rate: Rate,
        table: &Lake,
        grace: &mut Duration,
    ) -> Result<StepReport, BenchError> {
        let config = self.config;
        let files = Files::of(&config.output.output_dir, rate);
        files.discard()?;
        let faults_before = (self.faults)();
        let mut step = Step {
            config,
            rate,
            prefix: config.output.prefix.child(&rate.to_string()),
            files,
            stop: &self.stop,
            console: &mut self.console,
        };
        let stepped = step.run().await;
        let files = step.files;
        let faults = FaultCount::since((self.faults)(), &faults_before);
        let (step, timeline) = match stepped {
            Ok((step, timeline)) => (StepReport { faults, ..step }, timeline),
            Err(error) => {
                self.console.step_failed(rate, &faults);
                if let Err(error) = files.of_consumer(report::demote) {
                    tracing::warn!("a file of a rate that came to nothing looks whole: {error}");
                }
                if !config.output.keep_data {
                    tidy(table, grace).await;
                }
                return Err(error);
            }
        };
        let percentiles = &config.info.run.percentiles.percentiles;
        PartialFile::write_whole(&files.intervals, &report::intervals_csv(percentiles, &timeline))?;
        PartialFile::write_whole(&files.json, &report::step_json(&config.info, &step))?;
        Ok(step)
    }
}

/// Empties the table of a rate that came to nothing, within `grace`, which its time is taken of. The next run of that
/// rate empties what is left.
async fn tidy(table: &Lake, grace: &mut Duration) {
    let started = Instant::now();
    let emptied = tokio::time::timeout(*grace, s3mq_queue::empty_directory(table)).await;
    *grace = grace.saturating_sub(started.elapsed());
    let place = table.describe();
    match emptied {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(foreign))) => tracing::warn!("{place} was emptied, but for {foreign}"),
        Ok(Err(QueueError::Storage(StorageError::Credentials(_)))) => {
            tracing::warn!("objects are left below {place}: they can't be deleted with these credentials");
            // Nor can the lock.
            *grace = Duration::ZERO;
        }
        Ok(Err(error)) => tracing::warn!("objects are left below {place}: {error}"),
        Err(_) => {
            tracing::warn!(
                "objects are left below {place}: the store took longer than {} s",
                TIDY_GRACE.as_secs()
            );
        }
    }
}

/// Empties a table, unless the bench is interrupted. Gives what isn't s3mq's and was left.
async fn empty(table: &Lake, stop: &CancellationToken) -> Result<Option<Foreign>, BenchError> {
    let left = stop.run_until_cancelled(s3mq_queue::empty_directory(table)).await;
    Ok(left.ok_or(BenchError::Interrupted)??)
}
