//! SIGINT and SIGTERM, and the end of a parent.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use crate::exit::Exit;
use crate::stop::{Stop, Stopper, stop};

/// How long a role that has lost its parent may take to end in good order.
const ORPHAN_GRACE: Duration = Duration::from_secs(3);

/// A flag that the first SIGINT or SIGTERM sets; the second ends the process at once.
///
/// With `exit_on_stdin_eof`, the end of standard input counts as a signal too. A bench holds the other
/// end of its children's standard input: whatever kills the bench closes it. (The kernel's
/// parent-death signal would also fire when the *thread* that started the child ends.)
pub(super) fn watch(exit_on_stdin_eof: bool) -> Result<Stop, Failure> {
    let cannot = |error: std::io::Error| Failure::runtime(format!("cannot watch for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    // A file that may not grow any further (`ulimit -f`) is an error of the write, as a full disk is, rather than
    // the end of the process.
    let _ignored = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(cannot)?;
    let (stopper, stop) = stop();
    let stopper = Arc::new(stopper);
    if exit_on_stdin_eof {
        watch_stdin(stopper.clone()).map_err(cannot)?;
    }
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stopper.stop() {
                exit_now();
            }
        }
    });
    Ok(stop)
}

fn watch_stdin(stopper: Arc<Stopper>) -> std::io::Result<()> {
    // A thread, not a task: it must work when the runtime is busy or stuck.
    std::thread::Builder::new().name("stdin-watch".to_owned()).spawn(move || {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
        stopper.stop();
        std::thread::sleep(ORPHAN_GRACE);
        exit_now();
    })?;
    Ok(())
}

/// The one place that ends the process in the middle of things, as a second signal asks.
fn exit_now() -> ! {
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
