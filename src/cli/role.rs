//! What producers, consumers and preloads have in common: the flags of their process, and how they are run.

use std::time::Duration;

use clap::Args as ClapArgs;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::signals;
use super::storage::{self, StorageArgs};
use crate::console::emit;
use crate::events::Event;
use crate::exit::Exit;
use s3mq_clock::Anchor;
use s3mq_queue::Lake;
use s3mq_queue::storage::{Config, LakePath, Prefix, Store};

/// What the roles share.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Process")]
pub(super) struct RoleArgs {
    /// Don't try the store out before starting
    #[arg(long)]
    pub no_preflight: bool,

    /// Print no progress
    #[arg(long)]
    pub quiet: bool,

    /// Clock readings that stamps count from, so that two processes of one host agree
    /// [default: read at start]
    #[arg(long, hide = true, value_name = "WALL_US:MONOTONIC_NS:BOOT_ID")]
    pub clock_anchor: Option<Anchor>,

    /// Stop when standard input is closed, as the bench's children do when the bench is gone
    #[arg(long, hide = true)]
    pub exit_on_stdin_eof: bool,
}

impl RoleArgs {
    /// The anchor that was given, if it is of this boot; else one taken now.
    pub(super) fn anchor(&self) -> Anchor {
        match &self.clock_anchor {
            Some(anchor) if anchor.is_of_this_boot() => anchor.clone(),
            Some(_) => {
                tracing::warn!(
                    "--clock-anchor was taken on another host or before a reboot; using this host's clock"
                );
                Anchor::now()
            }
            None => Anchor::now(),
        }
    }

    /// Finds the store of this table, and listens to signals from now on.
    pub(super) fn begin(&self, lake_path: &LakePath, storage: &StorageArgs) -> Result<Role, Failure> {
        Ok(Role {
            store: storage.resolve_lake(lake_path)?,
            prefix: lake_path.prefix.clone(),
            create_bucket: storage.create_bucket,
            needs_preflight: !self.no_preflight,
            stop: signals::watch(self.exit_on_stdin_eof)?,
        })
    }
}

/// A role that is about to run on its table.
pub(super) struct Role {
    store: Config,
    prefix: Prefix,
    create_bucket: bool,
    needs_preflight: bool,
    stop: CancellationToken,
}

/// Once asked to stop, a role gets this long to end in order: to commit what it has handed over, to have
/// an answer to what it has asked.
const STOP_GRACE: Duration = Duration::from_secs(3);

impl Role {
    /// Tries the store out, connects and does `work` to its end. Reports a failure as an event too.
    pub(super) async fn run<T, Work: Future<Output = Result<T, Failure>>>(
        self,
        work: impl FnOnce(Lake, CancellationToken) -> Work,
    ) -> Result<T, Failure> {
        let Self { store, prefix, create_bucket, needs_preflight, stop } = self;
        let run = async {
            if needs_preflight {
                storage::preflight(&store, &prefix, create_bucket, |_| {}).await?;
            }
            work(Lake::new(&Store::connect(store).await?, prefix)?, stop.clone()).await
        };
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        let outcome = tokio::select! {
            outcome = run => outcome,
            () = given_up => Err(interrupted()),
        };
        outcome.map_err(report)
    }
}

/// A command that was asked to end.
pub fn interrupted() -> Failure {
    Failure { exit: Exit::Interrupted, message: "interrupted".to_owned() }
}

/// Reports a failure as an event too.
pub(super) fn report(failure: Failure) -> Failure {
    emit(&Event::Failed { error: failure.message.clone(), exit_code: failure.exit.code(), requests: None });
    failure
}
