//! The order of things: round trips, a trial that sizes the flood, rounds of either job, round trips again.

use std::future::pending;
use std::sync::Arc;

use super::clients::Client;
use super::job::{Job, Layer, Outcome};
use super::page::ms;
use super::report::{Report, RoundTripRow, Rounds};
use super::{Args, queue_loop, raw_loop, service};
use s3mq::cli::{Failure, say};
use s3mq::units::grouped;
use s3mq_clock::Anchor;
use s3mq_queue::storage::{Store, round_trips};
use s3mq_queue::{Lake, QueueError};

/// How many round trips of each kind are measured, before and after.
const ROUND_TRIPS: usize = 50;
/// The trial's flood begins with so many batches.
const TRIAL_BATCHES: u64 = 8;
/// A trial that lasts this long shows the speed.
const TRIAL_SECONDS: f64 = 0.5;
/// The flood is longer than the trial's speed asks for by this much.
const MARGIN: f64 = 1.2;
/// How often a flood is run whose runs are too short.
const MAX_TRIES: usize = 5;

/// Measures all layers on `store`, which has passed its preflight.
pub(super) async fn measure(args: &Arc<Args>, store: &Store) -> Result<Report, Failure> {
    let bench = Bench { args, store };
    let mut round_trips = bench.round_trips("before").await?;
    let flood = bench.flood().await?;
    let paced = bench.rounds("paced", bench.paced()).await?;
    round_trips.extend(bench.round_trips("after").await?);
    Ok(Report::of(args, store, round_trips, &flood, &paced))
}

struct Bench<'a> {
    args: &'a Arc<Args>,
    store: &'a Store,
}

