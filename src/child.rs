//! A command of this program as a child process. Its pipes are always drained, so that it can't block on them. Its
//! standard input is held open: it closes however we end, and then the child ends too. It has a process group of its
//! own, so that Ctrl-C reaches the parent alone, which ends its children in order.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child as Process, ChildStdin, Command};
use tokio::sync::mpsc;

use crate::events::Event;

/// The program that runs, also where a newer one has got its name meanwhile: results of two builds don't mix.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long a child may take to end in good order.
const GRACE: Duration = Duration::from_secs(2);

/// A running command.
pub(crate) struct Child {
    /// Its role, for messages.
    pub(crate) role: &'static str,
    process: Process,
    events: mpsc::UnboundedReceiver<Event>,
    /// Whether [`next`](Self::next) has given its end.
    pub(crate) has_ended: bool,
    _stdin: Option<ChildStdin>,
}

/// What a child says or does.
pub(crate) enum Said {
    /// An event.
    Event(Event),
    /// It has ended and there are no more events.
    Ended(ExitStatus),
}

impl Child {
    /// Starts this program with `arguments`; `environment` is added to ours, less our own options. What it logs is
    /// passed on where `stderr` is a pipe.
    pub(crate) fn start(
        role: &'static str,
        arguments: &[String],
        environment: &[(String, String)],
        stderr: Stdio,
    ) -> std::io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command
            .arg0("s3mq")
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .kill_on_drop(true);
        // An option of ours in the environment is for the parent; the children get theirs as flags.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("S3MQ_") {
                command.env_remove(name);
            }
        }
        let mut process = command.spawn()?;
        let (sender, events) = mpsc::unbounded_channel();
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(read_events(stdout, sender));
        }
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(pass_on(role, stderr));
        }
        Ok(Self { role, _stdin: process.stdin.take(), process, events, has_ended: false })
    }

    /// The next thing it says; its end comes after its last event. Cancel safe.
    pub(crate) async fn next(&mut self) -> std::io::Result<Said> {
        if let Some(event) = self.events.recv().await {
            return Ok(Said::Event(event));
        }
        let status = self.process.wait().await?;
        self.has_ended = true;
        Ok(Said::Ended(status))
    }

    /// Asks it to end (SIGTERM); what it still says can be read.
    pub(crate) fn ask_to_end(&self) {
        if let Some(pid) = self.process.id().and_then(|id| Pid::from_raw(id as i32)) {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::TERM);
            // One that was stopped can't hear it otherwise.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Ends it: asks, waits a little, kills.
    pub(crate) async fn end(mut self) {
        self.ask_to_end();
        if tokio::time::timeout(GRACE, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}

async fn read_events(stdout: impl AsyncRead + Unpin, events: mpsc::UnboundedSender<Event>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(event) => {
                let _ = events.send(event);
            }
            Err(error) => tracing::debug!("not an event: {line}: {error}"),
        }
    }
}

/// Passes log lines on. A child's own line about its failure is left out: it comes as an event too.
async fn pass_on(role: &'static str, stderr: impl AsyncRead + Unpin) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if !text.starts_with("error: ") {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "[{role}] {text}");
        }
        line.clear();
    }
}
