//! Other processes, as `/proc` shows them.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::harness::DEADLINE;

/// A process that somebody else started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Its arguments, separated by blanks.
    pub(crate) command: String,
}

impl Process {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.pid as i32).unwrap(), signal);
    }

    /// Whether it has ended. One that nobody has waited for counts as ended, and so does one whose id
    /// now belongs to another command.
    pub(crate) fn is_gone(&self) -> bool {
        parent_and_state(self.pid).is_none_or(|(_, state)| state == 'Z') || command(self.pid) != self.command
    }
}

/// The living children of a process.
pub(crate) fn children(parent: u32) -> Vec<Process> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent_and_state(pid).is_some_and(|(of, state)| of == parent && state != 'Z'))
        .map(|pid| Process { pid, command: command(pid) })
        .collect()
}

/// Looks until `found` gives something; fails the test when it never does.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait_at_most(DEADLINE, what, found)
}

/// Looks until `found` gives something; fails the test when it doesn't within `limit`.
#[track_caller]
pub(crate) fn wait_at_most<T>(limit: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}
