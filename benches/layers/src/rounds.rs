//! The order of things: round trips, a trial that sizes the flood, rounds of either job, round trips again.

use std::future::pending;
use std::time::Duration;

use super::clients::{Objects, Sdk};
use super::report::{RoundTripRow, When};
use super::{Config, Job, JobKind, Layer, LayersError, Outcome, queue_loop, raw_loop, service};
use s3mq::units::grouped;
use s3mq_queue::storage::{Store, round_trips};
use s3mq_queue::{Lake, QueueError};

/// How many round trips of each kind are measured, before and after.
const ROUND_TRIPS: usize = 50;
/// The trial's flood begins with so many batches.
const TRIAL_BATCHES: u64 = 8;
/// A trial that lasts this long tells the speed.
const TRIAL_SECONDS: f64 = 0.5;
/// The flood is longer than the trial's speed asks for by this much.
const MARGIN: f64 = 1.2;
/// How often a flood that was too short may begin again.
const MAX_TRIES: usize = 5;

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub round_trips: Vec<RoundTripRow>,
    pub flood: Job,
    pub paced: Job,
    /// By layer, as [`Layer::ALL`], and round.
    pub flood_outcomes: [Vec<Outcome>; 4],
    pub paced_outcomes: [Vec<Outcome>; 4],
}

pub(super) async fn measure(
    config: &Config,
    store: &Store,
    tell: &mut impl FnMut(&str),
) -> Result<Measured, LayersError> {
    let directories = Layer::ALL.map(|layer| layer.name().to_owned());
    s3mq_queue::refuse_foreign(&Lake::new(store, config.prefix.clone())?, &directories).await?;
    let bench = Bench { config, store };
    let paced = bench.paced();
    let bodies = [paced.batch_bytes(), bench.flood(u64::MAX, 0).batch_bytes()];
    let mut round_trips = bench.round_trips(When::Before, bodies).await?;

    let mut flood = bench.trial(tell).await?;
    let least = config.seconds.as_f64();
    let mut tries = 1;
    let flood_outcomes = loop {
        let outcomes = bench.rounds(&flood, "flood", tell).await?;
        let shortest = outcomes.iter().flatten().map(|run| run.seconds).fold(f64::MAX, f64::min);
        if shortest >= least {
            break outcomes;
        }
        if tries == MAX_TRIES {
            return Err(LayersError::TooShort { shortest, least });
        }
        tries += 1;
        tell(&format!("a run lasted {shortest:.2} s only; once more with a larger flood"));
        flood.messages = bench.whole_batches(flood.messages as f64 * least / shortest * MARGIN);
    };
    let paced_outcomes = bench.rounds(&paced, "paced", tell).await?;

    round_trips.extend(bench.round_trips(When::After, bodies).await?);
    Ok(Measured { round_trips, flood, paced, flood_outcomes, paced_outcomes })
}

struct Bench<'a> {
    config: &'a Config,
    store: &'a Store,
}

