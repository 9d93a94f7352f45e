//! As the first process of a container, s3mq would get every process whose parent has ended, and nobody would wait for
//! them. So the command runs as a child, and this process waits for all.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use crate::child::THIS_PROGRAM;

/// Whether this is the first process.
pub(crate) fn is_this() -> bool {
    std::process::id() == 1
}

/// Runs this program's command line as a child, passes signals on to it, and ends as it does.
pub(crate) fn run() -> io::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut command = Command::new(THIS_PROGRAM);
        // In a group of its own: what a terminal signals to all of this one would reach it twice.
        command.args(std::env::args_os().skip(1)).process_group(0);
        let child = Pid::from_child(&command.spawn()?);
        loop {
            let passed_on = tokio::select! {
                _ = ended.recv() => match status_of(child) {
                    Some(status) => return Ok(exit_code(status)),
                    None => continue,
                },
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            };
            // It may have ended just now.
            let _ = kill_process(child, passed_on);
        }
    })
}

/// Waits for all that have ended; gives how `child` did, where it is among them.
fn status_of(child: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == child {
            found = Some(status);
        }
    }
    found
}

/// As a shell says it: 128 and the signal's number.
fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
