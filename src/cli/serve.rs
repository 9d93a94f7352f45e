//! `s3mq serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::failure::Failure;
use super::faults::{FaultArgs, fired};
use super::signals;
use super::storage::variable;
use super::store_model::ModelArgs;
use crate::console::{say, say_faults};
use crate::exit::Exit;
use s3mq_server::{Config, Credentials, Limits, Server, Upstream};

/// Run the embedded S3 server alone
///
/// Prints the variables that reach it. Its keys are drawn at start, unless S3MQ_SERVE_ACCESS_KEY and
/// S3MQ_SERVE_SECRET_KEY are set. Objects survive a killed server with --data-dir, not a power cut.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Keep objects in files below this directory [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Bucket that is created at start [default: s3mq]
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,

    /// The most that an object may have, in MiB, and all parts of a multipart upload together
    #[arg(long, value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(1..=5120))]
    max_object_mib: u64,

    /// The most that is held in memory, in MiB: objects without --data-dir, unfinished uploads, the list of objects.
    /// A write beyond it is answered 400, InsufficientStorage [default: three quarters of the machine's memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    max_memory_mib: Option<u64>,

    /// Be no store, but a proxy before this one, http://host:port, so that --faults are put in front of it; bucket
    /// and keys are that store's. Before one that speaks https alone, start something that takes the TLS off, such as
    /// stunnel as a client
    #[arg(long, value_name = "URL")]
    proxy: Option<Upstream>,

    /// Stop when standard input is closed, as a program that starts it may want
    #[arg(long)]
    exit_on_stdin_eof: bool,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    faults: FaultArgs,
}

const BUCKET: &str = "s3mq";

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let bucket = args.bucket.clone().unwrap_or_else(|| BUCKET.to_owned());
    let config = match args.proxy.clone() {
        Some(upstream) => args.proxy_config(upstream)?,
        None => args.store_config(&bucket)?,
    };
    let modelled = config.model.as_ref().map(|model| model.name().to_owned());
    let stop = signals::watch(args.exit_on_stdin_eof)?;
    let server = Server::start(config).await?;
    let endpoint = server.endpoint();
    match &args.proxy {
        Some(upstream) => {
            say(&format!("# proxy at {endpoint}, until Ctrl-C; bucket and keys are those of {upstream}"));
        }
        None => say(&format!("# S3 server at {endpoint}, until Ctrl-C; reach it with")),
    }
    if let Some(name) = modelled {
        say(&format!("# its times are modelled: {name}"));
    }
    let faults = args.faults.name();
    if !faults.is_empty() {
        say(&format!("# faults injected: {faults}"));
    }
    say(&format!("export MINIO_S3_ENDPOINT={endpoint}"));
    if args.proxy.is_none() {
        let keys = server.credentials();
        say(&format!("export MINIO_S3_BUCKET={bucket}"));
        say(&format!("export MINIO_S3_ACCESS_KEY={}", keys.access_key));
        say(&format!("export MINIO_S3_SECRET_ACCESS_KEY={}", keys.secret_key));
    }
    stop.cancelled().await;
    say_faults("# ", &fired(server.fault_counts()));
    server.shutdown().await;
    Ok(Exit::Interrupted)
}

impl Args {
    fn proxy_config(&self, upstream: Upstream) -> Result<Config, Failure> {
        let its_own = [
            ("--data-dir", self.data_dir.is_some()),
            ("--bucket", self.bucket.is_some()),
            ("--max-memory-mib", self.max_memory_mib.is_some()),
        ];
        let given: Vec<_> = its_own.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect();
        if !given.is_empty() {
            return Err(Failure::usage(format!(
                "{} together with --proxy: a proxy keeps nothing, and has the buckets of the store behind it",
                given.join(" and ")
            )));
        }
        if self.model.model()?.is_some() {
            return Err(Failure::usage(
                "--store-model does not go with --proxy: the store behind it has its own times",
            ));
        }
        let faults = self.faults.before_another_store()?;
        Ok(Config { listen: self.listen, faults, ..Config::proxy(upstream) })
    }

    fn store_config(&self, bucket: &str) -> Result<Config, Failure> {
        let (model, faults) = (self.model.model()?, self.faults.faults()?);
        let credentials = match (variable("S3MQ_SERVE_ACCESS_KEY"), variable("S3MQ_SERVE_SECRET_KEY")) {
            (Some(access_key), Some(secret_key)) => Some(Credentials { access_key, secret_key }),
            (None, None) => None,
            _ => {
                return Err(Failure::usage(
                    "set both S3MQ_SERVE_ACCESS_KEY and S3MQ_SERVE_SECRET_KEY, or neither",
                ));
            }
        };
        let mut limits = Limits { max_object_bytes: self.max_object_mib << 20, ..Limits::default() };
        if let Some(mib) = self.max_memory_mib {
            limits.max_memory_bytes = mib << 20;
        }
        let (listen, data_dir) = (self.listen, self.data_dir.clone());
        Ok(Config { listen, data_dir, credentials, model, faults, limits, ..Config::in_memory(bucket) })
    }
}
