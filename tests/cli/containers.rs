//! What a container does to a process: limits of memory, processor time and files, and being the first process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::by;
use crate::processes::{children, wait_for};
use crate::store::Store;

const S3MQ: &str = env!("CARGO_BIN_EXE_s3mq");
const TWO_RATES: &str = "bench --range-start 200 --range-end 400 --range-step 200 --seconds-to-stream 2 \
                         --autocommit-duration-ms 50 --checkpoint-interval 10 --warmup-seconds 0 --quiet";

/// As the first process of a container it inherits every process whose parent has ended.
#[test]
fn as_the_first_process_it_leaves_no_zombies() {
    let unshare = ["unshare", "--fork", "--pid", "--mount-proc"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|done| done.success()) {
        eprintln!("skipped: needs the right to make a pid namespace");
        return;
    }
    let bench = by(&[&unshare[..], &[S3MQ]].concat(), TWO_RATES).spawn();
    let first = wait_for("the first process", || children(bench.pid()).into_iter().next());
    let mut most = 0;
    let finished = loop {
        let zombies = zombies_below(first.pid);
        most = most.max(zombies);
        if first.is_gone() {
            break bench.finish();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    finished.exits(0);
    // One that has just ended may be seen before it is waited for; with each rate one more would stay.
    finished.check(most <= 1, format_args!("{most} zombies at once"));
}

/// The zombies among all descendants of a process.
fn zombies_below(pid: u32) -> usize {
    let stat = |pid: u32| -> Option<(u32, char)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((fields.next()?.parse().ok()?, state))
    };
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&child| stat(child).is_some_and(|(parent, state)| parent == pid && state == 'Z')).count()
}

/// A limit of files that is too low is raised, and what can't be raised is said before anything is begun.
#[test]
fn a_low_limit_of_open_files_is_raised_or_refused() {
    let raised = by(&["prlimit", "--nofile=20:1024", S3MQ], TWO_RATES).run();
    raised.exits(0);
    let refused = by(&["prlimit", "--nofile=20:20", S3MQ], TWO_RATES).run();
    refused.exits(1).complains(&["files", "ulimit -n"]);
}

/// Too few file descriptors are ours, and no failure of the store.
#[test]
fn too_few_file_descriptors_are_never_booked_on_the_store() {
    let store = Store::start();
    store.s3mq("preload --lake-path queue --versions 300 --quiet").run().exits(0);
    let consumer = by(&["prlimit", "--nofile=14:14", S3MQ], "consumer --lake-path queue --start 0");
    let finished = store.variables().fold(consumer, |run, (name, value)| run.env(name, value)).run();
    finished.exits(1);
    finished.check(finished.stderr.contains("ulimit -n"), "what to do");
    finished.check(!finished.stderr.contains("the store does not answer"), "it isn't the store");
    finished.check(finished.stderr.lines().count() < 5, "said once");
}

#[test]
fn a_server_that_runs_out_of_file_descriptors_says_it_once() {
    let mut server = by(&["prlimit", "--nofile=24:24", S3MQ], "serve --data-dir data").spawn();
    let endpoint = server.wait_for_line("its endpoint", |line| {
        line.strip_prefix("export MINIO_S3_ENDPOINT=").map(|url| url.trim_start_matches("http://").to_owned())
    });
    let held: Vec<_> = (0..40).filter_map(|_| std::net::TcpStream::connect(&endpoint).ok()).collect();
    std::thread::sleep(std::time::Duration::from_secs(2));
    drop(held);
    server.signal(Signal::TERM);
    let finished = server.finish();
    let said = finished.stderr.lines().filter(|line| line.contains("file")).count();
    finished.check(said == 1, format_args!("said {said} times"));
}

/// A control group with a limit.
struct ControlGroup {
    directory: PathBuf,
}

impl ControlGroup {
    /// One below the root with this limit, where groups can be made.
    fn limited(bytes: u64) -> Option<Self> {
        let name = format!("s3mq-test-{}-{bytes}", std::process::id());
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let directory = Path::new(root).join(&name);
            if Path::new(root).join("cgroup.procs").exists() && fs::create_dir(&directory).is_ok() {
                if fs::write(directory.join(limit), bytes.to_string()).is_ok() {
                    return Some(Self { directory });
                }
                let _ = fs::remove_dir(&directory);
            }
        }
        None
    }

    /// One with this much processor time in each 100 ms, in microseconds.
    fn with_quota(quota_us: u32) -> Option<Self> {
        let name = format!("s3mq-test-{}-quota", std::process::id());
        for (root, file, text) in [
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota_us.to_string()),
            ("/sys/fs/cgroup", "cpu.max", format!("{quota_us} 100000")),
        ] {
            let directory = Path::new(root).join(&name);
            if Path::new(root).join("cgroup.procs").exists() && fs::create_dir(&directory).is_ok() {
                if fs::write(directory.join(file), text).is_ok() {
                    return Some(Self { directory });
                }
                let _ = fs::remove_dir(&directory);
            }
        }
        None
    }

    /// A group within it without a limit of its own.
    fn child(&self) -> PathBuf {
        let child = self.directory.join("child");
        let _ = fs::create_dir(&child);
        child
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.directory.join("child"));
        let _ = fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_control_groups_memory_limit_is_the_machines() {
    const LIMIT: u64 = 512 << 20;
    let Some(group) = ControlGroup::limited(LIMIT) else {
        eprintln!("skipped: needs the right to make a control group with a memory limit");
        return;
    };
    for directory in [group.directory.clone(), group.child()] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", directory.display());
        let run = |arguments: &str| by(&["sh", "-c", &enter, S3MQ], arguments);
        // More than fits is refused before it is begun.
        let too_much = "bench --range-start 20000 --range-end 20000 --range-step 1 --message-size 1000 \
                        --seconds-to-stream 60 --quiet";
        let refused = run(too_much).env("PATH", "/usr/bin:/bin").run();
        refused.exits(2);
        refused.check(refused.stderr.contains("memory"), "why");
        let fits = run("bench --rate 200 --seconds-to-stream 1 --autocommit-duration-ms 50 --quiet");
        let finished = fits.env("PATH", "/usr/bin:/bin").run();
        finished.exits(0);
        let result: Value = serde_json::from_str(&finished.read("benchmark-results/200.json")).unwrap();
        let memory = result["run"]["machine"]["memory_bytes"].as_u64();
        finished.check(memory == Some(LIMIT), format_args!("{memory:?}"));
    }
}

#[test]
fn a_quota_of_processor_time_that_runs_out_is_said() {
    let Some(group) = ControlGroup::with_quota(20_000) else {
        eprintln!("skipped: needs the right to make a control group with a quota");
        return;
    };
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.directory.display());
    let command = "bench --rate 1M --seconds-to-stream 5 --autocommit-duration-ms 50 --quiet";
    let finished = by(&["sh", "-c", &enter, S3MQ], command).env("PATH", "/usr/bin:/bin").run();
    finished.exits(0).check(finished.stdout.contains("harness-bound"), "the verdict");
    let result: Value = serde_json::from_str(&finished.read("benchmark-results/1000000.json")).unwrap();
    let consumer = &result["result"]["consumer"]["resources"];
    finished
        .check(consumer["cpu_quota"] == 0.2 && consumer["throttled_share"].as_f64() > Some(0.05), consumer);
}
