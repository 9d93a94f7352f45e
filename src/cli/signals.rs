//! SIGINT, SIGTERM and SIGHUP, and the end of a parent.

use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use crate::console::complain;
use crate::exit::Exit;
use crate::machine::value_in;

/// How long a role that has lost its parent may take to end in good order.
const ORPHAN_GRACE: Duration = Duration::from_secs(3);

/// How long the last line of a process that ends at once may take to be said.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A token that the first SIGINT or SIGTERM cancels; the second ends the process at once. A terminal that is closed
/// (SIGHUP) cancels it too, unless `nohup` or alike had us ignore that.
///
/// With `exit_on_stdin_eof`, the end of standard input counts as a signal too. A bench holds the other
/// end of its children's standard input: whatever kills the bench closes it.
pub fn watch(exit_on_stdin_eof: bool) -> Result<CancellationToken, Failure> {
    let cannot = |error: std::io::Error| Failure::runtime(format!("cannot watch for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut hangup = match hangup_is_ignored() {
        true => None,
        false => Some(signal(SignalKind::hangup()).map_err(cannot)?),
    };
    // A file that may not grow any further (`ulimit -f`) is an error of the write, as a full disk is, rather than
    // the end of the process.
    let _ignored = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map_err(cannot)?;
    let stop = CancellationToken::new();
    if exit_on_stdin_eof {
        watch_stdin(stop.clone()).map_err(cannot)?;
    }
    let token = stop.clone();
    tokio::spawn(async move {
        loop {
            let hurry = tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => true,
                // Comes by itself after the end of a parent: nobody is in a hurry.
                Some(_) = async { hangup.as_mut()?.recv().await } => false,
            };
            if stop.is_cancelled() && hurry {
                exit_now();
            }
            stop.cancel();
        }
    });
    Ok(token)
}

/// Whether we were started with SIGHUP ignored; to watch for it would undo that. As if so where the system
/// doesn't say.
fn hangup_is_ignored() -> bool {
    const HANGUP: u64 = 1 << (SignalKind::hangup().as_raw_value() - 1);
    let mask = value_in("/proc/self/status", "SigIgn");
    mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_none_or(|ignored| ignored & HANGUP != 0)
}

fn watch_stdin(stop: CancellationToken) -> std::io::Result<()> {
    // A thread, not a task: it must work when the runtime is busy or stuck.
    std::thread::Builder::new().name("stdin-watch".to_owned()).spawn(move || {
        // One that was stopped wouldn't read of it. The signal also comes when the parent's *thread* that started us
        // ends, which is why it is one that does nothing to a process that runs.
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::CONT)) {
            tracing::debug!("stays stopped if it is stopped when its parent ends: {error}");
        }
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
        stop.cancel();
        std::thread::sleep(ORPHAN_GRACE);
        exit_now();
    })?;
    Ok(())
}

/// The one place that ends the process in the middle of things, as a second signal asks.
fn exit_now() -> ! {
    // Aside, for whoever reads standard error may stand still.
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        complain("interrupted a second time, and ended at once");
        let _ = said.send(());
    });
    let _ = heard.recv_timeout(LAST_WORDS);
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
