//! The results file. `schemas/layers.schema.json` says what each field is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Args;
use super::figures::{Comparison, Metric, Row};
use super::job::{Job, Layer, Outcome};
use s3mq::cli::VERSION;
use s3mq::machine::Machine;
use s3mq_queue::deltalake_version;
use s3mq_queue::storage::Store;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) build: Build,
    pub(super) machine: Machine,
    pub(super) store: String,
    pub(super) store_server: Option<String>,
    pub(super) job: JobInfo,
    pub(super) round_trip: Vec<RoundTripRow>,
    /// A row for each layer and metric, in their order.
    pub(super) layers: Vec<Row>,
    /// A row for each pair of layers and metric, in their order.
    pub(super) comparisons: Vec<Comparison>,
    /// Measured elsewhere (`scripts/code_cost.py`) and carried over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code_cost: Option<Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Build {
    pub(super) version: String,
    pub(super) rustc: String,
    pub(super) rustflags: String,
    pub(super) deltalake: String,
    pub(super) object_store: String,
    pub(super) aws_sdk_s3: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobInfo {
    pub(super) message_bytes: usize,
    payload: String,
    data_encoding: String,
    unsigned_payload: bool,
    pub(super) flood_messages: u64,
    pub(super) batch_messages: u64,
    paced_messages: u64,
    pub(super) rate: f64,
    pub(super) autocommit_duration_ms: f64,
    warmup_seconds: f64,
    least_seconds: f64,
    shortest_flood_seconds: f64,
    pub(super) rounds: u16,
    pub(super) poll_interval_ms: f64,
    max_inflight_batches: usize,
    max_batches_ahead: usize,
}

/// Round trips of one kind of request, one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RoundTripRow {
    /// `before` the rounds or `after` them.
    pub(super) when: String,
    pub(super) body_bytes: usize,
    pub(super) request: String,
    pub(super) count: usize,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
}

/// What the queue costs; the whole stack; the harness; the two HTTP clients.
const PAIRS: [(Layer, Layer); 4] = [
    (Layer::Queue, Layer::Raw),
    (Layer::Service, Layer::Raw),
    (Layer::Service, Layer::Queue),
    (Layer::RawSdk, Layer::Raw),
];

/// All rounds of a job, by layer.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) job: Job,
    pub(super) outcomes: [Vec<Outcome>; 4],
}

impl Rounds {
    pub(super) fn shortest_seconds(&self) -> f64 {
        self.outcomes.iter().flatten().map(|run| run.seconds).fold(f64::INFINITY, f64::min)
    }
}

impl Report {
    pub(super) fn of(
        args: &Args,
        store: &Store,
        round_trip: Vec<RoundTripRow>,
        flood: &Rounds,
        paced: &Rounds,
    ) -> Self {
        let half_interval_us = args.commit_interval().as_secs_f64() * 1e6 / 2.0;
        let small_us = batch_us(&round_trip, paced.job.batch_bytes(), paced.job.batch_bytes());
        let large_us = batch_us(&round_trip, flood.job.batch_bytes(), paced.job.batch_bytes());
        let row = |layer: Layer, metric: Metric| {
            let runs = if metric.is_of_flood() { flood } else { paced };
            let runs = runs.outcomes[layer as usize].iter();
            let rounds = runs.map(|run| metric.of(run, half_interval_us)).collect();
            Row::of(layer, metric, rounds, |median| match metric {
                Metric::MessagesPerSecond => Some(large_us * median / (args.batch_messages as f64 * 1e6)),
                Metric::CpuUsPerMessage | Metric::PacedCpuUsPerMessage => None,
                _ => (median > 0.0).then(|| small_us / median),
            })
        };
        let layers = Layer::ALL.map(|layer| Metric::ALL.map(|metric| row(layer, metric)));
        let compare_all = |(upper, lower): (Layer, Layer)| {
            let (upper, lower) = (&layers[upper as usize], &layers[lower as usize]);
            std::iter::zip(upper, lower).map(|(upper, lower)| Comparison::of(upper, lower))
        };
        Self {
            build: Build {
                version: VERSION.to_owned(),
                rustc: env!("S3MQ_BUILD_RUSTC").to_owned(),
                rustflags: env!("S3MQ_BUILD_RUSTFLAGS").to_owned(),
                deltalake: deltalake_version().to_owned(),
                object_store: env!("S3MQ_BUILD_OBJECT_STORE").to_owned(),
                aws_sdk_s3: aws_sdk_s3::meta::PKG_VERSION.to_owned(),
            },
            machine: Machine::this(),
            store: store.config().describe(),
            store_server: store.server(),
            job: JobInfo {
                message_bytes: args.message.bytes(),
                payload: format!("{:?}", args.message.payload).to_lowercase(),
                data_encoding: format!("{:?}", args.message.data_encoding).to_lowercase(),
                unsigned_payload: store.config().unsigned_payload(),
                flood_messages: flood.job.messages,
                batch_messages: args.batch_messages,
                paced_messages: paced.job.messages,
                rate: args.rate.per_second(),
                autocommit_duration_ms: args.autocommit_duration_ms as f64,
                warmup_seconds: args.warmup().as_secs_f64(),
                least_seconds: args.seconds.as_f64(),
                shortest_flood_seconds: flood.shortest_seconds(),
                rounds: args.rounds,
                poll_interval_ms: args.poll_interval_ms as f64,
                max_inflight_batches: flood.job.max_inflight(),
                max_batches_ahead: flood.job.max_ahead(),
            },
            round_trip,
            comparisons: PAIRS.into_iter().flat_map(compare_all).collect(),
            layers: layers.into_iter().flatten().collect(),
            code_cost: None,
        }
    }
}

/// The round trips of a batch of `body_bytes`, in microseconds: its data PUT, the conditional PUT, the reader's
/// GETs of the entry (as small as `entry_bytes`) and of the data.
fn batch_us(round_trips: &[RoundTripRow], body_bytes: usize, entry_bytes: usize) -> f64 {
    let mean = |request: &str, body_bytes: usize| {
        let trips =
            round_trips.iter().filter(|trip| trip.request == request && trip.body_bytes == body_bytes);
        let times: Vec<_> = trips.map(|trip| trip.p50_us as f64).collect();
        times.iter().sum::<f64>() / times.len().max(1) as f64
    };
    mean("PUT", body_bytes)
        + mean("conditional PUT", body_bytes)
        + mean("GET", entry_bytes)
        + mean("GET", body_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(when: &str, body_bytes: usize, request: &str, p50_us: u64) -> RoundTripRow {
        let (when, request) = (when.to_owned(), request.to_owned());
        RoundTripRow { when, body_bytes, request, count: 1, p50_us, p99_us: p50_us }
    }

    #[test]
    fn a_batchs_round_trips_are_the_mean_of_before_and_after() {
        let mut trips = Vec::new();
        for (when, times) in [("before", 1), ("after", 3)] {
            trips.push(trip(when, 10, "GET", 100 * times));
            trips.push(trip(when, 10, "absent GET", 7));
            trips.push(trip(when, 1_000, "PUT", 1_000 * times));
            trips.push(trip(when, 1_000, "conditional PUT", 50 * times));
            trips.push(trip(when, 1_000, "GET", 500 * times));
        }
        assert_eq!(batch_us(&trips, 1_000, 10), 2_000.0 + 100.0 + 200.0 + 1_000.0);
    }
}
