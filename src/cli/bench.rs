//! `s3mq bench`.

mod children;
mod embedded;

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::VERSION;
use super::console::{StepConsole, say, say_faults};
use super::consumer::parse_warmup;
use super::delay::DelayArgs;
use super::failure::Failure;
use super::faults::{FaultArgs, fired};
use super::given_file;
use super::preload::MAX_VERSIONS;
use super::role::interrupted;
use super::signals;
use super::storage::{self, BackendArg, StorageArgs};
use super::store_model::{ModelArgs, described};
use super::stream::{
    ArrivalArgs, CheckpointArgs, CommitArgs, MessageArgs, PercentileArgs, PollArgs, TimelineArgs, value_name,
};
use crate::bench::{self, BenchError, Config};
use crate::exit::Exit;
use crate::machine::Machine;
use crate::report::{
    Deadlines, Outcome, Prices, RunInfo, StepReport, cost_table, lock_directory, log_age_table,
    prepare_directory, table,
};
use crate::units::{Rate, Seconds, grouped};
use s3mq_queue::deltalake_version;
use s3mq_queue::storage::{Prefix, Store};
use s3mq_server::Server;

/// Sweep message rates through a table and report the latency percentiles of each
///
/// For each rate: empties its table, starts a consumer and a producer, streams, drains, writes
/// {rate}.csv and {rate}.json, cleans up. Then prints a table and writes summary.csv.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// First rate, in messages a second, whole or fractional
    #[arg(long, value_name = "PER_SECOND")]
    range_start: Rate,

    /// Last rate, included
    #[arg(long, value_name = "PER_SECOND")]
    range_end: Rate,

    /// From one rate to the next
    #[arg(long, value_name = "PER_SECOND")]
    range_step: Rate,

    /// How long each rate streams, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    seconds_to_stream: Seconds,

    #[command(flatten)]
    arrival: ArrivalArgs,

    #[command(flatten)]
    commit: CommitArgs,

    #[command(flatten)]
    checkpoint: CheckpointArgs,

    /// Age each rate's table before its roles start: add this many versions, each with a data file of one
    /// message, which are in no figure
    #[arg(long, value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=MAX_VERSIONS))]
    preload_versions: u64,

    #[command(flatten)]
    timeline: TimelineArgs,

    #[command(flatten)]
    percentiles: PercentileArgs,

    /// Leave messages out of the figures that were due this long after the first, in seconds
    /// [default: a tenth of --seconds-to-stream, at most 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_warmup)]
    warmup_seconds: Option<f64>,

    /// How long a consumer may take to catch up once its producer is through, in seconds; a rate that
    /// takes longer has collapsed. Time in which the store doesn't answer isn't counted
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    drain_timeout_seconds: Seconds,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "benchmark-results")]
    output_dir: PathBuf,

    /// Also write {rate}.raw.csv: every message's due and received time, in Unix microseconds
    #[arg(long)]
    raw_output: bool,

    /// Where in the bucket: each rate's table is at PREFIX/{rate}, which is emptied before and after. Nothing but
    /// objects of s3mq may be below PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "adhoc/s3-messaging")]
    prefix: Prefix,

    /// Prices of the store, as a TOML file: name, as_of, put_list_per_million, get_per_million,
    /// storage_gb_month, in US dollars [default: S3 Standard in us-east-1]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Leave the tables there
    #[arg(long)]
    keep_data: bool,

    /// Keep the embedded store's objects in files below this directory [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    delay: DelayArgs,

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

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let rates = args.rates()?;
    let warmup_seconds = args.warmup_seconds()?;
    let poll = args.poll.policy(&args.commit)?;
    args.message.size()?;
    let prices = args.prices()?;
    let backend = args.storage.backend();
    let treatment = args.treatment()?;
    let remote = match backend {
        BackendArg::Embedded => {
            args.storage.refuse_other_store()?;
            args.refuse_too_much_memory(&rates)?;
            None
        }
        BackendArg::Minio | BackendArg::S3 => Some(args.storage.resolve(None)?),
    };
    prepare_directory(&args.output_dir)
        .map_err(|error| Failure::usage(format!("cannot write results to --output-dir: {error}")))?;
    let _results_lock = lock_directory(&args.output_dir)
        .map_err(|error| Failure::runtime(format!("cannot use --output-dir: {error}")))?;

    let mut stop = signals::watch(false)?;
    let (delays, model) = (treatment.delays.to_string(), treatment.model.as_ref().map(described));
    let faults = treatment.faults.as_ref().map(|faults| args.faults.described(faults));
    let server = match &remote {
        Some(_) => None,
        None => Some(args.embedded_server(treatment).await?),
    };
    let store = match (remote, &server) {
        (Some(config), _) => config,
        (None, Some(server)) => args.embedded_store(server)?,
        (None, None) => return Err(Failure::runtime("the embedded store did not start")),
    };
    let interval = poll.interval();
    let mut config = Config {
        rates,
        seconds: args.seconds_to_stream,
        prefix: args.prefix.clone(),
        keep_data: args.keep_data,
        output_dir: args.output_dir.clone(),
        raw_output: args.raw_output,
        drain_timeout: args.drain_timeout_seconds.as_duration(),
        retry_timeout: args.storage.retry_timeout_seconds.as_duration(),
        stall_timeout: args.storage.stall_timeout_seconds.as_duration(),
        warmup_seconds,
        commit_interval: args.commit.interval(),
        preload_versions: args.preload_versions,
        checkpoint_interval: args.checkpoint.checkpoint_interval,
        interval: args.timeline.interval_seconds,
        percentiles: args.percentiles.percentiles.clone(),
        idle_pause_seconds: poll.longest_pause().as_secs_f64(),
        flags: args.child_flags(&store),
        info: RunInfo {
            version: VERSION.to_owned(),
            deltalake_version: deltalake_version().to_owned(),
            store: String::new(),
            delays,
            store_model: model,
            faults,
            deadlines: args.deadlines(),
            seconds_to_stream: args.seconds_to_stream.as_f64(),
            autocommit_duration_ms: args.commit.autocommit_duration_ms,
            checkpoint_interval: args.checkpoint.checkpoint_interval,
            preload_versions: args.preload_versions,
            arrival: value_name(&args.arrival.arrival),
            seed: args.arrival.seed,
            message_bytes: args.message.bytes(),
            payload: value_name(&args.message.payload),
            data_encoding: value_name(&args.message.data_encoding),
            poll: value_name(&args.poll.poll),
            poll_interval_ms: interval.as_secs_f64() * 1e3,
            warmup_seconds,
            unsigned_payload: store.unsigned_payload(),
            interval_seconds: args.timeline.interval_seconds.as_f64(),
            prices,
            machine: Machine::this(),
        },
    };

    let mut on_purpose = config.info.on_purpose();
    let mut described = store.describe();
    on_purpose.iter().for_each(|done| described.push_str(&format!(", {done}")));
    say(&format!("s3mq {VERSION}, {} store: {described}", backend.name()));
    config.info.store = format!("{}, {described}", backend.name());

    let faults = || fired(server.as_ref().map(Server::fault_counts).unwrap_or_default());
    let mut steps = Vec::new();
    let mut console = StepConsole::new(args.quiet, args.verbose);
    let work = async {
        let traits = storage::preflight(&store, &args.prefix, args.storage.create_bucket, |_| {}).await?;
        if traits.is_versioned {
            say(storage::VERSIONED);
        }
        Ok::<_, Failure>(Store::connect(store).await?)
    };
    let connected = tokio::select! {
        connected = work => connected.inspect_err(|_| say_faults("before the first rate: ", &faults()))?,
        () = stop.wait() => return Err(interrupted()),
    };
    let swept = bench::run(&config, &connected, stop, &mut console, &faults, &mut steps).await;
    drop(console);
    if !steps.is_empty() {
        say("");
        say(table(&steps).trim_end());
        say("");
        say(log_age_table(config.preload_versions, &steps).trim_end());
        say("");
        say(cost_table(&config.info.prices, &steps).trim_end());
        if on_purpose.is_empty() {
            on_purpose.extend(steps.iter().find_map(done_elsewhere));
        }
        for done in &on_purpose {
            say(&format!("{done}; these are no figures of a store as it is"));
        }
        say(&format!("results: {}", config.output_dir.display()));
    }
    if let Some(server) = server {
        server.shutdown().await;
    }
    let lossy = steps.iter().any(|step| step.verdict.outcome == Outcome::Lossy);
    match swept {
        Ok(exit) if lossy => {
            Err(Failure { exit, message: "committed messages did not come through whole".to_owned() })
        }
        Ok(exit) => Ok(exit),
        Err(error) => Err(Failure {
            exit: match error {
                BenchError::Interrupted => Exit::Interrupted,
                BenchError::Queue(ref error) if error.is_foreign() => Exit::Usage,
                _ => Exit::Failed,
            },
            message: error.to_string(),
        }),
    }
}

