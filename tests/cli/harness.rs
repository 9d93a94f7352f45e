//! Runs `s3mq` and, when a check fails, shows everything that is needed to see what happened.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// No command of these tests may take longer; one that does is killed and fails its test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A command line that can be completed before it is run.
pub(crate) struct S3mq {
    command: Command,
    directory: Arc<TempDir>,
    reads_one_line: bool,
    stdout: Option<&'static str>,
    stderr: Option<&'static str>,
}

/// `s3mq` with these arguments, separated by blanks, in a fresh directory and without any variable that
/// it knows.
pub(crate) fn s3mq(arguments: &str) -> S3mq {
    by(&[env!("CARGO_BIN_EXE_s3mq")], arguments)
}

/// The same by other words: what runs `s3mq`, or a copy of it.
pub(crate) fn by(program: &[&str], arguments: &str) -> S3mq {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(arguments.split_whitespace()).env_clear().current_dir(directory.path());
    // No profile of whoever runs the tests.
    command.env("HOME", directory.path());
    S3mq { command, directory, reads_one_line: false, stdout: None, stderr: None }
}

impl S3mq {
    /// One more argument, which may be empty or contain blanks.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// One more variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Has the embedded store delay the requests that a fault rule matches, which must name `delay_ms` too.
    pub(crate) fn delaying(self, rule: &str) -> Self {
        let file = self.path("faults.toml");
        fs::write(&file, format!("[[rule]]\naction = 'delay'\n{rule}")).unwrap();
        self.arg("--faults").arg(file)
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One variable less.
    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs it where another command ran.
    pub(crate) fn in_directory_of(mut self, other: &Finished) -> Self {
        self.directory = other.directory.clone();
        self.command.current_dir(self.directory.path());
        self
    }

    /// Makes it the leader of a process group, which can then be signalled as a terminal does.
    pub(crate) fn leading_a_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Closes its standard output once one line of it was read, as `head -1` does.
    pub(crate) fn read_one_line_only(mut self) -> Self {
        self.reads_one_line = true;
        self
    }

    /// Has its standard output written to this file, and so not read.
    pub(crate) fn stdout_to(self, path: &'static str) -> Self {
        Self { stdout: Some(path), ..self }
    }

    /// Has its standard error written to this file, and so not read.
    pub(crate) fn stderr_to(self, path: &'static str) -> Self {
        Self { stderr: Some(path), ..self }
    }

    /// Starts it.
    pub(crate) fn spawn(mut self) -> Running {
        let output = |path: Option<&str>| match path {
            Some(path) => Stdio::from(fs::OpenOptions::new().write(true).open(path).unwrap()),
            None => Stdio::piped(),
        };
        self.command.stdin(Stdio::null()).stdout(output(self.stdout)).stderr(output(self.stderr));
        let mut child = self.command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout: Box<dyn Read + Send> = match child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(std::io::empty()),
        };
        let stderr = child.stderr.take();
        let most = if self.reads_one_line { 1 } else { usize::MAX };
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok).take(most) {
                text.push_str(&line);
                text.push('\n');
                // Whoever waited for lines may have seen enough.
                let _ = sender.send(line);
            }
            text
        });
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.map(|mut stderr| stderr.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let command = self.command.get_args().map(|argument| argument.to_string_lossy().into_owned());
        Running {
            command: command.collect::<Vec<_>>().join(" "),
            directory: self.directory,
            until: Instant::now() + DEADLINE,
            lines,
            readers: Some((stdout, stderr)),
            child,
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Finished {
        self.spawn().finish()
    }
}

/// A command that was started. It is killed when it is dropped.
pub(crate) struct Running {
    command: String,
    directory: Arc<TempDir>,
    until: Instant,
    lines: Receiver<String>,
    readers: Option<(JoinHandle<String>, JoinHandle<String>)>,
    child: Child,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits for a line of its standard output for which `wanted` gives something.
    #[track_caller]
    pub(crate) fn wait_for_line<T>(&mut self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        loop {
            match self.lines.recv_timeout(self.until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return found;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.give_up(&format!("never said {what}")),
                Err(RecvTimeoutError::Disconnected) => {
                    self.collect().check(false, format_args!("ended without having said {what}"));
                }
            }
        }
    }

    /// Waits until a role has said this event, and it is as wanted.
    #[track_caller]
    pub(crate) fn wait_for_event(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_line(name, |line| event(line, name).filter(&wanted))
    }

    /// Waits until the role has sent or received something.
    #[track_caller]
    pub(crate) fn wait_for_progress(&mut self) {
        self.wait_for_event("progress", |event| event["messages"].as_u64() > Some(0));
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Sends its process group a signal, as a terminal does.
    pub(crate) fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        while !self.has_ended() {
            if Instant::now() > self.until {
                self.give_up("did not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.collect()
    }

    /// Waits for its end, which has to come within `limit` from now.
    #[track_caller]
    pub(crate) fn finish_within(mut self, limit: Duration) -> Finished {
        self.until = Instant::now() + limit;
        self.finish()
    }

    #[track_caller]
    fn give_up(&mut self, what: &str) -> ! {
        let finished = self.collect();
        finished.check(false, format_args!("{what} in time and was killed"));
        unreachable!()
    }

    /// Ends it, where it hasn't ended, and gathers what there is.
    fn collect(&mut self) -> Finished {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap();
        let (stdout, stderr) = self.readers.take().unwrap();
        Finished {
            command: self.command.clone(),
            status,
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
            directory: self.directory.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
pub(crate) struct Finished {
    command: String,
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    directory: Arc<TempDir>,
}

impl Finished {
    /// Fails the test unless this holds, and shows everything.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, what: impl Display) -> &Self {
        assert!(holds, "{what}\n{self}");
        self
    }

    /// It ended with this exit code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        self.check(self.status.code() == Some(code), format_args!("expected exit code {code}"))
    }

    /// It said one line on standard error, which has all of these words.
    #[track_caller]
    pub(crate) fn complains(&self, words: &[&str]) -> &Self {
        let is_one_line = self.stderr.lines().count() == 1 && self.stderr.starts_with("error: ");
        self.check(is_one_line, "expected one line on standard error");
        for word in words {
            self.check(self.stderr.contains(word), format_args!("standard error does not say `{word}`"));
        }
        self
    }

    /// It refused its input with these words before it did anything.
    #[track_caller]
    pub(crate) fn refuses(&self, words: &[&str]) -> &Self {
        self.exits(2);
        // What clap refuses may have clap's shape: the reason, then a pointer to the help.
        let reason = match self.stderr.split_once("\n\nFor more information, try '--help'.") {
            Some((reason, "\n")) => reason.split("\n\nUsage: ").next().unwrap_or_default(),
            _ => {
                self.check(self.stderr.lines().count() == 1, "expected one line on standard error");
                self.stderr.trim_end()
            }
        };
        self.check(reason.starts_with("error: "), "standard error does not begin with `error: `");
        for word in words {
            self.check(reason.contains(word), format_args!("the reason does not say `{word}`"));
        }
        self.check(self.stdout.is_empty(), "it said something on standard output");
        self.check(self.files().is_empty(), "it left something behind")
    }

    /// The last event of this name on standard output.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let found = self.stdout.lines().rev().find_map(|line| event(line, name));
        self.check(found.is_some(), format_args!("no event `{name}`"));
        found.unwrap()
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The text of a file in its directory.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(name));
        self.check(text.is_ok(), format_args!("cannot read {name}"));
        text.unwrap()
    }

    /// All files below its directory, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        files_below(self.directory.path())
    }
}

impl Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = self.status.signal().map(|signal| format!(" by signal {signal}")).unwrap_or_default();
        writeln!(f, "command: s3mq {}", self.command)?;
        writeln!(f, "ended: {}{signal}", self.status)?;
        writeln!(f, "--- standard output\n{}", shortened(&self.stdout))?;
        writeln!(f, "--- standard error\n{}", shortened(&self.stderr))?;
        writeln!(f, "--- files\n{}", self.files().join("\n"))
    }
}

/// The ends of a text that is too long to be read.
fn shortened(text: &str) -> String {
    const LINES: usize = 60;
    let lines: Vec<_> = text.lines().collect();
    match lines.len().checked_sub(2 * LINES) {
        None | Some(0) => text.to_owned(),
        Some(left_out) => {
            let (head, tail) = (lines[..LINES].join("\n"), lines[lines.len() - LINES..].join("\n"));
            format!("{head}\n... {left_out} lines ...\n{tail}")
        }
    }
}

fn event(line: &str, name: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok().filter(|event| event["event"] == name)
}

/// All files and empty directories below a directory, sorted, as paths relative to it.
fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        let entries: Vec<_> = fs::read_dir(&next).into_iter().flatten().flatten().collect();
        if entries.is_empty() && next != directory {
            files.push(next.clone());
        }
        for entry in entries {
            if entry.path().is_dir() { left.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    let relative = |path: &PathBuf| path.strip_prefix(directory).unwrap().display().to_string();
    let mut names: Vec<_> = files.iter().map(relative).collect();
    names.sort();
    names
}
