//! The results file: every figure with everything that it was measured with.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::{Figures, Metric, are_told_apart, is_store_bound, ratio};
use super::rounds::Measured;
use super::{Config, Layer, Outcome};
use s3mq::machine::Machine;
use s3mq_queue::storage::Store;
use s3mq_queue::{DataEncoding, deltalake_version};

/// Results of `s3mq layers`, as they are in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was built.
    pub build: Build,
    /// The machine.
    pub machine: Machine,
    /// The store, without secrets.
    pub store: String,
    /// What it calls itself in its answers.
    pub store_server: Option<String>,
    /// What was carried.
    pub job: JobInfo,
    /// The store's own round trips, before and after.
    pub round_trip: Vec<RoundTripRow>,
    /// A row for each layer and metric.
    pub layers: Vec<Row>,
    /// A row for each pair of layers and metric.
    pub comparisons: Vec<Comparison>,
    /// What the code costs without a store; measured elsewhere and carried over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_cost: Option<Value>,
}

/// How the program was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Build {
    /// Version and commit of s3mq.
    pub version: String,
    /// The compiler.
    pub rustc: String,
    /// Its additional flags; empty where there are none.
    pub rustflags: String,
    /// Version of delta-rs.
    pub deltalake: String,
    /// Version of `object_store`.
    pub object_store: String,
    /// Version of the AWS SDK's S3 client.
    pub aws_sdk_s3: String,
}

impl Build {
    /// `version` is s3mq's; the rest is what the build script saw.
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            rustc: env!("S3MQ_BUILD_RUSTC").to_owned(),
            rustflags: env!("S3MQ_BUILD_RUSTFLAGS").to_owned(),
            deltalake: deltalake_version().to_owned(),
            object_store: env!("S3MQ_BUILD_OBJECT_STORE").to_owned(),
            aws_sdk_s3: aws_sdk_s3::meta::PKG_VERSION.to_owned(),
        }
    }
}

/// What was carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Size of a message.
    pub message_bytes: usize,
    /// What fills a message up.
    pub payload: String,
    /// Encoding of the queue's column `data`.
    pub data_encoding: String,
    /// Whether bodies were left out of request signatures.
    pub unsigned_payload: bool,
    /// Messages of a flood.
    pub flood_messages: u64,
    /// Messages of each of its batches.
    pub batch_messages: u64,
    /// Messages of a paced run, those of the warm-up included.
    pub paced_messages: u64,
    /// Its rate, in messages a second.
    pub rate: f64,
    /// How often its batches were closed.
    pub autocommit_duration_ms: f64,
    /// What was due within this is in no latency.
    pub warmup_seconds: f64,
    /// The least that a measured run was to last.
    pub least_seconds: f64,
    /// What the shortest flood lasted.
    pub shortest_flood_seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The readers' pause after asking for something that wasn't there.
    pub poll_interval_ms: f64,
    /// Batches on their way to the store at once, at most.
    pub max_inflight_batches: usize,
    /// Batches of the flood that were fetched and not read yet, at most.
    pub max_batches_ahead: usize,
}

/// Before the rounds or after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before the first.
    Before,
    /// After the last.
    After,
}

/// Round trips of one kind of request, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTripRow {
    /// When they were measured.
    pub when: When,
    /// Size of the bodies; a conditional PUT's is one byte.
    pub body_bytes: usize,
    /// `PUT`, `conditional PUT`, `GET`, `absent GET`.
    pub request: String,
    /// How many.
    pub count: usize,
    /// Their median.
    pub p50_us: u64,
    /// Their 99th percentile.
    pub p99_us: u64,
}

/// A metric of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which layer.
    pub layer: Layer,
    /// What of it.
    pub metric: Metric,
    /// Its rounds.
    #[serde(flatten)]
    pub figures: Figures,
    /// What the store's own round trips of a batch, one after the other, are of the time that the figure stands
    /// for; above 1 where requests overlap. `None` for processor time, which the store takes none of.
    pub store_share: Option<f64>,
    /// Whether that is half or more.
    pub store_bound: bool,
}