impl Bench<'_> {
    fn job(&self, kind: JobKind, messages: u64) -> Job {
        let Config { message_size, padding, data_encoding, poll_interval, .. } = *self.config;
        Job { kind, messages, message_size, padding, data_encoding, poll_interval }
    }

    fn flood(&self, half_a_second: u64, messages: u64) -> Job {
        let batch_messages = self.config.batch_messages;
        self.job(JobKind::Flood { batch_messages, half_a_second: half_a_second.max(1) }, messages)
    }

    /// The messages of whole batches, at least so many.
    fn whole_batches(&self, messages: f64) -> u64 {
        let batch_messages = self.config.batch_messages;
        ((messages / batch_messages as f64).ceil() as u64).max(TRIAL_BATCHES) * batch_messages
    }

    fn paced(&self) -> Job {
        let &Config { rate, commit_interval, seconds, .. } = self.config;
        let warmup = Duration::from_secs_f64(seconds.as_f64() / 10.0);
        let kind = JobKind::Paced { rate, commit_interval, warmup };
        let batch = self.job(kind, 0).batch_messages();
        // The window opens with the first batch; what comes after it lasts the seconds and the warm-up.
        let messages = batch + (rate.per_second() * (seconds.as_f64() + warmup.as_secs_f64())).ceil() as u64;
        self.job(kind, messages)
    }

    /// A flood that lasts long enough for the fastest layer.
    async fn trial(&self, tell: &mut impl FnMut(&str)) -> Result<Job, LayersError> {
        let least = self.config.seconds.as_f64();
        let mut fastest = 0f64;
        for layer in Layer::ALL {
            let mut flood = self.flood(u64::MAX, TRIAL_BATCHES * self.config.batch_messages);
            let outcome = loop {
                let outcome = self.carry(layer, &flood).await?;
                if outcome.seconds >= TRIAL_SECONDS.min(least) {
                    break outcome;
                }
                flood.messages *= 4;
            };
            fastest = fastest.max(outcome.messages_per_second());
        }
        let messages = self.whole_batches(fastest * least * MARGIN);
        let flood = self.flood((fastest / 2.0) as u64, messages);
        let count = grouped(flood.messages);
        tell(&format!(
            "trial: {} messages/s at most, so a flood is {count} messages",
            grouped(fastest as u64)
        ));
        Ok(flood)
    }

    /// All rounds of a job, each beginning with another layer.
    async fn rounds(
        &self,
        job: &Job,
        name: &str,
        tell: &mut impl FnMut(&str),
    ) -> Result<[Vec<Outcome>; 4], LayersError> {
        let mut outcomes: [Vec<Outcome>; 4] = Default::default();
        for round in 0..self.config.rounds {
            let layers = Layer::ALL.len();
            for layer in (0..layers).map(|i| Layer::ALL[(round + i) % layers]) {
                let outcome = self.carry(layer, job).await?;
                tell(&format!("{name}, round {}: {}, {}", round + 1, layer.name(), in_words(&outcome)));
                outcomes[layer as usize].push(outcome);
            }
        }
        Ok(outcomes)
    }

    /// One run of a layer, in a directory that holds nothing but the marker before, and nothing after.
    async fn carry(&self, layer: Layer, job: &Job) -> Result<Outcome, LayersError> {
        self.refuse_too_large(job)?;
        let prefix = self.config.prefix.child(layer.name());
        let place = Lake::new(self.store, prefix.clone())?;
        if let Some(foreign) = s3mq_queue::empty_directory(&place).await? {
            return Err(QueueError::Foreign { place: place.describe(), foreign }.into());
        }
        s3mq_queue::mark_directory(&place).await?;
        let job = job.clone();
        let outcome = match layer {
            Layer::RawSdk => raw_loop::run(layer, Sdk::of(self.store), prefix, job).await,
            Layer::Raw => raw_loop::run(layer, Objects::of(self.store), prefix, job).await,
            Layer::Queue => queue_loop::run(place.clone(), job).await,
            Layer::Service => service::run(place.clone(), job).await,
        }?;
        s3mq_queue::empty_directory(&place).await?;
        Ok(outcome)
    }

    fn refuse_too_large(&self, job: &Job) -> Result<(), LayersError> {
        // What the Parquet file of a batch adds to each message, measured at 17-byte messages.
        const OVERHEAD_BYTES: u64 = 5;
        let bytes = job.messages * (job.payload().message_bytes() as u64 + OVERHEAD_BYTES);
        match self.config.max_bytes {
            Some(most) if bytes > most => Err(LayersError::TooLarge(format!(
                "a flood would put {} MB into the embedded store, which may have {} MB; lower --seconds",
                grouped(bytes >> 20),
                grouped(most >> 20)
            ))),
            _ => Ok(()),
        }
    }

    /// The store's own round trips, with bodies as large as the batches of either job.
    async fn round_trips(&self, when: When, bodies: [usize; 2]) -> Result<Vec<RoundTripRow>, LayersError> {
        let mut rows = Vec::new();
        for body_bytes in bodies {
            let trips =
                round_trips(self.store, &self.config.prefix, ROUND_TRIPS, body_bytes, pending()).await?;
            // A tail lists in silence only.
            let trips = trips.into_iter().flatten().filter(|trip| trip.request != "LIST");
            rows.extend(trips.map(|trip| RoundTripRow {
                when,
                body_bytes,
                request: trip.request.to_owned(),
                count: trip.sorted_us.len(),
                p50_us: trip.percentile_us(50.0),
                p99_us: trip.percentile_us(99.0),
            }));
        }
        Ok(rows)
    }
}

fn in_words(outcome: &Outcome) -> String {
    match outcome.latency_us {
        Some((p50_us, p99_us)) => {
            format!("p50 {:.2} ms, p99 {:.2} ms", p50_us as f64 / 1e3, p99_us as f64 / 1e3)
        }
        None => format!(
            "{} messages/s for {:.1} s",
            grouped(outcome.messages_per_second() as u64),
            outcome.seconds
        ),
    }
}
