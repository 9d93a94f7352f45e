//! `s3mq serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::console::say;
use super::delay::DelayArgs;
use super::failure::Failure;
use super::signals;
use super::storage::variable;
use crate::exit::Exit;
use crate::server::{Config, Credentials, Server};

/// Run the embedded S3 server alone
///
/// Prints the variables that reach it. Its keys are drawn at start, unless S3MQ_SERVE_ACCESS_KEY and
/// S3MQ_SERVE_SECRET_KEY are set. Objects survive a killed server with --data-dir, not a power cut.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "S3MQ_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Keep objects in files below this directory [default: in memory]
    #[arg(long, env = "S3MQ_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Bucket that is created at start
    #[arg(long, env = "S3MQ_BUCKET", value_name = "NAME", default_value = "s3mq")]
    bucket: String,

    /// Stop when standard input is closed, as the store of `s3mq layers` does when that is gone
    #[arg(long, env = "S3MQ_EXIT_ON_STDIN_EOF")]
    exit_on_stdin_eof: bool,

    #[command(flatten)]
    delay: DelayArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let delays = args.delay.delays()?;
    let delayed = delays.to_string();
    let credentials = match (variable("S3MQ_SERVE_ACCESS_KEY"), variable("S3MQ_SERVE_SECRET_KEY")) {
        (Some(access_key), Some(secret_key)) => Some(Credentials { access_key, secret_key }),
        (None, None) => None,
        _ => {
            return Err(Failure::usage(
                "set both S3MQ_SERVE_ACCESS_KEY and S3MQ_SERVE_SECRET_KEY, or neither",
            ));
        }
    };
    let mut stop = signals::watch(args.exit_on_stdin_eof)?;
    let server = Server::start(Config {
        listen: args.listen,
        data_dir: args.data_dir,
        buckets: vec![args.bucket.clone()],
        credentials,
        delays,
    })
    .await?;
    let keys = server.credentials();
    say(&format!("# S3 server at {}, until Ctrl-C; reach it with", server.endpoint()));
    if !delayed.is_empty() {
        say(&format!("# delayed on purpose: {delayed}"));
    }
    say(&format!("export MINIO_S3_ENDPOINT={}", server.endpoint()));
    say(&format!("export MINIO_S3_BUCKET={}", args.bucket));
    say(&format!("export MINIO_S3_ACCESS_KEY={}", keys.access_key));
    say(&format!("export MINIO_S3_SECRET_ACCESS_KEY={}", keys.secret_key));
    stop.wait().await;
    server.shutdown().await;
    Ok(Exit::Interrupted)
}
