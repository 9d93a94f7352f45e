//! What this process took of its machine, and which machine that is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use s3mq_clock::monotonic_ns;
use s3mq_limits::{CpuQuota, cpu_quota};

/// What a process took, from its start until now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Processor time of all its threads, user and system, in seconds.
    pub cpu_seconds: f64,
    /// The most memory it held at once, in bytes; 0 where the system doesn't say.
    pub peak_rss_bytes: u64,
    /// The longest that it stood still, in seconds: stopped, swapped out, or without a processor. 0 where
    /// nobody watches ([`watch_pauses`]).
    pub longest_pause_seconds: f64,
    /// Processors' worth of time that its control groups leave it; `None` where they set no quota.
    pub cpu_quota: Option<f64>,
    /// Of the quota's periods while it ran, the share in which it was kept from running; `None` without a quota.
    pub throttled_share: Option<f64>,
}

static QUOTA_AT_START: OnceLock<Option<CpuQuota>> = OnceLock::new();
static LONGEST_PAUSE_NS: AtomicU64 = AtomicU64::new(0);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Measures from now on how long this process stands still, by a thread that wakes ten times a second and notes how late
/// it was woken. Nothing is measured where no thread can be started.
pub fn watch_pauses() {
    let _ = QUOTA_AT_START.set(cpu_quota());
    let _ = std::thread::Builder::new().name("pauses".to_owned()).spawn(|| {
        let mut looked_ns = monotonic_ns();
        loop {
            std::thread::sleep(LOOK_EVERY);
            let now_ns = monotonic_ns();
            let late_ns = (now_ns - looked_ns).saturating_sub(LOOK_EVERY.as_nanos() as u64);
            LONGEST_PAUSE_NS.fetch_max(late_ns, Relaxed);
            looked_ns = now_ns;
        }
    });
}

impl ResourceUsage {
    /// That of this process so far.
    pub fn so_far() -> Self {
        let quota = cpu_quota();
        Self {
            cpu_seconds: cpu_seconds(),
            peak_rss_bytes: status_kib("VmHWM:") * 1024,
            longest_pause_seconds: LONGEST_PAUSE_NS.load(Relaxed) as f64 / 1e9,
            cpu_quota: quota.map(|quota| quota.processors),
            throttled_share: quota.map(throttled_share),
        }
    }
}

/// The share of the periods since [`watch_pauses`] in which the quota was used up.
fn throttled_share(now: CpuQuota) -> f64 {
    let before = QUOTA_AT_START.get().copied().flatten();
    let since = |count: fn(&CpuQuota) -> u64| count(&now).saturating_sub(before.as_ref().map_or(0, count));
    since(|quota| quota.throttled_periods) as f64 / since(|quota| quota.periods).max(1) as f64
}

/// Memory that this process holds now, in bytes; 0 where the system doesn't say.
pub fn rss_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

/// Processor time that this process has taken, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn status_kib(field: &str) -> u64 {
    let amount = value_in("/proc/self/status", field);
    amount.and_then(|amount| amount.strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// What follows `name` and its separator in the first line of a file that begins with it.
pub(crate) fn value_in(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim_matches(|c: char| c.is_whitespace() || "\":=".contains(c)).to_owned())
}

/// The machine, for a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Logical processors that may be used.
    pub processors: usize,
    /// Memory that a process may have, in bytes: the machine's, or a control group's. 0 where the system doesn't say.
    pub memory_bytes: u64,
    /// Operating system, as it names itself.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            cpu: value_in("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: s3mq_limits::memory_bytes().unwrap_or(0),
            os: value_in("/etc/os-release", "PRETTY_NAME").unwrap_or_else(|| std::env::consts::OS.to_owned()),
            kernel: value_in("/proc/sys/kernel/osrelease", "").unwrap_or_else(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_taken_something() {
        let before = cpu_seconds();
        let mut sum = 0u64;
        while cpu_seconds() - before < 0.01 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let usage = ResourceUsage::so_far();
        assert!(usage.cpu_seconds >= before + 0.01 && usage.peak_rss_bytes > 1 << 20, "{usage:?}");
        assert!((1 << 20..=ResourceUsage::so_far().peak_rss_bytes).contains(&rss_bytes()));
        assert!(Machine::this().memory_bytes >= usage.peak_rss_bytes);
    }
}
