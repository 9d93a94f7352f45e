//! `s3mq bench`.

mod children;
mod embedded;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use rustix::process::{Resource, getrlimit};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::VERSION;
use super::failure::Failure;
use super::faults::{FaultArgs, fired};
use super::given_file;
use super::role::interrupted;
use super::signals;
use super::storage::{BackendArg, StorageArgs, preflight};
use super::store_model::{ModelArgs, described};
use crate::bench::{Config, Console, Sweep};
use crate::config::{MessageArgs, OutputArgs, PollArgs, RunArgs, value_name};
use crate::console::{say, say_faults};
use crate::exit::Exit;
use crate::machine::Machine;
use crate::report::{
    Deadlines, Outcome, Prices, RunInfo, StepReport, cost_table, lock_directory, log_age_table,
    prepare_directory, table,
};
use crate::units::{Rate, Seconds, grouped};
use embedded::Injected;
use s3mq_queue::storage::{self, Store};
use s3mq_queue::{Poll, deltalake_version};
use s3mq_server::Server;

/// Sweep message rates through a table and report the latency percentiles of each
///
/// For each rate: empties its table, starts a consumer and a producer, streams, drains, writes
/// {rate}.csv and {rate}.json, cleans up. Then prints a table and writes summary.csv.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The one rate, in messages a second, instead of a range
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["range_start", "range_end", "range_step"])]
    rate: Option<Rate>,

    /// First rate, in messages a second, whole or fractional
    #[arg(long, value_name = "PER_SECOND", required_unless_present = "rate")]
    range_start: Option<Rate>,

    /// Last rate, included
    #[arg(long, value_name = "PER_SECOND", required_unless_present = "rate")]
    range_end: Option<Rate>,

    /// From one rate to the next
    #[arg(long, value_name = "PER_SECOND", required_unless_present = "rate")]
    range_step: Option<Rate>,

    #[command(flatten)]
    run: RunArgs,

    /// How long a consumer may take to catch up once its producer is through, in seconds; a rate that
    /// takes longer has collapsed. Time in which the store doesn't answer isn't counted
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    drain_timeout_seconds: Seconds,

    #[command(flatten)]
    output: OutputArgs,

    /// Prices of the store, as a TOML file: name, as_of, put_list_per_million, get_per_million,
    /// storage_gb_month, in US dollars [default: S3 Standard in us-east-1]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Keep the embedded store's objects in files below this directory [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    faults: FaultArgs,

    /// Print the children's commands
    #[arg(long)]
    verbose: bool,

    /// Print no progress
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    message: MessageArgs,

    #[command(flatten)]
    poll: PollArgs,

    #[command(flatten)]
    storage: StorageArgs,
}

/// A sweep of more rates was hardly meant.
const MAX_RATES: usize = 10_000;

pub(super) async fn run(mut args: Args) -> Result<Exit, Failure> {
    let rates = args.rates()?;
    args.run = args.run.validated().map_err(Failure::usage)?;
    let poll = args.poll.policy(&args.run.commit).map_err(Failure::usage)?;
    args.message.size().map_err(Failure::usage)?;
    let prices = args.prices()?;
    let asked = args.injected()?;
    let remote = args.other_store(&rates)?;
    prepare_directory(&args.output.output_dir)
        .map_err(|error| Failure::usage(format!("cannot write results to --output-dir: {error}")))?;
    let _results_lock = lock_directory(&args.output.output_dir)
        .map_err(|error| Failure::runtime(format!("cannot use --output-dir: {error}")))?;

    enough_files()?;
    let stop = signals::watch(false)?;
    let mut info = args.info(&asked, poll, prices);
    let (store, server) = match remote {
        Some(store) => (store, None),
        None => {
            let server = args.embedded_server(asked).await?;
            (args.embedded_store(&server)?, Some(server))
        }
    };
    let injected = info.injected();
    let described: Vec<_> = std::iter::once(store.describe()).chain(injected.iter().cloned()).collect();
    let (backend, described) = (value_name(&args.storage.backend()), described.join(", "));
    say(&format!("s3mq {VERSION}, {backend} store: {described}"));
    info.store = format!("{backend}, {described}");
    info.unsigned_payload = store.unsigned_payload();
    let config = Config { rates, output: args.output.clone(), poll, store: args.store_flags(&store), info };

    let faults = || fired(server.as_ref().map(Server::fault_counts).unwrap_or_default());
    let connected = stop.run_until_cancelled(args.connect(store)).await.ok_or_else(interrupted)?;
    let connected = connected.inspect_err(|_| say_faults("before the first rate: ", &faults()))?;
    let console = Console::new(args.quiet, args.verbose);
    let mut sweep =
        Sweep { config: &config, store: &connected, stop, console, faults: &faults, steps: Vec::new() };
    let swept = sweep.run().await;
    let Sweep { console, steps, .. } = sweep;
    drop(console);
    say_results(&config, &steps, injected);
    if let Some(server) = server {
        server.shutdown().await;
    }
    swept?;
    if steps.iter().any(|step| step.verdict.outcome == Outcome::Lossy) {
        let message = "committed messages did not come through whole".to_owned();
        return Err(Failure { exit: Exit::Lossy, message });
    }
    Ok(Exit::Ok)
}

