//! The embedded store as a process of its own (`s3mq serve`), so that its processor time is not the clients'.

use std::collections::HashMap;
use std::fmt::Display;
use std::process::Stdio;
use std::time::Duration;

use s3mq::cli::Failure;
use s3mq::config::DeadlineArgs;
use s3mq_queue::storage::{Backend, Config, Overrides};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The first argument of its process.
pub(super) const SERVE: &str = "serve";
/// Longest that it may take to print how to reach it.
const READY: Duration = Duration::from_secs(30);

/// Starts it and waits until it listens. It ends when its standard input closes, as it does when this process ends.
pub(super) async fn start(deadlines: &DeadlineArgs) -> Result<(Child, Config), Failure> {
    let failed = |error: &dyn Display| Failure::runtime(format!("the embedded store did not start: {error}"));
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut process = Command::new(program)
        .args([SERVE, "--exit-on-stdin-eof"])
        // An option in the environment is one of ours.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(&error))?;
    let stdout = process.stdout.take().ok_or_else(|| failed(&"it has no standard output"))?;
    let variables = timeout(READY, variables(stdout)).await.map_err(|error| failed(&error))?;
    let overrides = Overrides {
        request_timeout: Some(deadlines.request_timeout_seconds.as_duration()),
        retry_timeout: Some(deadlines.retry_timeout_seconds.as_duration()),
        stall_timeout: Some(deadlines.stall_timeout_seconds.as_duration()),
        ..Overrides::default()
    };
    let config = Config::resolve(Backend::Minio, &overrides, |name| variables.get(name).cloned());
    Ok((process, config.map_err(|error| failed(&error))?))
}

/// The four variables that it prints for a shell.
async fn variables(stdout: ChildStdout) -> HashMap<String, String> {
    let mut lines = BufReader::new(stdout).lines();
    let mut variables = HashMap::new();
    while variables.len() < 4
        && let Ok(Some(line)) = lines.next_line().await
    {
        let variable = line.strip_prefix("export ").and_then(|variable| variable.split_once('='));
        variables.extend(variable.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    variables
}
