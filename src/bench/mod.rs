//! The sweep: for each rate a consumer and a producer, as child processes of the same binary, over a
//! clean prefix.
//!
//! The children get ordinary documented flags; the command that is printed can be run by hand. Secrets
//! go by environment only. What a step found out is written when the step ends, so that a later failure
//! loses nothing. Whatever happens to the bench, no child is left: they are killed when a child is
//! dropped, and they end by themselves when their standard input closes.

mod files;
mod growth;
mod patience;
mod preload;
mod step;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::exit::Exit;
use crate::measure::Percentiles;
use crate::report::{self, FaultCount, Outcome, PartialFile, RunInfo, StepReport};
use crate::stop::Stop;
use crate::units::{Rate, Seconds};
use files::Files;
use s3mq_queue::storage::{Prefix, PrefixLock, StorageError, Store};
use s3mq_queue::{Foreign, Lake, QueueError};

pub use step::ChildFlags;

/// The file that lists the rates of a sweep.
const SUMMARY: &str = "summary.csv";
/// How long a bench that ends early may take to empty its table and give its prefix back, together: a store that
/// has died must not keep it.
const TIDY_GRACE: Duration = Duration::from_secs(2);

/// What a bench does. Validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// The rates, in order.
    pub rates: Vec<Rate>,
    /// How long each streams.
    pub seconds: Seconds,
    /// Each rate's table is at this prefix and the rate.
    pub prefix: Prefix,
    /// Leave the tables there.
    pub keep_data: bool,
    /// Where results go; exists.
    pub output_dir: PathBuf,
    /// Write each message's times beside each rate's results.
    pub raw_output: bool,
    /// How long a consumer may take to catch up once its producer is through.
    pub drain_timeout: Duration,
    /// Longest that one request is retried while the store answers others.
    pub retry_timeout: Duration,
    /// Longest that a role goes on without any answer of the store.
    pub stall_timeout: Duration,
    /// What was due within this is in no figure.
    pub warmup_seconds: f64,
    /// Producers' commit interval.
    pub commit_interval: Duration,
    /// Versions that each rate's table is given before its roles start.
    pub preload_versions: u64,
    /// Versions from one checkpoint to the next; 0 is never.
    pub checkpoint_interval: u64,
    /// Length of the timeline's intervals.
    pub interval: Seconds,
    /// Percentiles in the extra files.
    pub percentiles: Percentiles,
    /// The consumer's longest pause between two questions, in seconds.
    pub idle_pause_seconds: f64,
    /// Flags that both roles get as they are.
    pub flags: ChildFlags,
    /// What holds for all rates, for the result files.
    pub info: RunInfo,
}

/// What a bench tells while it works.
pub trait Console {
    /// A rate's table is being given this many versions, by this command.
    fn preload_started(&mut self, rate: Rate, versions: u64, command: &str);
    /// How many it has.
    fn preload_progress(&mut self, versions: u64);
    /// It has them: its latest version, how many checkpoints were made, how long it took.
    fn preload_ended(&mut self, last_version: u64, checkpoints: u64, seconds: f64);
    /// A rate begins; `commands` are what is run, the consumer's first.
    fn step_started(&mut self, rate: Rate, messages: u64, commands: &[String]);
    /// How far it is.
    fn step_progress(&mut self, sent: u64, received: u64);
    /// It is through.
    fn step_ended(&mut self, step: &StepReport);
    /// It came to nothing, under these faults.
    fn step_failed(&mut self, rate: Rate, faults: &[FaultCount]);
}

/// What ended a bench before its end.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A table can't be emptied: the store failed, or it isn't s3mq's.
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

