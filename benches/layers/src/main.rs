//! `s3mq-layers`: what the queue costs over plain requests, and what the roles cost over the queue. The method is in
//! docs/layers.md.

mod clients;
mod feed;
mod figures;
mod job;
mod own_store;
mod page;
mod queue_loop;
mod raw_loop;
mod reading;
mod report;
mod rounds;
mod service;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use s3mq::CancellationToken;
use s3mq::cli::given_file::{self, cannot_use};
use s3mq::cli::storage::{self, BackendArg, StorageArgs};
use s3mq::cli::{Failure, VERSION, execute, interrupted, parse, say, signals};
use s3mq::config::MessageArgs;
use s3mq::exit::Exit;
use s3mq::producer::MAX_BATCH_BYTES;
use s3mq::report::{PartialFile, prepare_file};
use s3mq::units::{Rate, Seconds};
use s3mq_queue::Lake;
use s3mq_queue::storage::{Config, Prefix, PrefixLock, Store};
use tokio::time::timeout;

use job::Layer;
use report::Report;

/// Longest that the lock and the embedded store are waited for in the end.
const GRACE: Duration = Duration::from_secs(2);

/// Measure what the queue costs over plain requests, and the roles over the queue
///
/// One process carries the same messages by plain requests of two HTTP clients, by the queue, and by the
/// producer and consumer roles, in interleaved rounds, and compares them; docs/layers.md describes the method.
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
    // The embedded store is this program once more.
    match std::env::args().nth(1) {
        Some(first) if first == own_store::SERVE => s3mq::cli::main(),
        _ => execute(run(parse())),
    }
}

async fn run(args: Args) -> Result<Exit, Failure> {
    let args = Arc::new(args);
    args.check()?;
    let remote = (!args.is_embedded()).then(|| args.storage.resolve(None)).transpose()?;
    // What can't be written or kept is known before minutes are spent.
    let code_cost = kept_code_cost(&args.output)?;
    let mut page = None;
    if let Some(path) = &args.page {
        page = Some((path, given_file::read("--page", path, page::around_the_tables)?));
        prepare_file(path).map_err(|error| cannot_use("--page", path, &error))?;
    }
    prepare_file(&args.output).map_err(|error| cannot_use("--output", &args.output, &error))?;

    let stop = signals::watch(false)?;
    let (own, config) = match remote {
        Some(config) => (None, config),
        None => own_store::start(&args.storage.deadlines).await.map(|(own, config)| (Some(own), config))?,
    };
    let measured = measure(&args, config, stop).await;
    if let Some(mut own) = own {
        // Closes its standard input, and kills it if it doesn't end by that.
        let _ = timeout(GRACE, own.wait()).await;
    }
    let report = Report { code_cost, ..measured? };

    let cannot_write =
        |what: &str, error: &dyn Display| Failure::runtime(format!("cannot write {what}: {error}"));
    let json = serde_json::to_string_pretty(&report).map_err(|error| cannot_write("results", &error))?;
    PartialFile::write_whole(&args.output, format!("{json}\n").as_bytes())
        .map_err(|error| cannot_write("results", &error))?;
    let tables = page::tables(&report);
    if let Some((path, (head, tail))) = page {
        PartialFile::write_whole(path, format!("{head}{tables}{tail}").as_bytes())
            .map_err(|error| cannot_write("the page", &error))?;
    }
    say(tables.trim_end());
    say(&format!("results: {}", args.output.display()));
    Ok(Exit::Ok)
}

/// Measures all layers while it holds the lock of the prefix. Objects are deleted again, except where it is interrupted.
async fn measure(args: &Arc<Args>, config: Config, stop: CancellationToken) -> Result<Report, Failure> {
    let connect = async {
        storage::preflight(&config, &args.prefix, args.storage.create_bucket, |_| {}).await?;
        Ok::<_, Failure>(Store::connect(config.clone()).await?)
    };
    let store = tokio::select! {
        store = connect => store?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    // Before the lock, which stays there.
    let directories = Layer::ALL.map(|layer| layer.name().to_owned());
    s3mq_queue::refuse_foreign(&Lake::new(&store, args.prefix.clone())?, &directories).await?;
    let holder = format!("layer benchmark, process {}", std::process::id());
    let lock = PrefixLock::acquire(&store, &args.prefix, &holder).await?;
    let measured = tokio::select! {
        measured = rounds::measure(args, &store) => measured,
        () = stop.cancelled() => Err(interrupted()),
    };
    // A store that has died must not keep an interrupted run.
    let _ = timeout(GRACE, lock.release()).await;
    measured
}

impl Args {
    fn is_embedded(&self) -> bool {
        self.storage.backend() == BackendArg::Embedded
    }

    fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.autocommit_duration_ms)
    }

    fn poll_interval(&self) -> Duration {
        Duration::from_millis(self.poll_interval_ms)
    }

    /// What is due this long after the first message is in no latency.
    fn warmup(&self) -> Duration {
        self.seconds.as_duration() / 10
    }

    /// Refuses messages that can't be sent, batches that the roles would cut where the plain loops don't, and two stores.
    fn check(&self) -> Result<(), Failure> {
        self.message.size().map_err(Failure::usage)?;
        let in_an_interval = self.rate.per_second() * self.commit_interval().as_secs_f64();
        for (flags, messages) in [
            ("--batch-messages", self.batch_messages as f64),
            ("--rate and --autocommit-duration-ms", in_an_interval),
        ] {
            let bytes = messages * self.message.bytes() as f64;
            if bytes > MAX_BATCH_BYTES as f64 {
                return Err(Failure::usage(format!(
                    "{flags} make batches of {bytes:.0} bytes, more than {MAX_BATCH_BYTES}, where the roles cut them"
                )));
            }
        }
        if self.is_embedded() { self.storage.refuse_other_store() } else { Ok(()) }
    }
}

/// The field `code_cost` of the results that are there, if any are.
fn kept_code_cost(path: &Path) -> Result<Option<serde_json::Value>, Failure> {
    if !path.try_exists().unwrap_or(true) {
        return Ok(None);
    }
    let results: serde_json::Value = given_file::read("--output", path, |text| serde_json::from_str(text))?;
    Ok(results.get("code_cost").cloned())
}
