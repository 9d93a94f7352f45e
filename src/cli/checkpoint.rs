//! `s3mq checkpoint`, and a producer's use of it.

use std::process::Stdio;
use std::sync::Arc;

use clap::Args as ClapArgs;

use super::failure::Failure;
use super::role::{interrupted, report};
use super::signals;
use super::storage::StorageArgs;
use crate::child::{Child, Said};
use crate::config::WriteArgs;
use crate::console::emit;
use crate::events::Event;
use crate::exit::Exit;
use s3mq_queue::storage::{LakePath, Requests, Store};
use s3mq_queue::{CheckpointAnswer, CheckpointBy, CheckpointOptions, Lake, QueueError, make_checkpoint};

/// Make the checkpoint of one version of a table
///
/// A producer starts this for each of its checkpoints, so that what one takes of memory is not the producer's.
/// Writes one JSON event to standard output (checkpointed or failed).
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The table: s3://BUCKET/PATH, or a PATH within the configured bucket
    #[arg(long, value_name = "PATH")]
    lake_path: LakePath,

    /// The version, which has to be there
    #[arg(long, value_name = "VERSION")]
    at_version: u64,

    /// Requests on their way at once
    #[arg(long, value_name = "COUNT",
          default_value_t = CheckpointOptions::default().requests_at_once as u16,
          value_parser = clap::value_parser!(u16).range(1..))]
    requests_at_once: u16,

    /// Stop when standard input is closed, as a producer's do when the producer is gone
    #[arg(long, hide = true)]
    exit_on_stdin_eof: bool,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    storage: StorageArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let store = args.storage.resolve_lake(&args.lake_path)?;
    let stop = signals::watch(args.exit_on_stdin_eof)?;
    let version = args.at_version;
    let work = async {
        let lake = Lake::new(&Store::connect(store).await?, args.lake_path.prefix.clone())?;
        let options = CheckpointOptions {
            requests_at_once: usize::from(args.requests_at_once),
            append_to_existing: args.write.append_to_existing,
        };
        let made = make_checkpoint(&lake, version, options).await;
        Ok((lake.describe(), made))
    };
    let made = stop.run_until_cancelled(work).await.unwrap_or_else(|| Err(interrupted()));
    let (place, (requests, made)) = made.map_err(report)?;
    match made {
        Ok(()) => {
            emit(&Event::Checkpointed { version, requests });
            Ok(Exit::Ok)
        }
        Err(problem) => {
            let message = format!("version {version} of {place} has no checkpoint: {problem}");
            let (error, exit) = (problem.to_string(), Failure::from(problem).exit);
            // A producer that reads it says itself which checkpoint it is.
            emit(&Event::Failed { error, exit_code: exit.code(), requests: Some(requests) });
            Err(Failure { exit, message })
        }
    }
}

/// A producer's checkpoints, each by a process of its own.
pub(super) fn by_a_process(lake_path: &LakePath, write: WriteArgs, storage: &StorageArgs) -> CheckpointBy {
    let mut arguments = storage.flags();
    arguments.splice(0..0, ["checkpoint".to_owned(), format!("--lake-path={lake_path}")]);
    arguments.push("--exit-on-stdin-eof".to_owned());
    arguments.extend(write.append_to_existing.then(|| "--append-to-existing".to_owned()));
    CheckpointBy::Other(Arc::new(move |version| {
        let mut arguments = arguments.clone();
        arguments.push(format!("--at-version={version}"));
        Box::pin(async move {
            start(&arguments).await.unwrap_or_else(|error| failed(format!("it could not be run: {error}")))
        })
    }))
}

/// Runs the command to its end; secrets are in the environment that it inherits.
async fn start(arguments: &[String]) -> std::io::Result<CheckpointAnswer> {
    // What it logs is of its failure, which comes as an event.
    let mut child = Child::start("checkpoint", arguments, &[], Stdio::null())?;
    let mut answer = None;
    loop {
        match child.next().await? {
            Said::Event(Event::Checkpointed { requests, .. }) => answer = Some((requests, Ok(()))),
            Said::Event(Event::Failed { error, requests, .. }) => {
                answer = Some((requests.unwrap_or_default(), Err(QueueError::Checkpoint(error))));
            }
            Said::Event(_) => {}
            Said::Ended(status) => {
                return Ok(answer.unwrap_or_else(|| failed(format!("it ended early ({status})"))));
            }
        }
    }
}

fn failed(problem: String) -> CheckpointAnswer {
    (Requests::default(), Err(QueueError::Checkpoint(problem)))
}
