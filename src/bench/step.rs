//! One rate: the consumer first, the producer once it is ready, then both to their end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use tokio::time::{Instant, sleep_until};

use super::deadlines::{Drain, IdleTimeout, Ticks};
use super::growth::growth;
use super::verdict::{Evidence, verdict};
use super::{BenchError, Config, Console, Files, arguments};
use crate::child::{Child, Said};
use crate::events::{
    CheckpointOutcome, ConsumerSummary, Ended, Event, Mark, ProducerSummary, ReceivedInterval, SentInterval,
};
use crate::exit::Exit;
use crate::report::{self, Cost, RssGrowth, StepReport, TimelineRow, join};
use crate::units::Rate;
use s3mq_clock::Anchor;
use s3mq_queue::storage::Prefix;
use tokio_util::sync::CancellationToken;

/// One rate of a sweep.
pub(super) struct Step<'a> {
    pub(super) config: &'a Config,
    pub(super) rate: Rate,
    /// Where its table is.
    pub(super) prefix: Prefix,
    pub(super) files: Files,
    pub(super) stop: &'a CancellationToken,
    pub(super) console: &'a mut Console,
}

const PRELOAD: &str = "preload";
const PRODUCER: &str = "producer";
const CONSUMER: &str = "consumer";
const INTERRUPTED: &str = "was interrupted by somebody else";

/// How much later than its children a bench may hear of a signal to all of them.
const SIGNAL_SKEW: Duration = Duration::from_secs(1);

/// Longest that a child may take to say that it is ready, and how much longer for each version that its table was
/// preloaded with: without a checkpoint it reads them all, which was measured to take less than half of this.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_TIMEOUT_A_VERSION: Duration = Duration::from_millis(1);

/// Longest that a child may take to say that it is ready. A store that doesn't answer is the child's to notice.
pub(super) fn ready_timeout(config: &Config) -> Duration {
    let preloaded = u32::try_from(config.info.run.preload_versions).unwrap_or(u32::MAX);
    READY_TIMEOUT
        + READY_TIMEOUT_A_VERSION * preloaded
        + config.info.deadlines.requests.stall_timeout_seconds.as_duration()
}

/// Longest that a role may report nothing: as long as it may take to begin, and to bring one request to its end.
fn idle_timeout(config: &Config) -> Duration {
    ready_timeout(config) + config.info.deadlines.requests.retry_timeout_seconds.as_duration()
}

fn was_idle(limit: Duration) -> String {
    format!("has said nothing for {} s; is it stopped (SIGSTOP) or frozen?", limit.as_secs())
}