/// A metric of two layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The layer that adds something.
    pub upper: Layer,
    /// What it is compared with.
    pub lower: Layer,
    /// What of them.
    pub metric: Metric,
    /// The upper one's median as a multiple of the lower one's; `None` where they are indistinguishable or one is not above
    /// nothing.
    pub ratio: Option<f64>,
    /// Whether they differ by less than their own rounds do, or there was but one round.
    pub indistinguishable: bool,
    /// Whether both are store-bound.
    pub store_bound: bool,
}

/// What the queue costs; the whole stack; the harness; the two HTTP clients.
const PAIRS: [(Layer, Layer); 4] = [
    (Layer::Queue, Layer::Raw),
    (Layer::Service, Layer::Raw),
    (Layer::Service, Layer::Queue),
    (Layer::RawSdk, Layer::Raw),
];

impl Report {
    pub(super) fn of(config: &Config, store: &Store, build: Build, measured: &Measured) -> Self {
        let Measured { round_trips, flood, paced, flood_outcomes, paced_outcomes } = measured;
        let half_interval_us = config.commit_interval.as_secs_f64() * 1e6 / 2.0;
        let value = |layer: Layer, metric: Metric| -> Vec<f64> {
            let flood = flood_outcomes[layer as usize].iter();
            let paced = paced_outcomes[layer as usize].iter();
            let latency = |run: &Outcome| run.latency_us.unwrap_or_default();
            match metric {
                Metric::MessagesPerSecond => flood.map(Outcome::messages_per_second).collect(),
                Metric::CpuUsPerMessage => flood.map(Outcome::cpu_us_per_message).collect(),
                Metric::LatencyP50Us => paced.map(|run| latency(run).0 as f64).collect(),
                Metric::LatencyP50BeyondHalfIntervalUs => {
                    paced.map(|run| latency(run).0 as f64 - half_interval_us).collect()
                }
                Metric::LatencyP99Us => paced.map(|run| latency(run).1 as f64).collect(),
                Metric::PacedCpuUsPerMessage => paced.map(Outcome::cpu_us_per_message).collect(),
            }
        };
        let small_us = batch_us(round_trips, paced.batch_bytes(), paced.batch_bytes());
        let large_us = batch_us(round_trips, flood.batch_bytes(), paced.batch_bytes());
        let share = |metric: Metric, median: f64| match metric {
            Metric::MessagesPerSecond => Some(large_us / (flood.batch_messages() as f64 * 1e6 / median)),
            Metric::LatencyP50Us | Metric::LatencyP50BeyondHalfIntervalUs | Metric::LatencyP99Us => {
                (median > 0.0).then(|| small_us / median)
            }
            Metric::CpuUsPerMessage | Metric::PacedCpuUsPerMessage => None,
        };
        let layers: Vec<Row> = Layer::ALL
            .into_iter()
            .flat_map(|layer| Metric::ALL.map(|metric| (layer, metric)))
            .map(|(layer, metric)| {
                let figures = Figures::of(metric, value(layer, metric));
                let store_share = share(metric, figures.median);
                let store_bound = store_share.is_some_and(is_store_bound);
                Row { layer, metric, figures, store_share, store_bound }
            })
            .collect();
        let shortest = flood_outcomes.iter().flatten().map(|run| run.seconds).fold(f64::INFINITY, f64::min);
        Self {
            build,
            machine: Machine::this(),
            store: store.config().describe(),
            store_server: store.server(),
            job: JobInfo {
                message_bytes: flood.payload().message_bytes(),
                payload: format!("{:?}", config.padding).to_lowercase(),
                data_encoding: match config.data_encoding {
                    DataEncoding::Plain => "plain".to_owned(),
                    DataEncoding::Prefix => "prefix".to_owned(),
                },
                unsigned_payload: store.config().unsigned_payload(),
                flood_messages: flood.messages,
                batch_messages: flood.batch_messages(),
                paced_messages: paced.messages,
                rate: config.rate.per_second(),
                autocommit_duration_ms: config.commit_interval.as_secs_f64() * 1e3,
                warmup_seconds: config.seconds.as_f64() / 10.0,
                least_seconds: config.seconds.as_f64(),
                shortest_flood_seconds: shortest,
                rounds: config.rounds,
                poll_interval_ms: config.poll_interval.as_secs_f64() * 1e3,
                max_inflight_batches: flood.inflight(),
                max_batches_ahead: flood.ahead(),
            },
            round_trip: round_trips.clone(),
            comparisons: PAIRS
                .into_iter()
                .flat_map(|(upper, lower)| Metric::ALL.map(|metric| (upper, lower, metric)))
                .map(|(upper, lower, metric)| compare(&layers, upper, lower, metric))
                .collect(),
            layers,
            code_cost: None,
        }
    }

