//! Ageing a rate's table before its roles start, by `s3mq preload` as a child process: what it takes of
//! memory and connections is gone when the measuring begins.

use std::process::ExitStatus;

use super::patience::Ticks;
use super::step::{self, Step};
use super::{BenchError, Console, arguments};
use crate::child::{Child, Said};
use crate::events::Event;

const ROLE: &str = "preload";

/// Adds the versions that are asked for, where any are; gives the first version that comes after them.
pub(super) async fn run<C: Console>(step: &mut Step<'_, C>) -> Result<Option<u64>, BenchError> {
    let versions = step.config.info.run.preload_versions;
    if versions == 0 {
        return Ok(None);
    }
    let arguments = arguments::preload(step);
    step.console.preload_started(step.rate, versions, &format!("s3mq {}", arguments.join(" ")));
    let mut child = step.start(ROLE, &arguments)?;
    match watch(step, &mut child).await {
        Ok(next) => Ok(Some(next)),
        Err(error) => {
            child.end().await;
            Err(error)
        }
    }
}

async fn watch<C: Console>(step: &mut Step<'_, C>, child: &mut Child) -> Result<u64, BenchError> {
    let (mut next, mut ticks, mut silence) = (None, Ticks::begin(), step::silence(step.config));
    loop {
        let said = tokio::select! {
            biased;
            () = step.stop.wait() => return Err(BenchError::Interrupted),
            said = child.next() => said?,
            _ = ticks.next() => match silence.goes_on() {
                Some(problem) => return Err(step.failed(ROLE, problem)),
                None => continue,
            },
        };
        silence.ends();
        match said {
            Said::Event(Event::Progress { messages, .. }) => step.console.preload_progress(messages),
            Said::Event(Event::Preloaded { last_version, checkpoints, seconds }) => {
                step.console.preload_ended(last_version, checkpoints, seconds);
                next = Some(last_version + 1);
            }
            Said::Event(Event::Failed { error, .. }) => {
                return Err(step.failed(ROLE, format!("failed: {error}")));
            }
            Said::Event(_) => {}
            Said::Ended(status) => return ended(status, next).map_err(|problem| step.failed(ROLE, problem)),
        }
    }
}

fn ended(status: ExitStatus, next: Option<u64>) -> Result<u64, String> {
    next.filter(|_| status.success()).ok_or_else(|| format!("ended early ({status})"))
}
