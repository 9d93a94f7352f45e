//! One rate: the consumer first, the producer once it is ready, then both to their end.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use super::growth::growth;
use super::patience::{Drain, Silence, Ticks, sleep_until};
use super::verdict::{Evidence, verdict};
use super::{BenchError, Config, Console, Files, arguments, preload};
use crate::child::{Child, Said};
use crate::events::{ConsumerSummary, Ended, Event, Mark, ProducerSummary, ReceivedInterval, SentInterval};
use crate::exit::Exit;
use crate::report::{Cost, FaultCount, RssGrowth, StepReport, TimelineRow, Usage, join};
use crate::stop::Stop;
use crate::units::Rate;
use s3mq_clock::Anchor;
use s3mq_queue::storage::Prefix;

/// One rate of a sweep.
pub(super) struct Step<'a, C> {
    pub(super) config: &'a Config,
    pub(super) rate: Rate,
    /// Where its table is.
    pub(super) prefix: Prefix,
    pub(super) files: Files,
    pub(super) stop: &'a mut Stop,
    pub(super) console: &'a mut C,
    /// How often each fault rule of the store has fired.
    pub(super) faults: &'a Faults<'a>,
}

/// How often each rule of the store's faults has fired so far, always of the same rules.
pub type Faults<'a> = dyn Fn() -> Vec<FaultCount> + Sync + 'a;

const PRODUCER: &str = "producer";
const CONSUMER: &str = "consumer";
const INTERRUPTED: &str = "was interrupted by somebody else";

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

/// Longest that a role may say nothing: as long as it may take to begin, and to bring one request to its end.
pub(super) fn silence(config: &Config) -> Silence {
    Silence::with_timeout(
        ready_timeout(config) + config.info.deadlines.requests.retry_timeout_seconds.as_duration(),
    )
}

