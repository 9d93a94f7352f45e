//! `s3mq-layers`: the command line of the layer benchmark.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use s3mq::cli::given_file::{self, cannot_use};
use s3mq::cli::storage::{self, BackendArg, StorageArgs};
use s3mq::cli::{Failure, VERSION, execute, interrupted, parse, say, signals};
use s3mq::config::MessageArgs;
use s3mq::exit::Exit;
use s3mq::producer::MAX_BATCH_BYTES;
use s3mq::report::{PartialFile, prepare_file};
use s3mq::units::{Rate, Seconds};
use s3mq_layers::{Build, Config, LayersError, OwnStore, Page, Report, tables};
use s3mq_queue::storage::{Prefix, Store};
use s3mq_server::memory_bytes;

/// Measure what the queue costs over plain requests, and the roles over the queue
///
/// One process carries the same messages by plain requests of two HTTP clients, by the queue, and by the
/// producer and consumer roles, in interleaved rounds, and compares them; docs/layers.md tells the method.
/// With --s3-backend embedded the store is a process of its own. The defaults take a few minutes, and on
/// two fast cores about 12 GB go through the store, of which it holds one run at a time; what a flood sends grows
/// with --seconds, the whole with --rounds.
#[derive(Debug, Parser)]
#[command(name = "s3mq-layers", version = VERSION)]
struct Args {
    /// Rate at which latency is measured, in messages a second; messages a second are measured without one
    #[arg(long, value_name = "PER_SECOND", default_value = "10000")]
    rate: Rate,

    /// Commit interval at that rate, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    autocommit_duration_ms: u64,

    /// Messages of a batch where messages a second are measured
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    batch_messages: u64,

    /// The least that each measured run lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    seconds: Seconds,

    /// Rounds; with a single one, nothing can be told apart
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Pause of all readers after asking for something that isn't there yet, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    poll_interval_ms: u64,

    /// Results, as JSON; what the file has as `code_cost` stays in it
    #[arg(long, value_name = "FILE", default_value = "benches/results/layers.json")]
    output: PathBuf,

    /// Page whose tables, between two marks, are made anew [default: none]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Where in the bucket to write, at PREFIX/{layer}: nothing but objects of s3mq may be there, which are deleted
    /// before and after
    #[arg(long, value_name = "PREFIX", default_value = "adhoc/s3-messaging/layers")]
    prefix: Prefix,

    /// Print no progress
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    message: MessageArgs,

    #[command(flatten)]
    storage: StorageArgs,
}

fn main() -> ExitCode {
    if OwnStore::is_meant() {
        return execute(OwnStore::serve());
    }
    execute(run(parse()))
}