impl Step<'_> {
    /// Runs it to its end; gives what came of it, and its timeline. The faults are left to the sweep.
    pub(super) async fn run(&mut self) -> Result<(StepReport, Vec<TimelineRow>), BenchError> {
        match self.run_to_its_end().await {
            // A signal to a whole group may reach the children first.
            Err(BenchError::Role { problem, .. })
                if problem == INTERRUPTED
                    && tokio::time::timeout(SIGNAL_SKEW, self.stop.cancelled()).await.is_ok() =>
            {
                Err(BenchError::Interrupted)
            }
            ended => ended,
        }
    }

    async fn run_to_its_end(&mut self) -> Result<(StepReport, Vec<TimelineRow>), BenchError> {
        let first_version = self.preload().await?;
        let anchor = Anchor::now();
        let mut heard = self.run_roles(&anchor, first_version).await?;
        let (Some(producer), Some(consumer)) = (heard.produced.take(), heard.consumed.take()) else {
            return Err(self.failed(CONSUMER, "ended without a result".to_owned()));
        };
        if heard.collapsed {
            // The consumer was asked to end and left its files marked as partial; what they hold is the result.
            self.files.of_consumer(report::promote)?;
        }
        Ok(self.report(heard, producer, consumer, &anchor))
    }

    /// Ages the table, where that is asked for, in a process of its own: what it takes of memory and connections is
    /// gone when the measuring begins. Gives the first version after the preload.
    async fn preload(&mut self) -> Result<Option<u64>, BenchError> {
        let versions = self.config.info.run.preload_versions;
        if versions == 0 {
            return Ok(None);
        }
        let arguments = arguments::preload(self);
        let label = format!("rate {}, preload", self.rate);
        self.console.started(&label, versions, "versions", &[&arguments]);
        let mut child = self.start(PRELOAD, &arguments)?;
        let limit = idle_timeout(self.config);
        let preloaded = self
            .listen(&mut child, limit, was_idle(limit), |console, event| match event {
                Event::Progress { messages, .. } => {
                    console.preload_progress(messages);
                    None
                }
                Event::Preloaded { last_version, checkpoints, seconds } => {
                    console.preload_ended(last_version, checkpoints, seconds);
                    Some(last_version + 1)
                }
                _ => None,
            })
            .await;
        child.end().await;
        preloaded.map(Some)
    }

    /// Starts both roles and listens to them until they have ended.
    async fn run_roles(&mut self, anchor: &Anchor, first_version: Option<u64>) -> Result<Heard, BenchError> {
        let messages = self.rate.messages_in(self.config.info.run.seconds_to_stream);
        let consumer_line = arguments::consumer(self, anchor, first_version);
        let producer_line = arguments::producer(self, anchor, messages);
        let commands = [consumer_line.as_slice(), producer_line.as_slice()];
        self.console.started(&format!("rate {}", self.rate), messages, "messages", &commands);

        let mut consumer = self.start(CONSUMER, &consumer_line)?;
        let limit = ready_timeout(self.config);
        let problem = format!("was not ready within {} s", limit.as_secs());
        let is_ready = |_: &mut Console, event| matches!(event, Event::Ready).then_some(());
        let ready = self.listen(&mut consumer, limit, problem, is_ready).await;
        let mut producer = match ready.and_then(|()| self.start(PRODUCER, &producer_line)) {
            Ok(producer) => producer,
            Err(error) => {
                consumer.end().await;
                return Err(error);
            }
        };
        let outcome = self.watch(&mut consumer, &mut producer).await;
        if outcome.is_err() {
            tokio::join!(producer.end(), consumer.end());
        }
        outcome
    }

    /// Starts a child.
    fn start(&self, role: &'static str, arguments: &[String]) -> Result<Child, BenchError> {
        Child::start(role, arguments, &self.config.store.environment, Stdio::piped())
            .map_err(|error| self.failed(role, format!("could not be started: {error}")))
    }

    /// This happened to a role.
    fn failed(&self, role: &'static str, problem: String) -> BenchError {
        BenchError::Role { rate: self.rate, role, problem }
    }

    fn report(
        &self,
        heard: Heard,
        producer: ProducerSummary,
        consumer: ConsumerSummary,
        anchor: &Anchor,
    ) -> (StepReport, Vec<TimelineRow>) {
        let Heard { sent_intervals: sent, received_intervals: received, marks, collapsed, .. } = heard;
        let (rate, run) = (self.rate, &self.config.info.run);
        let (bench_pause_seconds, warmup_seconds) =
            (heard.longest_pause.as_secs_f64(), run.warmup_seconds.unwrap_or(0.0));
        let interval_seconds = run.timeline.interval_seconds.as_f64();
        let interval_us = run.timeline.interval_seconds.as_duration().as_micros() as i64;
        // One that was skipped took none of the timeline.
        let begun = marks.iter().filter(|mark| mark.outcome != CheckpointOutcome::Skipped);
        let checkpoints: Vec<_> =
            begun.map(|mark| anchor.since_us(mark.started_us).div_euclid(interval_us)).collect();
        let timeline = join(interval_seconds, &sent, &received, &checkpoints);
        let verdict = verdict(&Evidence {
            rate,
            commit_interval: run.commit.interval(),
            interval_seconds,
            warmup_seconds,
            collapsed,
            bench_pause_seconds,
            producer: &producer,
            consumer: &consumer,
            timeline: &timeline,
        });
        let idle_pause = self.config.poll.longest_pause();
        let cost = Cost::of(&self.config.info.prices, &producer, &consumer.running_requests, idle_pause);
        let first_interval = sent.iter().map(|row| row.index).min();
        let grown = |rss_bytes| growth(&timeline, interval_seconds, warmup_seconds, rss_bytes);
        let rss_growth = RssGrowth {
            producer: grown(|row| row.producer_rss_bytes),
            consumer: grown(|row| row.consumer_rss_bytes),
        };
        let step = StepReport {
            rate,
            verdict,
            cost,
            unsent: producer.planned.saturating_sub(producer.committed),
            timeline_start_us: first_interval.map(|index| anchor.origin_us() + index * interval_us),
            marks,
            faults: Vec::new(),
            bench_pause_seconds,
            rss_growth,
            producer,
            consumer,
        };
        (step, timeline)
    }

    /// Listens to a child until `take` makes something of an event; `overdue` is what is wrong with it when it has
    /// reported nothing for `limit`.
    async fn listen<T>(
        &mut self,
        child: &mut Child,
        limit: Duration,
        overdue: String,
        take: impl Fn(&mut Console, Event) -> Option<T>,
    ) -> Result<T, BenchError> {
        let (mut ticks, mut idle) = (Ticks::begin(), IdleTimeout::new(limit));
        let problem = loop {
            let said = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(BenchError::Interrupted),
                said = child.next() => said?,
                _ = ticks.next() => if idle.tick() { break overdue } else { continue },
            };
            idle.reset();
            match said {
                Said::Event(Event::Failed { error, exit_code, .. }) => break failure(&error, exit_code),
                Said::Event(event) => {
                    if let Some(taken) = take(self.console, event) {
                        return Ok(taken);
                    }
                }
                Said::Ended(status) => break ended_early(status),
            }
        };
        Err(self.failed(child.role, problem))
    }

    /// Listens to both until both have ended, the consumer within the drain deadline.
    async fn watch(&mut self, consumer: &mut Child, producer: &mut Child) -> Result<Heard, BenchError> {
        let (mut heard, mut ticks) = (Heard::default(), Ticks::begin());
        let limit = idle_timeout(self.config);
        let (mut producer_idle, mut consumer_idle) = (IdleTimeout::new(limit), IdleTimeout::new(limit));
        while !(producer.has_ended && consumer.has_ended) {
            let drain_ends = heard.drain.as_ref().map(|drain| drain.ends(heard.unanswered));
            let (role, said) = tokio::select! {
                // What has been said, and that the bench stood still, goes before the deadlines.
                biased;
                () = self.stop.cancelled() => return Err(BenchError::Interrupted),
                said = producer.next(), if !producer.has_ended => (PRODUCER, said?),
                said = consumer.next(), if !consumer.has_ended => (CONSUMER, said?),
                late = ticks.next() => {
                    if let Some(drain) = &mut heard.drain {
                        drain.put_off(late);
                    }
                    for (child, idle) in [(&*producer, &mut producer_idle), (&*consumer, &mut consumer_idle)] {
                        if !child.has_ended && idle.tick() {
                            return Err(self.failed(child.role, was_idle(limit)));
                        }
                    }
                    continue;
                }
                () = sleep_until(drain_ends.unwrap_or_else(Instant::now)), if drain_ends.is_some() => {
                    if heard.collapsed {
                        // Asked to end and still there.
                        return Err(self.failed(CONSUMER, "did not end when asked to".to_owned()));
                    }
                    heard.collapsed = true;
                    consumer.ask_to_end();
                    heard.drain = Some(Drain::begin(READY_TIMEOUT, Duration::ZERO, heard.unanswered));
                    continue;
                }
            };
            (if role == PRODUCER { &mut producer_idle } else { &mut consumer_idle }).reset();
            let taken = match said {
                Said::Event(event) => heard.event(role, event),
                Said::Ended(status) if role == PRODUCER => {
                    let deadlines = &self.config.info.deadlines;
                    heard.drain = Some(Drain::begin(
                        deadlines.drain_timeout_seconds.as_duration(),
                        deadlines.requests.stall_timeout_seconds.as_duration(),
                        heard.unanswered,
                    ));
                    heard.producer_ends(status)
                }
                Said::Ended(status) => heard.consumer_ends(status),
            };
            taken.map_err(|problem| self.failed(role, problem))?;
            self.console.step_progress(heard.sent, heard.received);
        }
        heard.longest_pause = ticks.longest_pause;
        Ok(heard)
    }
}

