//! `s3mq preload`.

use clap::Args as ClapArgs;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::role::{RoleArgs, interrupted};
use super::storage::StorageArgs;
use crate::config::{CheckpointArgs, MAX_PRELOADED_VERSIONS, WriteArgs};
use crate::console::Progress;
use crate::events::Event;
use crate::exit::Exit;
use s3mq_clock::monotonic_ns;
use s3mq_queue::storage::LakePath;
use s3mq_queue::{PreloadOptions, preload};

/// Age a table: add many versions to it, each a commit of one data file of one message
///
/// Nobody else may write to the table meanwhile, or read it. A checkpoint is made each --checkpoint-interval
/// versions and one of the last version, which a reader then starts from; none with 0. A consumer passes the
/// preload over with --start of the next version (`last_version` + 1). About 2,000 versions a second, of 4 KB
/// each. Writes one JSON event a line to standard output (ready, progress with versions, preloaded, failed).
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The table: s3://BUCKET/PATH, or a PATH within the configured bucket; created where it isn't there
    #[arg(long, value_name = "PATH")]
    lake_path: LakePath,

    /// How many versions to add
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MAX_PRELOADED_VERSIONS))]
    versions: u64,

    #[command(flatten)]
    checkpoint: CheckpointArgs,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    storage: StorageArgs,

    #[command(flatten)]
    role: RoleArgs,
}

/// Progress is reported about this often.
const REPORT_EVERY_NS: u64 = 1_000_000_000;

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let role = args.role.begin(&args.lake_path, &args.storage)?;
    let mut progress = Progress::new("preload", Some(args.versions), "versions", args.role.quiet);
    let started_ns = monotonic_ns();
    let anchor = args.role.anchor();
    let options = PreloadOptions {
        versions: args.versions,
        checkpoint_interval: args.checkpoint.checkpoint_interval,
        append_to_existing: args.write.append_to_existing,
        anchor: anchor.clone(),
    };
    let work = |lake, stop: CancellationToken| async move {
        progress.report(&Event::Ready);
        let message =
            || (!stop.is_cancelled()).then(|| format!("{:.6}", anchor.now_us() as f64 / 1e6).into_bytes());
        let mut report_at_ns = monotonic_ns() + REPORT_EVERY_NS;
        let preloaded = preload(&lake, options, message, |versions| {
            if monotonic_ns() >= report_at_ns {
                report_at_ns = monotonic_ns() + REPORT_EVERY_NS;
                progress.report(&Event::Progress { messages: versions, unanswered_seconds: 0.0 });
            }
        })
        .await?;
        if stop.is_cancelled() {
            // It ended in order, with fewer versions.
            return Err(interrupted());
        }
        progress.report(&Event::Preloaded {
            last_version: preloaded.last_version,
            checkpoints: preloaded.checkpoints,
            seconds: (monotonic_ns() - started_ns) as f64 / 1e9,
        });
        Ok(Exit::Ok)
    };
    role.run(work).await
}