/// What a store says of itself that does things on purpose, or is a model, without having been told to by this bench.
fn done_elsewhere(step: &StepReport) -> Option<String> {
    let name = step.producer.store_server.as_ref()?;
    let is_told = name.contains("modelled: ") || name.contains(" on purpose");
    is_told.then(|| format!("the store calls itself {name}"))
}

impl Args {
    fn rates(&self) -> Result<Vec<Rate>, Failure> {
        if self.range_start > self.range_end {
            return Err(Failure::usage(format!(
                "--range-start {} is above --range-end {}",
                self.range_start, self.range_end
            )));
        }
        let sweep = self.range_start.sweep(self.range_end, self.range_step);
        let rates: Vec<_> = sweep.take(MAX_RATES + 1).collect();
        if rates.len() > MAX_RATES {
            return Err(Failure::usage(format!(
                "these are more than {} rates; raise --range-step",
                grouped(MAX_RATES as u64)
            )));
        }
        match rates.iter().find(|rate| rate.messages_in(self.seconds_to_stream) == 0) {
            Some(rate) => Err(Failure::usage(format!(
                "at {rate} a second, not one message is due in {} s; raise --seconds-to-stream",
                self.seconds_to_stream
            ))),
            None => Ok(rates),
        }
    }

    fn prices(&self) -> Result<Prices, Failure> {
        let Some(path) = &self.prices else {
            return Ok(Prices::default());
        };
        given_file::read("--prices", path, Prices::parse)
    }

    fn deadlines(&self) -> Deadlines {
        Deadlines {
            request_timeout_seconds: self.storage.request_timeout_seconds.as_f64(),
            retry_timeout_seconds: self.storage.retry_timeout_seconds.as_f64(),
            stall_timeout_seconds: self.storage.stall_timeout_seconds.as_f64(),
            drain_timeout_seconds: self.drain_timeout_seconds.as_f64(),
        }
    }

    fn warmup_seconds(&self) -> Result<f64, Failure> {
        let streamed = self.seconds_to_stream.as_f64();
        match self.warmup_seconds {
            Some(warmup) if warmup >= streamed => Err(Failure::usage(format!(
                "--warmup-seconds {warmup} leaves nothing to measure of --seconds-to-stream {streamed}"
            ))),
            Some(warmup) => Ok(warmup),
            None => Ok((streamed / 10.0).min(30.0)),
        }
    }
}