impl<C: Console> Step<'_, C> {
    /// Runs it to its end; gives what came of it, and its timeline.
    pub(super) async fn run(&mut self) -> Result<(StepReport, Vec<TimelineRow>), BenchError> {
        let faults_before = (self.faults)();
        let first_version = preload::run(self).await?;
        let anchor = Anchor::now();
        let mut heard = self.run_roles(&anchor, first_version).await?;
        let accounts = heard.accounts().map_err(|(role, problem)| self.failed(role, problem))?;
        if heard.collapsed {
            // The consumer was asked to end and left its files marked as partial; what they hold is the result.
            self.files.promote()?;
        }
        let faults = FaultCount::since((self.faults)(), &faults_before);
        Ok(self.report(heard, accounts, &anchor, faults))
    }

    /// Starts both roles and listens to them until they have ended.
    async fn run_roles(&mut self, anchor: &Anchor, first_version: Option<u64>) -> Result<Heard, BenchError> {
        let messages = self.rate.messages_in(self.config.info.run.seconds_to_stream);
        let lines =
            [arguments::consumer(self, anchor, first_version), arguments::producer(self, anchor, messages)];
        let shown = lines.each_ref().map(|line| format!("s3mq {}", line.join(" ")));
        self.console.step_started(self.rate, messages, &shown);
        let [consumer_line, producer_line] = lines;

        let mut consumer = self.start(CONSUMER, &consumer_line)?;
        let ready = self.until_ready(&mut consumer).await;
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
    pub(super) fn start(&self, role: &'static str, arguments: &[String]) -> Result<Child, BenchError> {
        Child::start(role, arguments, &self.config.store.environment, Stdio::piped())
            .map_err(|error| self.failed(role, format!("could not be started: {error}")))
    }

    /// This happened to a role.
    pub(super) fn failed(&self, role: &'static str, problem: String) -> BenchError {
        BenchError::Role { rate: self.rate, role, problem }
    }

    fn report(
        &self,
        heard: Heard,
        (producer, consumer): (ProducerSummary, ConsumerSummary),
        anchor: &Anchor,
        faults: Vec<FaultCount>,
    ) -> (StepReport, Vec<TimelineRow>) {
        let Heard { sent_intervals: sent, received_intervals: received, marks, collapsed, .. } = heard;
        let (rate, run) = (self.rate, &self.config.info.run);
        let (bench_pause_seconds, warmup_seconds) =
            (heard.longest_pause.as_secs_f64(), run.warmup_seconds.unwrap_or(0.0));
        let interval_seconds = run.timeline.interval_seconds.as_f64();
        let interval_us = run.timeline.interval_seconds.as_duration().as_micros() as i64;
        let begun = marks.iter().filter(|mark| mark.has_begun());
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
        let cost = self.cost(&producer, &consumer);
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
            faults,
            bench_pause_seconds,
            rss_growth,
            producer,
            consumer,
        };
        (step, timeline)
    }

    fn cost(&self, producer: &ProducerSummary, consumer: &ConsumerSummary) -> Cost {
        Cost::of(
            &self.config.info.prices,
            &Usage {
                producer: &producer.running_requests,
                consumer: &consumer.running_requests,
                checkpoints: &producer.checkpoint_requests,
                seconds: producer.sending_seconds,
                messages: producer.committed,
                file_bytes: producer.file_bytes,
                idle_pause_seconds: self.config.poll.longest_pause().as_secs_f64(),
            },
        )
    }

    async fn until_ready(&mut self, child: &mut Child) -> Result<(), BenchError> {
        let limit = ready_timeout(self.config);
        let (mut ticks, mut silence) = (Ticks::begin(), Silence::with_timeout(limit));
        loop {
            let said = tokio::select! {
                biased;
                () = self.stop.wait() => return Err(BenchError::Interrupted),
                said = child.next() => said?,
                _ = ticks.next() => match silence.goes_on() {
                    Some(_) => {
                        let problem = format!("was not ready within {} s", limit.as_secs());
                        return Err(self.failed(child.role(), problem));
                    }
                    None => continue,
                },
            };
            match said {
                Said::Event(Event::Ready) => return Ok(()),
                Said::Event(Event::Failed { error, .. }) => {
                    return Err(self.failed(child.role(), format!("failed: {error}")));
                }
                Said::Event(_) => {}
                Said::Ended(status) => return Err(self.failed(child.role(), ended_early(status))),
            }
        }
    }

    /// Listens to both until both have ended, the consumer within the drain deadline.
    async fn watch(&mut self, consumer: &mut Child, producer: &mut Child) -> Result<Heard, BenchError> {
        let (mut heard, mut ticks) = (Heard::default(), Ticks::begin());
        let (mut producer_silence, mut consumer_silence) = (silence(self.config), silence(self.config));
        while !(heard.producer_ended && heard.consumer_ended) {
            let (role, said) = tokio::select! {
                // What has been said, and that the bench stood still, goes before the deadlines.
                biased;
                () = self.stop.wait() => return Err(BenchError::Interrupted),
                said = producer.next(), if !heard.producer_ended => (PRODUCER, said?),
                said = consumer.next(), if !heard.consumer_ended => (CONSUMER, said?),
                late = ticks.next() => {
                    if let Some(drain) = &mut heard.drain {
                        drain.put_off(late);
                    }
                    for (role, has_ended, silence) in [
                        (PRODUCER, heard.producer_ended, &mut producer_silence),
                        (CONSUMER, heard.consumer_ended, &mut consumer_silence),
                    ] {
                        if !has_ended && let Some(problem) = silence.goes_on() {
                            return Err(self.failed(role, problem));
                        }
                    }
                    continue;
                }
                () = sleep_until(heard.drain_ends()) => {
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
            (if role == PRODUCER { &mut producer_silence } else { &mut consumer_silence }).ends();
            match said {
                Said::Event(event) => {
                    heard.event(role, event).map_err(|problem| self.failed(role, problem))?;
                    self.console.step_progress(heard.sent, heard.received);
                }
                Said::Ended(status) if role == PRODUCER => {
                    heard.producer_ends(status).map_err(|problem| self.failed(role, problem))?;
                    let deadlines = &self.config.info.deadlines;
                    heard.drain = Some(Drain::begin(
                        deadlines.drain_timeout_seconds.as_duration(),
                        deadlines.requests.stall_timeout_seconds.as_duration(),
                        heard.unanswered,
                    ));
                }
                Said::Ended(status) => {
                    heard.consumer_ends(status).map_err(|problem| self.failed(role, problem))?;
                }
            }
        }
        heard.longest_pause = ticks.longest_pause();
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
    producer_ended: bool,
    consumer_ended: bool,
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
    fn drain_ends(&self) -> Option<Instant> {
        self.drain.as_ref().map(|drain| drain.ends(self.unanswered))
    }

    fn event(&mut self, role: &str, event: Event) -> Result<(), String> {
        match event {
            Event::Progress { messages, .. } if role == PRODUCER => self.sent = messages,
            Event::Progress { messages, unanswered_seconds } => {
                self.unanswered = Duration::try_from_secs_f64(unanswered_seconds).unwrap_or(self.unanswered);
                self.received = messages;
            }
            Event::Produced(summary) => self.produced = Some(*summary),
            Event::Consumed(summary) => self.consumed = Some(*summary),
            Event::Failed { error, .. } => return Err(format!("failed: {error}")),
            Event::Sent(interval) => self.sent_intervals.push(interval),
            Event::Received(interval) => self.received_intervals.push(interval),
            Event::Mark(mark) => self.marks.push(mark),
            Event::Ready | Event::Preloaded { .. } | Event::Checkpointed { .. } => {}
        }
        Ok(())
    }

    fn producer_ends(&mut self, status: ExitStatus) -> Result<(), String> {
        self.producer_ended = true;
        if status.success() && self.produced.is_some() { Ok(()) } else { Err(ended_early(status)) }
    }

    fn consumer_ends(&mut self, status: ExitStatus) -> Result<(), String> {
        self.consumer_ended = true;
        match self.consumed.as_ref().map(|summary| summary.ended) {
            None => return Err(ended_early(status)),
            Some(Ended::Interrupted) if !self.collapsed => return Err(INTERRUPTED.to_owned()),
            // It gave up on its own, which its rate does not survive either.
            Some(Ended::DrainTimeout | Ended::WaitTimeout) => self.collapsed = true,
            Some(_) => {}
        }
        Ok(())
    }

    /// Both accounts, once both have ended.
    fn accounts(&mut self) -> Result<(ProducerSummary, ConsumerSummary), (&'static str, String)> {
        match (self.produced.take(), self.consumed.take()) {
            (Some(produced), Some(_)) if produced.interrupted => Err((PRODUCER, INTERRUPTED.to_owned())),
            (Some(produced), Some(consumed)) => Ok((produced, consumed)),
            _ => Err((CONSUMER, "ended without a result".to_owned())),
        }
    }
}

fn ended_early(status: ExitStatus) -> String {
    if status.code() == Some(i32::from(Exit::Interrupted.code())) {
        return INTERRUPTED.to_owned();
    }
    format!("ended early ({status})")
}