impl Bench<'_> {
    fn say(&self, line: &str) {
        if !self.args.quiet {
            say(line);
        }
    }

    fn job(&self, is_paced: bool, messages: u64) -> Job {
        Job { args: self.args.clone(), is_paced, messages, anchor: Anchor::now() }
    }

    /// The messages of whole batches, at least so many.
    fn whole_batches(&self, messages: f64) -> u64 {
        let batch_messages = self.args.batch_messages;
        ((messages / batch_messages as f64).ceil() as u64).max(TRIAL_BATCHES) * batch_messages
    }

    fn paced(&self) -> Job {
        let rate = self.args.rate.per_second();
        let job = self.job(true, 0);
        // The window opens with the first batch; what comes after it lasts the seconds and the warm-up.
        let seconds = self.args.seconds.as_f64() + self.args.warmup().as_secs_f64();
        Job { messages: job.batch_messages() + (rate * seconds).ceil() as u64, ..job }
    }

    /// A flood that lasts long enough for the fastest layer.
    async fn trial(&self) -> Result<Job, Failure> {
        let least = self.args.seconds.as_f64();
        let mut fastest = 0f64;
        for layer in Layer::ALL {
            let mut job = self.job(false, TRIAL_BATCHES * self.args.batch_messages);
            let outcome = loop {
                let outcome = self.carry(layer, &job).await?;
                if outcome.seconds >= TRIAL_SECONDS.min(least) {
                    break outcome;
                }
                job.messages *= 4;
            };
            fastest = fastest.max(outcome.messages_per_second);
        }
        let job = self.job(false, self.whole_batches(fastest * least * MARGIN));
        let (speed, messages) = (grouped(fastest as u64), grouped(job.messages));
        self.say(&format!("trial: {speed} messages/s at most, so a flood is {messages} messages"));
        Ok(job)
    }

    /// The rounds of a flood in which each run lasted long enough.
    async fn flood(&self) -> Result<Rounds, Failure> {
        let least = self.args.seconds.as_f64();
        let mut job = self.trial().await?;
        let mut tries = 1;
        loop {
            let rounds = self.rounds("flood", job.clone()).await?;
            let shortest = rounds.shortest_seconds();
            if shortest >= least {
                return Ok(rounds);
            }
            if tries == MAX_TRIES {
                return Err(Failure::runtime(format!(
                    "a run lasted {shortest:.2} s where {least} s were asked for, however large it was made: the store \
                     gets faster meanwhile; try again when it is at rest"
                )));
            }
            tries += 1;
            self.say(&format!("a run lasted {shortest:.2} s only; once more with a larger flood"));
            job.messages = self.whole_batches(job.messages as f64 * least / shortest * MARGIN);
        }
    }

    /// All rounds of a job, each beginning with another layer.
    async fn rounds(&self, name: &str, job: Job) -> Result<Rounds, Failure> {
        let mut outcomes: [Vec<Outcome>; 4] = Default::default();
        for round in 0..usize::from(self.args.rounds) {
            let layers = Layer::ALL.len();
            for layer in (0..layers).map(|i| Layer::ALL[(round + i) % layers]) {
                let outcome = self.carry(layer, &job).await?;
                self.say(&format!("{name}, round {}: {}, {}", round + 1, layer.name(), in_words(&outcome)));
                outcomes[layer as usize].push(outcome);
            }
        }
        Ok(Rounds { job, outcomes })
    }

    /// One run of a layer, in a directory that holds nothing but the marker before, and nothing after.
    async fn carry(&self, layer: Layer, job: &Job) -> Result<Outcome, Failure> {
        self.refuse_too_large(job)?;
        let prefix = self.args.prefix.child(layer.name());
        let lake = Lake::new(self.store, prefix.clone())?;
        if let Some(foreign) = s3mq_queue::empty_directory(&lake).await? {
            return Err(QueueError::Foreign { place: lake.describe(), foreign }.into());
        }
        s3mq_queue::mark_directory(&lake).await?;
        let job = Job { anchor: Anchor::now(), ..job.clone() };
        let outcome = match layer {
            Layer::RawSdk | Layer::Raw => {
                raw_loop::run(Client { store: self.store.clone(), prefix, layer }, job).await
            }
            Layer::Queue => queue_loop::run(lake.clone(), job).await,
            Layer::Service => service::run(lake.clone(), job).await,
        };
        let outcome = outcome.map_err(|Failure { exit, message }| Failure {
            exit,
            message: format!("the layer {} failed: {message}", layer.name()),
        })?;
        s3mq_queue::empty_directory(&lake).await?;
        Ok(outcome)
    }

    /// The embedded store may have half of the memory.
    fn refuse_too_large(&self, job: &Job) -> Result<(), Failure> {
        // What the Parquet file of a batch adds to each message, measured at 17-byte messages.
        const OVERHEAD_BYTES: u64 = 5;
        let bytes = job.messages * (job.message_bytes() as u64 + OVERHEAD_BYTES);
        match s3mq_limits::memory_bytes().map(|memory| memory / 2) {
            Some(max_bytes) if self.args.is_embedded() && bytes > max_bytes => Err(Failure::usage(format!(
                "a flood would put {} MB into the embedded store, which may have {} MB; lower --seconds",
                grouped(bytes >> 20),
                grouped(max_bytes >> 20)
            ))),
            _ => Ok(()),
        }
    }

    /// The store's own round trips, with bodies as large as the batches of either job.
    async fn round_trips(&self, when: &str) -> Result<Vec<RoundTripRow>, Failure> {
        let mut rows = Vec::new();
        for is_paced in [true, false] {
            let body_bytes = self.job(is_paced, 0).batch_bytes();
            let trips =
                round_trips(self.store, &self.args.prefix, ROUND_TRIPS, body_bytes, pending()).await?;
            // A tail LISTs only when no commits come.
            let trips = trips.into_iter().flatten().filter(|trip| trip.request != "LIST");
            rows.extend(trips.map(|trip| RoundTripRow {
                when: when.to_owned(),
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
    match &outcome.latency {
        Some(latency) => format!("p50 {} ms, p99 {} ms", ms(latency.p50_us), ms(latency.p99_us)),
        None => {
            let speed = grouped(outcome.messages_per_second as u64);
            format!("{speed} messages/s for {:.1} s", outcome.seconds)
        }
    }
}