/// Fewer open files than a bench and its roles need for their pipes, results and connections.
const MIN_FILES: u64 = 64;

fn enough_files() -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).current {
        Some(files) if files < MIN_FILES => Err(Failure::runtime(format!(
            "this process may have {files} files open, and a bench needs {MIN_FILES}; raise the limit (ulimit -n)"
        ))),
        _ => Ok(()),
    }
}

/// The tables at the end of a sweep; nothing where not one rate was finished.
fn say_results(config: &Config, steps: &[StepReport], mut injected: Vec<String>) {
    if steps.is_empty() {
        return;
    }
    let info = &config.info;
    for table in
        [table(info, steps), log_age_table(info.run.preload_versions, steps), cost_table(&info.prices, steps)]
    {
        say("");
        say(table.trim_end());
    }
    if injected.is_empty() {
        injected.extend(steps.iter().find_map(done_elsewhere));
    }
    for done in &injected {
        say(&format!("{done}; these are no figures of a store as it is"));
    }
    say(&format!("results: {}", config.output.output_dir.display()));
}

/// The time of day, by RFC 3339.
fn now() -> String {
    let now = OffsetDateTime::from_unix_timestamp(s3mq_clock::wall_us() / 1_000_000);
    now.ok().and_then(|now| now.format(&Rfc3339).ok()).unwrap_or_default()
}

/// What a store says of itself if others had it modelled or faults injected.
fn done_elsewhere(step: &StepReport) -> Option<String> {
    let name = step.producer.store_server.as_ref()?;
    let is_said = name.contains("modelled: ") || name.contains("faults injected");
    is_said.then(|| format!("the store calls itself {name}"))
}

impl Args {
    fn rates(&self) -> Result<Vec<Rate>, Failure> {
        let [start, end, step] =
            [self.range_start, self.range_end, self.range_step].map(|rate| rate.or(self.rate));
        let (Some(start), Some(end), Some(step)) = (start, end, step) else {
            return Err(Failure::usage("give --rate, or --range-start, --range-end and --range-step"));
        };
        if start > end {
            return Err(Failure::usage(format!("--range-start {start} is above --range-end {end}")));
        }
        let sweep = start.sweep(end, step);
        let rates: Vec<_> = sweep.take(MAX_RATES + 1).collect();
        if rates.len() > MAX_RATES {
            return Err(Failure::usage(format!(
                "these are more than {} rates; raise --range-step",
                grouped(MAX_RATES as u64)
            )));
        }
        match rates.iter().find(|rate| rate.messages_in(self.run.seconds_to_stream) == 0) {
            Some(rate) => Err(Failure::usage(format!(
                "at {rate} a second, not one message is due in {} s; raise --seconds-to-stream",
                self.run.seconds_to_stream
            ))),
            None => Ok(rates),
        }
    }

    fn prices(&self) -> Result<Prices, Failure> {
        let path = self.prices.as_ref();
        path.map_or_else(|| Ok(Prices::default()), |path| given_file::read("--prices", path, Prices::parse))
    }

    /// The store that isn't the bench's own, if it is to be one.
    fn other_store(&self, rates: &[Rate]) -> Result<Option<storage::Config>, Failure> {
        match self.storage.backend() {
            BackendArg::Embedded => {
                self.storage.refuse_other_store()?;
                self.refuse_too_much_memory(rates)?;
                Ok(None)
            }
            BackendArg::Minio | BackendArg::S3 => Ok(Some(self.storage.resolve(None)?)),
        }
    }

    /// What holds for all rates; of the store, what was asked for.
    fn info(&self, asked: &Injected, poll: Poll, prices: Prices) -> RunInfo {
        RunInfo {
            version: VERSION,
            deltalake_version: deltalake_version(),
            begun: now(),
            store: String::new(),
            store_model: asked.model.as_ref().map(described),
            faults: asked.faults.as_ref().map(|faults| self.faults.described(faults)),
            deadlines: Deadlines {
                requests: self.storage.deadlines,
                drain_timeout_seconds: self.drain_timeout_seconds,
            },
            run: self.run.clone(),
            message: self.message.clone(),
            poll: self.poll.clone(),
            poll_interval_ms: poll.interval().as_secs_f64() * 1e3,
            unsigned_payload: false,
            prices,
            machine: Machine::this(),
        }
    }

    /// Tries the store out and connects to it.
    async fn connect(&self, store: storage::Config) -> Result<Store, Failure> {
        preflight(&store, &self.output.prefix, self.storage.create_bucket, |_| {}).await?;
        Ok(Store::connect(store).await?)
    }
}