/// What both children said so far.
#[derive(Default)]
struct Heard {
    sent: u64,
    received: u64,
    sent_intervals: Vec<SentInterval>,
    received_intervals: Vec<ReceivedInterval>,
    marks: Vec<Mark>,
    produced: Option<ProducerSummary>,
    consumed: Option<ConsumerSummary>,
    /// How long the store did not answer the consumer.
    unanswered: Duration,
    /// The consumer's time to catch up, once the producer is through; then its time to end.
    drain: Option<Drain>,
    /// Whether the consumer had not caught up when the drain deadline passed.
    collapsed: bool,
    /// The longest that the bench itself stood still.
    longest_pause: Duration,
}

impl Heard {
    fn event(&mut self, role: &str, event: Event) -> Result<(), String> {
        match event {
            Event::Progress { messages, .. } if role == PRODUCER => self.sent = messages,
            Event::Progress { messages, unanswered_seconds } => {
                self.unanswered = Duration::try_from_secs_f64(unanswered_seconds).unwrap_or(self.unanswered);
                self.received = messages;
            }
            Event::Produced(summary) => self.produced = Some(*summary),
            Event::Consumed(summary) => self.consumed = Some(*summary),
            Event::Failed { error, exit_code, .. } => return Err(failure(&error, exit_code)),
            Event::Sent(interval) => self.sent_intervals.push(interval),
            Event::Received(interval) => self.received_intervals.push(interval),
            Event::Mark(mark) => self.marks.push(mark),
            Event::Ready | Event::Preloaded { .. } | Event::Checkpointed { .. } => {}
        }
        Ok(())
    }

