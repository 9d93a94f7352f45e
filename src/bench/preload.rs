//! Ageing a rate's table before its roles start, by `s3mq preload` as a child process: what it takes of
//! memory and connections is gone when the measuring begins.

use std::process::{ExitStatus, Stdio};

use super::patience::{Silence, Ticks};
use super::{BenchError, Config, Console, step};
use crate::child::{Child, Said};
use crate::events::Event;
use crate::stop::Stop;
use crate::units::Rate;
use s3mq_queue::storage::Prefix;

const ROLE: &str = "preload";

/// Adds the versions that are asked for, where any are; gives the first version that comes after them.
pub(super) async fn run(
    config: &Config,
    rate: Rate,
    prefix: &Prefix,
    stop: &mut Stop,
    console: &mut impl Console,
) -> Result<Option<u64>, BenchError> {
    let versions = config.preload_versions;
    if versions == 0 {
        return Ok(None);
    }
    let failed = |problem: String| BenchError::Role { rate, role: ROLE, problem };
    let arguments = arguments(config, prefix);
    console.preload_started(rate, versions, &format!("s3mq {}", arguments.join(" ")));
    let mut child = Child::start(ROLE, &arguments, &config.flags.environment, Stdio::piped())
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    let outcome = watch(&mut child, step::silence(config), stop, console).await;
    match outcome {
        Ok(Ok(next)) => Ok(Some(next)),
        Ok(Err(problem)) => {
            child.end().await;
            Err(failed(problem))
        }
        Err(error) => {
            child.end().await;
            Err(error)
        }
    }
}

async fn watch(
    child: &mut Child,
    mut silence: Silence,
    stop: &mut Stop,
    console: &mut impl Console,
) -> Result<Result<u64, String>, BenchError> {
    let (mut next, mut ticks) = (None, Ticks::begin());
    loop {
        let said = tokio::select! {
            biased;
            () = stop.wait() => return Err(BenchError::Interrupted),
            said = child.next() => said?,
            _ = ticks.next() => match silence.goes_on() {
                Some(problem) => return Ok(Err(problem)),
                None => continue,
            },
        };
        silence.ends();
        match said {
            Said::Event(Event::Progress { messages, .. }) => console.preload_progress(messages),
            Said::Event(Event::Preloaded { last_version, checkpoints, seconds }) => {
                console.preload_ended(last_version, checkpoints, seconds);
                next = Some(last_version + 1);
            }
            Said::Event(Event::Failed { error, .. }) => return Ok(Err(format!("failed: {error}"))),
            Said::Event(_) => {}
            Said::Ended(status) => return Ok(ended(status, next)),
        }
    }
}

fn ended(status: ExitStatus, next: Option<u64>) -> Result<u64, String> {
    next.filter(|_| status.success()).ok_or_else(|| format!("ended early ({status})"))
}

fn arguments(config: &Config, prefix: &Prefix) -> Vec<String> {
    let mut arguments = vec![ROLE.to_owned()];
    // With `=`, so that a value may begin with a dash.
    arguments.push(format!("--lake-path={prefix}"));
    arguments.push(format!("--versions={}", config.preload_versions));
    arguments.push(format!("--checkpoint-interval={}", config.checkpoint_interval));
    arguments.extend(["--no-preflight", "--quiet", "--exit-on-stdin-eof"].map(str::to_owned));
    arguments.extend(config.flags.both.iter().cloned());
    arguments
}
