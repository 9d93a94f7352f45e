//! What one rate of a sweep came to, with everything it was run with.

use std::collections::BTreeMap;

use serde::Serialize;
use strum::IntoStaticStr;

use crate::config::{DeadlineArgs, MessageArgs, PollArgs, RunArgs};
use crate::events::{ConsumerSummary, Mark, ProducerSummary};
use crate::machine::Machine;
use crate::report::cost::{Cost, Prices};
use crate::units::{Rate, Seconds};

/// What a rate's figures say of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// It carries this rate.
    Sustained,
    /// It drained, but fell behind.
    Degrading,
    /// The consumer had not caught up when the drain deadline passed.
    Collapsed,
    /// Committed messages were lost, unreadable, doubled or reordered.
    Lossy,
}

/// An outcome and what it was found from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether a failing one may be the harness's own fault.
    pub harness_bound: bool,
    /// What speaks against `sustained`, in words.
    pub reasons: Vec<String>,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.harness_bound { " (harness-bound)" } else { "" };
        write!(f, "{}{mark}", <&str>::from(self.outcome))
    }
}

/// What holds for all rates of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// s3mq's version and commit.
    pub version: &'static str,
    /// Version of delta-rs.
    pub deltalake_version: &'static str,
    /// When the sweep began (RFC 3339, UTC).
    pub begun: String,
    /// The store, without secrets.
    pub store: String,
    /// The latency model of the store; `None` if its times were its own.
    pub store_model: Option<StoreModel>,
    /// The faults that the store injected; `None` where nothing was asked for.
    pub faults: Option<FaultRules>,
    /// How long what was waited for.
    pub deadlines: Deadlines,
    /// What each rate was run with.
    #[serde(flatten)]
    pub run: RunArgs,
    /// What the messages were.
    #[serde(flatten)]
    pub message: MessageArgs,
    /// How the consumer polled.
    #[serde(flatten)]
    pub poll: PollArgs,
    /// Pause between two polls of the fixed policy; the expected commit interval of the adaptive one.
    pub poll_interval_ms: f64,
    /// Whether bodies were left out of request signatures.
    pub unsigned_payload: bool,
    /// What requests and storage are priced with.
    pub prices: Prices,
    /// The machine that both roles ran on.
    pub machine: Machine,
}

/// A latency model, whole, so that a result can be compared and run again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreModel {
    /// What it is called.
    pub name: String,
    /// Where its draws began.
    pub seed: u64,
    /// By operation: percentiles in milliseconds, and bytes a second.
    pub operations: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A fault file, whole, so that a result can be compared and run again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultRules {
    /// Its path, as it was given.
    pub file: String,
    /// Where its draws began.
    pub seed: u64,
    /// Its rules, each as it is written there.
    pub rules: Vec<serde_json::Value>,
}

/// The deadlines of a run, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Deadlines {
    /// Of requests, and of an outage of the store.
    #[serde(flatten)]
    pub requests: DeadlineArgs,
    /// Of the consumer's catching up.
    pub drain_timeout_seconds: Seconds,
}

impl RunInfo {
    /// How the store differs from one as it is: its model, its faults.
    pub fn injected(&self) -> Vec<String> {
        let model = self.store_model.as_ref().map(|model| format!("modelled: {}", model.name));
        let faults = self.faults.as_ref().map(|faults| format!("faults injected: {}", faults.file));
        model.into_iter().chain(faults).collect()
    }

    /// Megabytes of messages (10^6 bytes, without Parquet's own) that were handed over a second.
    pub fn megabytes_per_second(&self, step: &StepReport) -> Option<f64> {
        step.producer.achieved_rate.map(|rate| rate * self.message.bytes() as f64 / 1e6)
    }
}

/// The result of one rate.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Target, messages a second.
    #[serde(serialize_with = "as_number")]
    pub rate: Rate,
    /// What that says of the store.
    pub verdict: Verdict,
    /// What it costs in requests and storage.
    pub cost: Cost,
    /// Messages planned and never committed.
    pub unsent: u64,
    /// When the first interval of `{rate}.intervals.csv` began, in Unix microseconds of the clock that the
    /// raw output has; `null` where it has no rows.
    pub timeline_start_us: Option<i64>,
    /// What happened beside the messages, in the order of its end.
    pub marks: Vec<Mark>,
    /// The faults that the store injected, by rule; empty where nothing was asked for.
    pub faults: Vec<FaultCount>,
    /// The longest that the bench itself stood still, and an embedded store with it, in seconds.
    pub bench_pause_seconds: f64,
    /// How much more memory each role held at its end.
    pub rss_growth: RssGrowth,
    /// The producer's account.
    pub producer: ProducerSummary,
    /// The consumer's account.
    pub consumer: ConsumerSummary,
}

/// How often the turn of a fault rule came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultCount {
    /// The rule's place in its file, counted from 1.
    pub position: usize,
    /// The rule's name.
    pub rule: String,
    /// Which requests it is about, as its file has it.
    pub matcher: String,
    /// What it does, as its file has it.
    pub action: String,
    /// Requests that it matched.
    pub matched: u64,
    /// Requests that it had an effect on.
    pub fired: u64,
}

impl FaultCount {
    /// What came to the `earlier` counts of the same rules.
    pub fn since(counts: Vec<Self>, earlier: &[Self]) -> Vec<Self> {
        let since = |(count, earlier): (Self, &Self)| Self {
            matched: count.matched - earlier.matched,
            // One that was in flight may have been taken back.
            fired: count.fired.saturating_sub(earlier.fired),
            ..count
        };
        counts.into_iter().zip(earlier).map(since).collect()
    }
}

/// The most memory that a role held in the last tenth of the sending, against the most in the first tenth after
/// the warm-up: 0.05 is 5 % more. `None` in a run of fewer than ten intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RssGrowth {
    /// The producer's.
    pub producer: Option<f64>,
    /// The consumer's.
    pub consumer: Option<f64>,
}

fn as_number<S: serde::Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rate.per_second())
}

/// `{rate}.json`: the result of one rate with everything it was run with.
pub fn step_json(info: &RunInfo, step: &StepReport) -> Vec<u8> {
    #[derive(Serialize)]
    struct File<'a> {
        run: &'a RunInfo,
        result: &'a StepReport,
    }
    let mut bytes = serde_json::to_vec_pretty(&File { run: info, result: step }).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
