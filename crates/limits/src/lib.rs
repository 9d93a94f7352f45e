//! What this process may take of its machine: the machine's own memory, and what the control groups that it is in, and
//! their parents, leave of memory and processor time (cgroups v1 and v2).
//! <https://docs.kernel.org/admin-guide/cgroup-v2.html>, <https://docs.kernel.org/admin-guide/cgroup-v1/>

use std::fs;
use std::path::{Path, PathBuf};

/// The memory that this process may have in bytes, where the system says: the least of the machine's and the limits of
/// its control groups.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let machine = line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024;
    let limits = groups("memory").into_iter().filter_map(|group| match group.is_v2 {
        // `max` is no number, and no limit.
        true => group.number("memory.max"),
        false => group.number("memory.limit_in_bytes"),
    });
    limits.chain([machine]).min()
}

/// The processor time that a control group leaves this process, and how often it ran out of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuQuota {
    /// Processors' worth of time: 0.5 is half of one.
    pub processors: f64,
    /// Periods in which the group had something to run.
    pub periods: u64,
    /// Those of them in which it had used its time up and was kept from running.
    pub throttled_periods: u64,
}

/// The least quota of the control groups of this process; `None` where there is none.
pub fn cpu_quota() -> Option<CpuQuota> {
    let quotas = groups("cpu").into_iter().filter_map(|group| {
        let (quota_us, period_us) = if group.is_v2 {
            let max = group.read("cpu.max")?;
            let (quota, period) = max.trim().split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        } else {
            (group.number::<f64>("cpu.cfs_quota_us")?, group.number("cpu.cfs_period_us")?)
        };
        // -1 is none.
        let processors = (quota_us > 0.0 && period_us > 0.0).then_some(quota_us / period_us)?;
        let stat = group.read("cpu.stat").unwrap_or_default();
        let count = |name: &str| {
            let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
            fields
                .find(|(field, _)| *field == name)
                .and_then(|(_, count)| count.trim().parse().ok())
                .unwrap_or(0)
        };
        Some(CpuQuota { processors, periods: count("nr_periods"), throttled_periods: count("nr_throttled") })
    });
    quotas.min_by(|a, b| a.processors.total_cmp(&b.processors))
}

/// A control group of this process for some controller, or a parent of it.
#[derive(Debug, PartialEq)]
struct Group {
    directory: PathBuf,
    is_v2: bool,
}

impl Group {
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    fn number<T: std::str::FromStr>(&self, file: &str) -> Option<T> {
        self.read(file)?.trim().parse().ok()
    }
}

/// The control groups for a controller, from that of this process up to the root.
fn groups(controller: &str) -> Vec<Group> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let found = member_of(&membership, controller).map(|(path, is_v2)| {
        let root = Path::new("/sys/fs/cgroup");
        let root = if is_v2 { root.to_owned() } else { root.join(controller) };
        (root, path, is_v2)
    });
    let Some((root, path, is_v2)) = found else { return Vec::new() };
    let own = root.join(path.trim_start_matches('/'));
    // In a container the path may be the host's, and only the root of what is mounted is there.
    let own = if own.is_dir() { own } else { root.clone() };
    let parents = own.ancestors().take_while(|directory| directory.starts_with(&root));
    parents.map(|directory| Group { directory: directory.to_owned(), is_v2 }).collect()
}

/// The path of the control group for a controller in the form of `/proc/self/cgroup`, and whether it is of version 2.
fn member_of<'a>(membership: &'a str, controller: &str) -> Option<(&'a str, bool)> {
    let entries = || membership.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_v1 = entries().find(|(controllers, _)| controllers.split(',').any(|name| name == controller));
    let of_v2 = || entries().find(|(controllers, _)| controllers.is_empty());
    of_v1.map(|(_, path)| (path, false)).or_else(|| of_v2().map(|(_, path)| (path, true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_controller_is_found_in_either_version() {
        let v1 = "5:cpu,cpuacct:/a\n4:memory:/b/c\n0::/d\n";
        assert_eq!(member_of(v1, "memory"), Some(("/b/c", false)));
        assert_eq!(member_of(v1, "cpu"), Some(("/a", false)));
        assert_eq!(member_of("0::/user.slice/x\n", "memory"), Some(("/user.slice/x", true)));
        assert_eq!(member_of("", "memory"), None);
    }

    #[test]
    fn this_process_may_have_some_memory() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 24));
    }
}
