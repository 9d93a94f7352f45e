//! Lines for people and for scripts. A reader that went away is nobody's failure: what can't be said to
//! it is dropped. A standard output that can't be written otherwise, as on a full disk, has lost what somebody
//! wanted to keep, and fails the command in its end ([`lost_output`]).

use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::failure::Failure;
use crate::bench::Console;
use crate::events::Event;
use crate::report::{FaultCount, StepReport, percentile_ms};
use crate::units::{Rate, grouped};

/// What standard output said when it could first not be written.
static LOST_OUTPUT: OnceLock<ErrorKind> = OnceLock::new();

/// A line on standard output.
pub fn say(line: &str) {
    let mut out = stdout().lock();
    said(writeln!(out, "{line}").and_then(|()| out.flush()));
}

fn said(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST_OUTPUT.get_or_init(|| error.kind());
    }
}

/// What clap has to say, where it says such things.
///
/// # Errors
/// When that was standard output, and it can't be written.
pub(super) fn show(message: &clap::Error) -> Result<(), Failure> {
    let shown = message.print().and_then(|()| stdout().flush());
    if !message.use_stderr() {
        said(shown);
    }
    all_said()
}

/// Whether all lines came to be on standard output.
///
/// # Errors
/// When one didn't.
pub(super) fn all_said() -> Result<(), Failure> {
    match LOST_OUTPUT.get() {
        Some(error) => Err(Failure::runtime(format!("standard output could not be written: {error}"))),
        None => Ok(()),
    }
}

/// A line that should be read, on standard error.
pub(super) fn warn(message: &str) {
    let _ = writeln!(stderr(), "warning: {message}");
}

/// The line that says why a command failed, on standard error.
pub(super) fn complain(message: &str) {
    let _ = writeln!(stderr(), "error: {message}");
}

/// An event as a line of JSON on standard output.
pub(super) fn emit(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        say(&line);
    }
}

/// How far something is: a bar on a terminal, else a plain line every few seconds, or nothing.
pub(super) struct Progress {
    kind: Kind,
    label: String,
    total: Option<u64>,
}

enum Kind {
    Bar(ProgressBar),
    Lines { next: Instant },
    Quiet,
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// Progress of `label`, of a known total or none, on standard error.
    pub(super) fn new(label: String, total: Option<u64>, quiet: bool) -> Self {
        let kind = if quiet {
            Kind::Quiet
        } else if stderr().is_terminal() {
            let bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            let template = match total {
                Some(_) => "{prefix} {wide_bar} {msg} {elapsed}",
                None => "{prefix} {spinner} {msg} {elapsed}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(label.clone());
            Kind::Bar(bar)
        } else {
            Kind::Lines { next: Instant::now() + LINE_EVERY }
        };
        Self { kind, label, total }
    }

    /// It is this far; `text` says it in words.
    pub(super) fn update(&mut self, done: u64, text: &str) {
        match &mut self.kind {
            Kind::Bar(bar) => {
                bar.set_position(done);
                bar.set_message(text.to_owned());
            }
            Kind::Lines { next } if Instant::now() >= *next => {
                *next = Instant::now() + LINE_EVERY;
                let _ = writeln!(stderr(), "{}: {text}", self.label);
            }
            Kind::Lines { .. } | Kind::Quiet => {}
        }
    }

    /// Tells what a role says: as a line of JSON, and how far it is.
    pub(super) fn tell(&mut self, event: &Event) {
        if let Event::Progress { messages, .. } = event {
            self.messages(*messages);
        }
        emit(event);
    }

    fn messages(&mut self, done: u64) {
        let text = match self.total {
            Some(total) => format!("{} of {} messages", grouped(done), grouped(total)),
            None => format!("{} messages", grouped(done)),
        };
        self.update(done, &text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

/// How often each fault rule fired, a line each.
pub(super) fn say_faults(before: &str, counts: &[FaultCount]) {
    for FaultCount { position, rule, matcher, action, matched, fired } in counts {
        let name = if *rule == format!("rule {position}") { String::new() } else { format!(" {rule:?}") };
        let (matched, fired) = (grouped(*matched), grouped(*fired));
        say(&format!(
            "{before}fault rule {position}{name} ({action}; {matcher}): fired {fired} of {matched} times"
        ));
    }
}

/// Tells of a bench's steps on the terminal.
pub(super) struct StepConsole {
    progress: Option<Progress>,
    quiet: bool,
    verbose: bool,
    planned: u64,
}

impl StepConsole {
    /// `quiet` is without progress, `verbose` with the children's commands.
    pub(super) fn new(quiet: bool, verbose: bool) -> Self {
        Self { progress: None, quiet, verbose, planned: 0 }
    }
}

impl Console for StepConsole {
    fn preload_started(&mut self, rate: Rate, versions: u64, command: &str) {
        if self.verbose {
            say(command);
        }
        self.planned = versions;
        self.progress = Some(Progress::new(format!("rate {rate}, preload"), Some(versions), self.quiet));
    }

    fn preload_progress(&mut self, versions: u64) {
        let text = format!("{} of {} versions", grouped(versions), grouped(self.planned));
        if let Some(progress) = &mut self.progress {
            progress.update(versions, &text);
        }
    }

    fn preload_ended(&mut self, last_version: u64, checkpoints: u64, seconds: f64) {
        self.progress = None;
        say(&format!(
            "preloaded to version {} with {} checkpoint{} in {seconds:.1} s",
            grouped(last_version),
            grouped(checkpoints),
            if checkpoints == 1 { "" } else { "s" }
        ));
    }

    fn step_started(&mut self, rate: Rate, messages: u64, commands: &[String]) {
        if self.verbose {
            commands.iter().for_each(|command| say(command));
        }
        self.planned = messages;
        self.progress = Some(Progress::new(format!("rate {rate}"), Some(messages), self.quiet));
    }

    fn step_progress(&mut self, sent: u64, received: u64) {
        // The roles tell it at different moments; what was received had been sent.
        let sent = sent.max(received);
        let text =
            format!("{} sent, {} received of {}", grouped(sent), grouped(received), grouped(self.planned));
        if let Some(progress) = &mut self.progress {
            progress.update(received, &text);
        }
    }

    fn step_ended(&mut self, step: &StepReport) {
        self.progress = None;
        let latency = step.consumer.latency.as_ref().map_or_else(
            || "nothing measured".to_owned(),
            |latency| {
                format!(
                    "p50 {} ms, p99 {} ms",
                    percentile_ms(latency, 50, latency.p50_us),
                    percentile_ms(latency, 99, latency.p99_us)
                )
            },
        );
        say(&format!(
            "rate {}: {}, {} of {} received, {latency}",
            step.rate,
            step.verdict,
            grouped(step.consumer.received),
            grouped(step.producer.planned)
        ));
        say_faults(&format!("rate {}: ", step.rate), &step.faults);
    }

    fn step_failed(&mut self, rate: Rate, faults: &[FaultCount]) {
        self.progress = None;
        say_faults(&format!("rate {rate}: "), faults);
    }
}