    /// The row of a layer and a metric.
    pub fn row(&self, layer: Layer, metric: Metric) -> Option<&Row> {
        find(&self.layers, layer, metric)
    }
}

fn find(rows: &[Row], layer: Layer, metric: Metric) -> Option<&Row> {
    rows.iter().find(|row| (row.layer, row.metric) == (layer, metric))
}

fn compare(rows: &[Row], upper: Layer, lower: Layer, metric: Metric) -> Comparison {
    let halves = find(rows, upper, metric).zip(find(rows, lower, metric));
    let ratio = halves.and_then(|(upper, lower)| ratio(&upper.figures, &lower.figures));
    Comparison {
        upper,
        lower,
        metric,
        ratio,
        indistinguishable: !halves
            .is_some_and(|(upper, lower)| are_told_apart(&upper.figures, &lower.figures)),
        store_bound: halves.is_some_and(|(upper, lower)| upper.store_bound && lower.store_bound),
    }
}

/// The round trips of a batch of `body_bytes`, in microseconds: its data PUT, the conditional PUT, the reader's
/// GETs of the entry (as small as `entry_bytes`) and of the data.
fn batch_us(round_trips: &[RoundTripRow], body_bytes: usize, entry_bytes: usize) -> f64 {
    let mean = |request: &str, body_bytes: usize| {
        let times: Vec<_> = round_trips
            .iter()
            .filter(|trip| trip.request == request && trip.body_bytes == body_bytes)
            .map(|trip| trip.p50_us as f64)
            .collect();
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

    fn trip(when: When, body_bytes: usize, request: &str, p50_us: u64) -> RoundTripRow {
        RoundTripRow { when, body_bytes, request: request.to_owned(), count: 1, p50_us, p99_us: p50_us }
    }

    #[test]
    fn a_batchs_round_trips_are_the_mean_of_before_and_after() {
        let mut trips = Vec::new();
        for (when, times) in [(When::Before, 1), (When::After, 3)] {
            trips.push(trip(when, 10, "GET", 100 * times));
            trips.push(trip(when, 10, "absent GET", 7));
            trips.push(trip(when, 1_000, "PUT", 1_000 * times));
            trips.push(trip(when, 1_000, "conditional PUT", 50 * times));
            trips.push(trip(when, 1_000, "GET", 500 * times));
        }
        assert_eq!(batch_us(&trips, 1_000, 10), 2_000.0 + 100.0 + 200.0 + 1_000.0);
    }

    fn row(layer: Layer, rounds: &[f64], store_bound: bool) -> Row {
        let metric = Metric::LatencyP50Us;
        Row { layer, metric, figures: Figures::of(metric, rounds.to_vec()), store_share: None, store_bound }
    }

    #[test]
    fn a_comparison_has_a_ratio_or_says_that_there_is_none() {
        let rows = [
            row(Layer::Raw, &[10.0, 11.0], true),
            row(Layer::Queue, &[20.0, 22.0], false),
            row(Layer::Service, &[19.0, 25.0], true),
        ];
        let of = |upper, lower| compare(&rows, upper, lower, Metric::LatencyP50Us);
        let queue_to_raw = of(Layer::Queue, Layer::Raw);
        assert_eq!((queue_to_raw.ratio, queue_to_raw.indistinguishable), (Some(2.0), false));
        assert!(!queue_to_raw.store_bound);
        let service_to_queue = of(Layer::Service, Layer::Queue);
        assert_eq!((service_to_queue.ratio, service_to_queue.indistinguishable), (None, true));
        assert!(of(Layer::Service, Layer::Raw).store_bound);
    }
}
