//! Waking a task at an exact time.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::monotonic_ns;

/// Wakes a task at a reading of the monotonic clock, to some tens of microseconds.
///
/// tokio's own timer turns once a millisecond, which is as long as a whole round trip to a near store. A
/// `timerfd` is watched by the same reactor as the sockets, so an exact wake costs one system call more and no
/// thread. Where there is none (another kernel, no descriptors left), tokio's timer is used.
#[derive(Debug)]
pub struct Timer {
    fd: Option<AsyncFd<OwnedFd>>,
}

impl Timer {
    /// A timer of the runtime that this is called in.
    #[allow(deprecated, reason = "an OwnedFd keeps what the unsafe successor of `new` asks to be promised")]
    pub fn new() -> Self {
        Self { fd: exact::create().and_then(AsyncFd::new).ok() }
    }

    /// Waits until the monotonic clock reads `at_ns`; no time where that is past.
    ///
    /// Cancel safe: a wait that was dropped doesn't disturb the next.
    pub async fn until_ns(&mut self, at_ns: u64) {
        while at_ns > monotonic_ns() {
            let waited = match &self.fd {
                Some(fd) => exact::wait(fd, at_ns).await,
                None => {
                    tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))).await;
                    Ok(())
                }
            };
            if waited.is_err() {
                self.fd = None;
            }
        }
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "linux")]
mod exact {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::{AsyncFd, OwnedFd, io};

    pub(super) fn create() -> io::Result<OwnedFd> {
        Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?)
    }

    pub(super) async fn wait(fd: &AsyncFd<OwnedFd>, at_ns: u64) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(fd.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            let mut ready = fd.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut expirations)?));
            match read {
                Ok(result) => return result.map(drop),
                // Readiness of an earlier wait that was dropped.
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod exact {
    use super::{AsyncFd, OwnedFd, io};

    pub(super) fn create() -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) async fn wait(_: &AsyncFd<OwnedFd>, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_is_never_over_early() {
        for mut timer in [Timer::new(), Timer { fd: None }] {
            for after_ns in [0, 50_000, 700_000, 3_000_000] {
                let at_ns = monotonic_ns() + after_ns;
                timer.until_ns(at_ns).await;
                assert!(monotonic_ns() >= at_ns);
            }
            timer.until_ns(0).await;
        }
    }

    #[tokio::test]
    async fn a_wait_that_was_dropped_does_not_disturb_the_next() {
        let mut timer = Timer::new();
        for _ in 0..20 {
            let dropped = tokio::time::timeout(
                Duration::from_millis(2),
                timer.until_ns(monotonic_ns() + 3_600_000_000_000),
            );
            assert!(dropped.await.is_err());
            let at_ns = monotonic_ns() + 500_000;
            timer.until_ns(at_ns).await;
            assert!(monotonic_ns() >= at_ns);
        }
    }
}