    fn producer_ends(&self, status: ExitStatus) -> Result<(), String> {
        if status.success() && self.produced.is_some() { Ok(()) } else { Err(ended_early(status)) }
    }

    fn consumer_ends(&mut self, status: ExitStatus) -> Result<(), String> {
        match self.consumed.as_ref().map(|summary| summary.ended) {
            None => return Err(ended_early(status)),
            Some(Ended::Interrupted) if !self.collapsed => return Err(INTERRUPTED.to_owned()),
            // It gave up on its own, which its rate does not survive either.
            Some(Ended::DrainTimeout | Ended::WaitTimeout) => self.collapsed = true,
            Some(_) => {}
        }
        Ok(())
    }
}

/// What is wrong with a child that says that it failed.
fn failure(error: &str, exit_code: u8) -> String {
    if exit_code == Exit::Interrupted.code() { INTERRUPTED.to_owned() } else { format!("failed: {error}") }
}

fn ended_early(status: ExitStatus) -> String {
    // It may have been signalled before it had come to listen.
    let signals = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| Some(signal.as_raw()));
    let is_interrupted = status.code() == Some(i32::from(Exit::Interrupted.code()));
    if is_interrupted || signals.contains(&status.signal()) {
        return INTERRUPTED.to_owned();
    }
    format!("ended early ({status})")
}
