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
use s3mq_server::{Config, Credentials, Limits, Proxy, ProxyConfig, Server, Upstream};

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
    match args.proxy.clone() {
        Some(upstream) => proxy(args, upstream).await,
        None => store(args).await,
    }
}

async fn proxy(args: Args, upstream: Upstream) -> Result<Exit, Failure> {
    let its_own = [
        ("--data-dir", args.data_dir.is_some()),
        ("--bucket", args.bucket.is_some()),
        ("--max-memory-mib", args.max_memory_mib.is_some()),
    ];
    let given: Vec<_> = its_own.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect();
    if !given.is_empty() {
        return Err(Failure::usage(format!(
            "{} together with --proxy: a proxy keeps nothing, and has the buckets of the store behind it",
            given.join(" and ")
        )));
    }
    if args.model.model()?.is_some() {
        return Err(Failure::usage(
            "--store-model does not go with --proxy: the store behind it has its own times",
        ));
    }
    let faults = args.faults.before_another_store()?;
    let stop = signals::watch(args.exit_on_stdin_eof)?;
    let config = ProxyConfig { listen: args.listen, faults, ..ProxyConfig::before(upstream.clone()) };
    let proxy = Proxy::start(config).await?;
    say(&format!("# proxy at {}, until Ctrl-C; bucket and keys are those of {upstream}", proxy.endpoint()));
    say_injected(&args.faults);
    say(&format!("export MINIO_S3_ENDPOINT={}", proxy.endpoint()));
    stop.cancelled().await;
    say_faults("# ", &fired(proxy.fault_counts()));
    proxy.shutdown().await;
    Ok(Exit::Interrupted)
}

async fn store(args: Args) -> Result<Exit, Failure> {
    let bucket = args.bucket.unwrap_or_else(|| BUCKET.to_owned());
    let model = args.model.model()?;
    let modelled = model.as_ref().map(|model| model.name().to_owned());
    let faults = args.faults.faults()?;
    let credentials = match (variable("S3MQ_SERVE_ACCESS_KEY"), variable("S3MQ_SERVE_SECRET_KEY")) {
        (Some(access_key), Some(secret_key)) => Some(Credentials { access_key, secret_key }),
        (None, None) => None,
        _ => {
            return Err(Failure::usage(
                "set both S3MQ_SERVE_ACCESS_KEY and S3MQ_SERVE_SECRET_KEY, or neither",
            ));
        }
    };
    let mut limits = Limits { max_object_bytes: args.max_object_mib << 20, ..Limits::default() };
    if let Some(mib) = args.max_memory_mib {
        limits.max_memory_bytes = mib << 20;
    }
    let stop = signals::watch(args.exit_on_stdin_eof)?;
    let server = Server::start(Config {
        listen: args.listen,
        data_dir: args.data_dir,
        buckets: vec![bucket.clone()],
        credentials,
        model,
        faults,
        limits,
    })
    .await?;
    let keys = server.credentials();
    say(&format!("# S3 server at {}, until Ctrl-C; reach it with", server.endpoint()));
    if let Some(name) = modelled {
        say(&format!("# its times are modelled: {name}"));
    }
    say_injected(&args.faults);
    say(&format!("export MINIO_S3_ENDPOINT={}", server.endpoint()));
    say(&format!("export MINIO_S3_BUCKET={bucket}"));
    say(&format!("export MINIO_S3_ACCESS_KEY={}", keys.access_key));
    say(&format!("export MINIO_S3_SECRET_ACCESS_KEY={}", keys.secret_key));
    stop.cancelled().await;
    say_faults("# ", &fired(server.fault_counts()));
    server.shutdown().await;
    Ok(Exit::Interrupted)
}

fn say_injected(faults: &FaultArgs) {
    let name = faults.name();
    if !name.is_empty() {
        say(&format!("# faults injected: {name}"));
    }
}
