//! Time, read in one place.
//!
//! Two clocks matter. The *wall clock* (Unix time) is what a message's stamp is made of; it can be
//! stepped by NTP or by hand. The *monotonic clock* (`CLOCK_MONOTONIC`) never steps and is the same
//! for every process of one boot of one host. An [`Anchor`] ties them together once: after that,
//! "now" is the anchor plus monotonic time elapsed, so that a wall-clock step during a run can't
//! turn into latency. `s3mq bench` hands one anchor to both of its roles, which makes their stamps
//! comparable to the microsecond on one host.
//!
//! Across hosts an anchor is of no use (another boot, another monotonic clock): [`Anchor::is_of_this_boot`]
//! says so, and each role then takes its own.

// The one place that may read the raw clocks; clippy.toml bans them elsewhere.
#![allow(clippy::disallowed_methods)]

mod timer;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use timer::Timer;

/// Nanoseconds of `CLOCK_MONOTONIC`: since some fixed point of this boot, never stepping back.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time that this thread has taken, in microseconds; what it waited for a processor isn't in it.
pub fn thread_cpu_us() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// The wall clock as Unix time in microseconds. It may step; prefer an [`Anchor`] for anything that
/// is subtracted.
pub fn wall_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

/// Blocks this thread until the monotonic clock reads `deadline_ns`; at once when it is past.
///
/// Accurate to the kernel's timer slack (tens of microseconds). A task waits with a [`Timer`].
pub fn sleep_until_ns(deadline_ns: u64) {
    let left_ns = deadline_ns.saturating_sub(monotonic_ns());
    if left_ns > 0 {
        std::thread::sleep(Duration::from_nanos(left_ns));
    }
}

/// A wall-clock reading and a monotonic one taken together, and the boot they belong to.
///
/// Its text form, `WALL_US:MONOTONIC_NS:BOOT_ID`, is what `--clock-anchor` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    wall_us: i64,
    monotonic_ns: u64,
    boot_id: String,
}

impl Anchor {
    /// Reads both clocks now.
    pub fn now() -> Self {
        // Of a few tries the one in which the two readings lie closest together wins: a pre-emption
        // between them would shift every stamp of the run.
        let (_, wall_us, monotonic_ns) = (0..5)
            .map(|_| {
                let before = monotonic_ns();
                let wall = wall_us();
                let after = monotonic_ns();
                (after - before, wall, before + (after - before) / 2)
            })
            .min_by_key(|(width_ns, ..)| *width_ns)
            .unwrap_or((0, wall_us(), monotonic_ns()));
        Self { wall_us, monotonic_ns, boot_id: boot_id() }
    }

    /// Whether the anchor was taken since this host booted, and therefore means anything here.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Unix microseconds now: the anchor's wall clock plus the monotonic time since.
    pub fn now_us(&self) -> i64 {
        self.at_us(monotonic_ns())
    }

    /// Unix microseconds at a monotonic reading.
    pub fn at_us(&self, monotonic_ns: u64) -> i64 {
        self.wall_us + (monotonic_ns as i64 - self.monotonic_ns as i64).div_euclid(1_000)
    }

    /// Unix microseconds at which the anchor was taken.
    pub fn origin_us(&self) -> i64 {
        self.wall_us
    }

    /// Microseconds from the anchor to a time that it told; two processes that share an anchor share this
    /// scale.
    pub fn since_us(&self, us: i64) -> i64 {
        us - self.wall_us
    }

    /// How far the wall clock has been stepped (or slewed) since the anchor was taken, in
    /// microseconds; positive when it is ahead.
    pub fn wall_clock_step_us(&self) -> i64 {
        wall_us() - self.now_us()
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_else(|_| "unknown".to_owned())
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.wall_us, self.monotonic_ns, self.boot_id)
    }
}

impl FromStr for Anchor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().unwrap_or_default();
        // What no clock shows would overflow when it is reckoned with.
        let is_a_time = |wall_us: i64, monotonic_ns: u64| {
            wall_us.unsigned_abs() < 1 << 60 && i64::try_from(monotonic_ns).is_ok()
        };
        match (next().parse(), next().parse(), next()) {
            (Ok(wall_us), Ok(monotonic_ns), boot_id)
                if !boot_id.is_empty() && is_a_time(wall_us, monotonic_ns) =>
            {
                Ok(Self { wall_us, monotonic_ns, boot_id: boot_id.to_owned() })
            }
            _ => Err(format!("`{text}` is not WALL_US:MONOTONIC_NS:BOOT_ID")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_survives_its_text_form() {
        let anchor = Anchor::now();
        assert_eq!(anchor.to_string().parse(), Ok(anchor.clone()));
        assert!(anchor.is_of_this_boot());
    }

    #[test]
    fn time_at_the_anchor_is_its_wall_clock() {
        let anchor: Anchor = "1700000000000000:5000000000:boot".parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(anchor.at_us(5_000_000_000), 1_700_000_000_000_000);
        assert_eq!(anchor.at_us(5_000_001_999), 1_700_000_000_000_001);
        assert_eq!(anchor.at_us(4_999_999_000), 1_699_999_999_999_999);
        assert!(!anchor.is_of_this_boot());
    }

    #[test]
    fn a_malformed_anchor_is_refused() {
        for text in [
            "",
            "1",
            "1:2",
            "1:2:",
            "x:2:b",
            "1:-2:b",
            "9223372036854775807:2:b",
            "-9223372036854775808:2:b",
            "1:18446744073709551615:b",
        ] {
            assert!(text.parse::<Anchor>().is_err(), "{text}");
        }
    }
}