/// Runs the sweep on `store`, which has passed its preflight. `faults` tells how often each rule of the store's
/// faults has fired so far, always of the same rules. The steps that were finished are in
/// `steps` even when it fails.
///
/// # Errors
/// What ended it.
pub async fn run(
    config: &Config,
    store: &Store,
    mut stop: Stop,
    console: &mut impl Console,
    faults: &(dyn Fn() -> Vec<FaultCount> + Sync),
    steps: &mut Vec<StepReport>,
) -> Result<Exit, BenchError> {
    let holder =
        format!("process {} since {} s Unix time", std::process::id(), s3mq_clock::wall_us() / 1_000_000);
    let lock = PrefixLock::acquire(store, &config.prefix, &holder).await?;
    let mut grace = TIDY_GRACE;
    let place = Lake::new(store, config.prefix.clone())?;
    let is_ours = tokio::select! {
        is_ours = s3mq_queue::refuse_foreign(&place) => is_ours.map_err(BenchError::from),
        () = stop.wait() => Err(BenchError::Interrupted),
    };
    let swept = match is_ours {
        Ok(()) => sweep(config, store, &mut stop, console, faults, steps, &mut grace).await,
        Err(error) => Err(error),
    };
    if !grace.is_zero() {
        let _ = tokio::time::timeout(grace, lock.release()).await;
    }
    swept?;
    Ok(steps.iter().fold(Exit::Ok, |exit, step| match step.verdict.outcome {
        Outcome::Lossy => exit.or_worse(Exit::Lossy),
        Outcome::Sustained | Outcome::Degrading | Outcome::Collapsed => exit,
    }))
}

async fn sweep(
    config: &Config,
    store: &Store,
    stop: &mut Stop,
    console: &mut impl Console,
    faults: &(dyn Fn() -> Vec<FaultCount> + Sync),
    steps: &mut Vec<StepReport>,
    grace: &mut Duration,
) -> Result<(), BenchError> {
    let summary = config.output_dir.join(SUMMARY);
    // What it lists is about to be replaced: from now on it lists what this sweep has finished.
    report::discard(&summary)?;
    for &rate in &config.rates {
        let prefix = config.prefix.child(&rate.to_string());
        let table = Lake::new(store, prefix.clone())?;
        // What an earlier run left there would be received as if it were this one's.
        if let Some(foreign) = empty(&table, stop).await? {
            return Err(QueueError::Foreign { place: table.describe(), foreign }.into());
        }
        let files = Files::of(config, rate);
        files.discard()?;
        let before = faults();
        let stepped = step::run(config, rate, &prefix, &files, stop, console, faults).await;
        if stepped.is_err() {
            console.step_failed(rate, &FaultCount::since(faults(), &before));
            if let Err(error) = files.demote() {
                tracing::warn!("a file of a rate that came to nothing looks whole: {error}");
            }
            if !config.keep_data {
                tidy(&table, grace).await;
            }
        }
        let (step, timeline) = stepped?;
        PartialFile::write_whole(&files.intervals, &report::intervals_csv(&config.percentiles, &timeline))?;
        PartialFile::write_whole(&files.json, &report::step_json(&config.info, &step))?;
        console.step_ended(&step);
        steps.push(step);
        PartialFile::write_whole(&summary, &report::summary_csv(&config.info, &config.percentiles, steps))?;
        if !config.keep_data {
            if let Some(left) = empty(&table, stop).await? {
                tracing::warn!("{} was emptied, but for {left}", table.describe());
            }
        }
    }
    Ok(())
}

/// Empties the table of a rate that came to nothing, if that is quickly done: nobody waits for long for a bench
/// that has ended. What is left is emptied by the next run of that rate. Takes its time of `grace`.
async fn tidy(table: &Lake, grace: &mut Duration) {
    let started = Instant::now();
    let emptied = tokio::time::timeout(*grace, s3mq_queue::empty(table)).await;
    *grace = grace.saturating_sub(started.elapsed());
    let place = table.describe();
    match emptied {
        Ok(Ok(_)) => {}
        Ok(Err(QueueError::Storage(error))) if error.is_of_credentials() => {
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
async fn empty(table: &Lake, stop: &mut Stop) -> Result<Option<Foreign>, BenchError> {
    tokio::select! {
        left = s3mq_queue::empty(table) => Ok(left?),
        () = stop.wait() => Err(BenchError::Interrupted),
    }
}
