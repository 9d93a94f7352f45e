//! Lines for people and for scripts. What can't be said to a reader that went away is dropped. Any other failure to write
//! standard output, such as a full disk, fails the command at its end ([`all_said`]).

use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::events::Event;
use crate::report::FaultCount;
use crate::units::grouped;

/// The first failure to write standard output.
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

/// Shows the help, the version or what is wrong with the command line.
pub(crate) fn show(message: &clap::Error) {
    let shown = message.print().and_then(|()| stdout().flush());
    if !message.use_stderr() {
        said(shown);
    }
}

/// What is wrong with standard output, where not all lines came to be on it.
pub(crate) fn all_said() -> Result<(), String> {
    LOST_OUTPUT.get().map_or(Ok(()), |error| Err(format!("standard output could not be written: {error}")))
}

/// A line that should be read, on standard error.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(stderr(), "warning: {message}");
}

/// The line that says why a command failed, on standard error.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(stderr(), "error: {message}");
}

/// An event as a line of JSON on standard output.
pub(crate) fn emit(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        say(&line);
    }
}

/// How far something is: a bar on a terminal, else a plain line every few seconds, or nothing.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// When the next line is printed.
    next_line: Option<Instant>,
    label: String,
    total: Option<u64>,
    unit: &'static str,
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// Progress of `label` in `unit`, of a known total or none, on standard error.
    pub(crate) fn new(label: &str, total: Option<u64>, unit: &'static str, quiet: bool) -> Self {
        // One that can't move its cursor gets lines as a file does.
        let is_terminal =
            stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let bar = (!quiet && is_terminal).then(|| {
            let (bar, template) = match total {
                Some(total) => (ProgressBar::new(total), "{prefix} {wide_bar} {msg} {elapsed}"),
                None => (ProgressBar::new_spinner(), "{prefix} {spinner} {msg} {elapsed}"),
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.with_prefix(label.to_owned())
        });
        let next_line = (!quiet && !is_terminal).then(|| Instant::now() + LINE_EVERY);
        Self { bar, next_line, label: label.to_owned(), total, unit }
    }

    /// It is this far; `text` says it in words.
    pub(crate) fn update(&mut self, done: u64, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(text.to_owned());
        }
        if self.next_line.is_some_and(|next| Instant::now() >= next) {
            self.next_line = Some(Instant::now() + LINE_EVERY);
            let _ = writeln!(stderr(), "{}: {text}", self.label);
        }
    }

    /// Reports an event of a role: as a line of JSON, and how far the role is.
    pub(crate) fn report(&mut self, event: &Event) {
        if let Event::Progress { messages, .. } = event {
            self.count(*messages);
        }
        emit(event);
    }

    /// So many of them are done.
    pub(crate) fn count(&mut self, done: u64) {
        let total = self.total.map_or_else(String::new, |total| format!(" of {}", grouped(total)));
        self.update(done, &format!("{}{total} {}", grouped(done), self.unit));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How often each fault rule fired, a line each.
pub(crate) fn say_faults(before: &str, counts: &[FaultCount]) {
    for FaultCount { position, rule, matcher, action, matched, fired } in counts {
        let name = if *rule == format!("rule {position}") { String::new() } else { format!(" {rule:?}") };
        let (matched, fired) = (grouped(*matched), grouped(*fired));
        say(&format!(
            "{before}fault rule {position}{name} ({action}; {matcher}): fired {fired} of {matched} times"
        ));
    }
}