async fn run(args: Args) -> Result<Exit, Failure> {
    let embedded = args.storage.backend() == BackendArg::Embedded;
    let config = args.config(embedded)?;
    let remote = if embedded {
        args.storage.refuse_other_store()?;
        None
    } else {
        Some(args.storage.resolve(None)?)
    };
    // What can't be written or kept is known before minutes are spent.
    let code_cost = kept_code_cost(&args.output)?;
    let page = args.page.as_deref().map(read_page).transpose()?;
    if let Some(page) = &args.page {
        prepare_file(page).map_err(|error| cannot_use("--page", page, &error))?;
    }
    prepare_file(&args.output).map_err(|error| cannot_use("--output", &args.output, &error))?;

    let stop = signals::watch(false)?;
    let own = match remote {
        Some(_) => None,
        None => Some(OwnStore::start().await.map_err(failed)?),
    };
    let store = match (remote, &own) {
        (Some(config), _) => config,
        (None, Some(own)) => own.config().with_timeouts(
            args.storage.deadlines.request_timeout_seconds.as_duration(),
            args.storage.deadlines.retry_timeout_seconds.as_duration(),
        ),
        (None, None) => return Err(Failure::runtime("the embedded store did not start")),
    };
    let connect = async {
        storage::preflight(&store, &args.prefix, args.storage.create_bucket, |_| {}).await?;
        Ok::<_, Failure>(Store::connect(store.clone()).await?)
    };
    let measured = async {
        let connected = tokio::select! {
            connected = connect => connected?,
            () = stop.cancelled() => return Err(interrupted()),
        };
        let tell = |line: &str| {
            if !args.quiet {
                say(line);
            }
        };
        s3mq_layers::run(&config, &connected, Build::new(VERSION), stop.clone(), tell).await.map_err(failed)
    }
    .await;
    if let Some(own) = own {
        own.end().await;
    }
    let report = Report { code_cost, ..measured? };

    let mut json = serde_json::to_vec_pretty(&report)
        .map_err(|error| Failure::runtime(format!("cannot write results: {error}")))?;
    json.push(b'\n');
    PartialFile::write_whole(&args.output, &json)
        .map_err(|error| Failure::runtime(format!("cannot write results: {error}")))?;
    if let (Some(path), Some(page)) = (&args.page, page) {
        PartialFile::write_whole(path, page.with(&report).as_bytes())
            .map_err(|error| Failure::runtime(format!("cannot write the page: {error}")))?;
    }
    say(tables(&report).trim_end());
    say(&format!("results: {}", args.output.display()));
    Ok(Exit::Ok)
}

impl Args {
    fn config(&self, embedded: bool) -> Result<Config, Failure> {
        let message_size = self.message.size().map_err(Failure::usage)?;
        let bytes = self.batch_messages.saturating_mul(self.message.bytes() as u64);
        if bytes > MAX_BATCH_BYTES as u64 {
            return Err(Failure::usage(format!(
                "--batch-messages {} of {} bytes are more than the {MAX_BATCH_BYTES} bytes of a batch",
                self.batch_messages,
                self.message.bytes()
            )));
        }
        let interval_seconds = self.autocommit_duration_ms as f64 / 1e3;
        let interval_bytes = self.rate.per_second() * interval_seconds * self.message.bytes() as f64;
        if interval_bytes > MAX_BATCH_BYTES as f64 {
            return Err(Failure::usage(format!(
                "--rate {} of {} bytes come to {interval_bytes:.0} bytes in --autocommit-duration-ms {}, more than the \
                 {MAX_BATCH_BYTES} bytes of a batch: the roles would cut it where the plain loops don't",
                self.rate,
                self.message.bytes(),
                self.autocommit_duration_ms
            )));
        }
        Ok(Config {
            prefix: self.prefix.clone(),
            rate: self.rate,
            commit_interval: Duration::from_millis(self.autocommit_duration_ms),
            batch_messages: self.batch_messages,
            message_size,
            padding: self.message.payload,
            data_encoding: self.message.data_encoding,
            seconds: self.seconds,
            rounds: usize::from(self.rounds),
            poll_interval: Duration::from_millis(self.poll_interval_ms),
            max_bytes: memory_bytes().filter(|_| embedded).map(|bytes| bytes / 2),
        })
    }
}

/// The field `code_cost` of the results that are there, if any are.
fn kept_code_cost(path: &Path) -> Result<Option<serde_json::Value>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_use("--output", path, &error)),
    };
    let results: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| cannot_use("--output", path, &error))?;
    Ok(results.get("code_cost").cloned())
}

fn read_page(path: &Path) -> Result<Page, Failure> {
    given_file::read("--page", path, |text| text.parse::<Page>())
}

/// What it was that ended the measuring, and the exit code for it.
fn failed(error: LayersError) -> Failure {
    let exit = match error {
        LayersError::Interrupted => Exit::Interrupted,
        LayersError::NotWhole { .. } => Exit::Lossy,
        LayersError::TooLarge(_) => Exit::Usage,
        LayersError::Queue(ref error) if error.is_foreign() => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure { exit, message: error.to_string() }
}
