//! Every process of a bench is killed, asked to end, or stopped for a while, in every phase of a rate: it ends
//! in time with the right exit code, one line that says why, no process left, and nothing that looks whole.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, s3mq};
use crate::processes::{Process, children, wait_at_most, wait_for};

/// A bench promises to be gone within 5 s; ten of them at once on a busy machine get longer.
const IN_TIME: Duration = Duration::from_secs(20);
/// How long a process stands still.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Bench,
    Consumer,
    Producer,
}
use Target::{Bench, Consumer, Producer};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Send(Signal),
    StopForAWhile,
}

const DEEDS: [Deed; 4] =
    [Deed::Send(Signal::KILL), Deed::Send(Signal::TERM), Deed::Send(Signal::INT), Deed::StopForAWhile];

/// A phase: the options that make it last, and how to tell that a bench is in it, given which process is meant.
struct Phase {
    options: &'static str,
    /// A fault rule's matcher and delay; empty where nothing is delayed.
    delayed: &'static str,
    targets: &'static [Target],
    reached: fn(&Running, Target) -> bool,
}

impl Phase {
    /// Does everything to everyone, in benches of their own that run at once.
    fn survives_everything(&'static self) {
        let cases = self.targets.iter().flat_map(|&target| DEEDS.map(|deed| (target, deed)));
        let running: Vec<_> =
            cases.map(|(target, deed)| std::thread::spawn(move || self.survives(target, deed))).collect();
        let failed = running.into_iter().filter_map(|case| case.join().err()).count();
        assert_eq!(failed, 0, "see above");
    }

    fn survives(&self, target: Target, deed: Deed) {
        let bench = s3mq(&format!(
            "bench --range-start 100 --range-end 100 --range-step 1 --data-dir data \
             --autocommit-duration-ms 100 --quiet {}",
            self.options
        ));
        let bench = if self.delayed.is_empty() { bench } else { bench.delaying(self.delayed) };
        let mut bench = bench.spawn();
        let name = format!("{target:?}, {deed:?}");
        wait_for(&name, || (self.reached)(&bench, target).then_some(()));
        let roles = children(bench.pid());
        let process = match target {
            Bench => None,
            Consumer => Some(role(&bench, "consumer").unwrap()),
            Producer => Some(role(&bench, "producer").unwrap()),
        };
        let send = |bench: &Running, signal| match &process {
            Some(process) => process.signal(signal),
            None => bench.signal(signal),
        };
        match deed {
            Deed::Send(signal) => send(&bench, signal),
            Deed::StopForAWhile => {
                send(&bench, Signal::STOP);
                std::thread::sleep(PAUSE);
                send(&bench, Signal::CONT);
            }
        }
        assert!(!bench.has_ended() || deed != Deed::StopForAWhile, "{name}: ended by a pause");
        let finished = bench.finish_within(IN_TIME);
        wait_at_most(IN_TIME, "the end of the roles", || roles.iter().all(Process::is_gone).then_some(()));

        let whole = |name: &String| name.contains("100.") && !name.ends_with(".partial");
        let results: Vec<_> =
            finished.files().into_iter().filter(|name| name.starts_with("benchmark-results/")).collect();
        if deed == Deed::StopForAWhile {
            finished.exits(0).check(results.iter().filter(|name| whole(name)).count() == 4, &name);
            let result = finished.read("benchmark-results/100.json");
            finished.check(result.contains("\"received\": 300,"), format_args!("{name}: not all came"));
            return;
        }
        finished.check(!results.iter().any(whole), format_args!("{name}: something looks whole"));
        finished.check(
            !results.iter().any(|name| name.ends_with("summary.csv")),
            format_args!("{name}: a summary"),
        );
        match (target, deed) {
            (Bench, Deed::Send(Signal::KILL)) => {}
            (Bench, _) => {
                finished.exits(130).complains(&["interrupted"]);
            }
            (Consumer, _) => {
                finished.exits(1).complains(&["rate 100", "consumer"]);
            }
            (Producer, _) => {
                finished.exits(1).complains(&["rate 100", "producer"]);
            }
        }
    }
}

fn role(bench: &Running, role: &str) -> Option<Process> {
    children(bench.pid()).into_iter().find(|child| child.command.split(' ').nth(1) == Some(role))
}

fn is_there(bench: &Running, target: Target) -> bool {
    match target {
        // The roles come one after the other.
        Bench | Consumer => role(bench, "consumer").is_some(),
        Producer => role(bench, "producer").is_some(),
    }
}

/// Whether the store has a data file of the producer.
fn has_data(bench: &Running) -> bool {
    crate::store::keys_below(&bench.path("data")).iter().any(|key| key.ends_with(".parquet"))
}

#[test]
fn while_it_opens() {
    static OPENING: Phase = Phase {
        // Whoever opens a table lists it.
        options: "--seconds-to-stream 3",
        delayed: "method = 'LIST'\ndelay_ms = 700",
        targets: &[Bench, Consumer, Producer],
        reached: is_there,
    };
    OPENING.survives_everything();
}

#[test]
fn while_it_warms_up() {
    static WARM_UP: Phase = Phase {
        options: "--seconds-to-stream 3 --warmup-seconds 2.9",
        delayed: "",
        targets: &[Bench, Consumer, Producer],
        reached: |bench, _| has_data(bench),
    };
    WARM_UP.survives_everything();
}

#[test]
fn while_it_streams() {
    static STREAMING: Phase = Phase {
        options: "--seconds-to-stream 3 --warmup-seconds 0",
        delayed: "",
        targets: &[Bench, Consumer, Producer],
        reached: |bench, _| {
            let rows = std::fs::read_to_string(bench.path("benchmark-results/100.csv.partial"));
            rows.is_ok_and(|text| text.lines().count() > 1)
        },
    };
    STREAMING.survives_everything();
}

#[test]
fn while_it_drains() {
    static DRAINING: Phase = Phase {
        options: "--seconds-to-stream 3",
        delayed: "method = 'GET'\nkey = '*.parquet'\ndelay_ms = 3_000",
        // The producer is through.
        targets: &[Bench, Consumer],
        reached: |bench, _| has_data(bench) && role(bench, "producer").is_none(),
    };
    DRAINING.survives_everything();
}
