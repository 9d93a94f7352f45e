//! One rate: the consumer first, the producer once it is ready, then both to their end.

use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use super::growth::growth;
use super::patience::{Drain, Silence, Ticks, sleep_until};
use super::verdict::{Evidence, verdict};
use super::{BenchError, Config, Console, Files, preload};
use crate::child::{Child, Said};
use crate::events::{ConsumerSummary, Ended, Event, Mark, ProducerSummary, ReceivedInterval, SentInterval};
use crate::exit::Exit;
use crate::report::{Cost, FaultCount, RssGrowth, StepReport, TimelineRow, Usage, join};
use crate::stop::Stop;
use crate::units::{Rate, Seconds};
use s3mq_clock::Anchor;
use s3mq_queue::storage::Prefix;

/// Flags and secrets for the children. `Debug` does not show the secrets.
#[derive(Clone, Default)]
pub struct ChildFlags {
    /// For both: the store.
    pub both: Vec<String>,
    /// For the producer: what messages are.
    pub producer: Vec<String>,
    /// For the consumer: how it polls.
    pub consumer: Vec<String>,
    /// Secrets, which must not be in an argument list.
    pub environment: Vec<(String, String)>,
}

impl fmt::Debug for ChildFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("ChildFlags")
            .field("both", &self.both)
            .field("producer", &self.producer)
            .field("consumer", &self.consumer)
            .field("environment", &names)
            .finish()
    }
}

const INTERRUPTED: &str = "was interrupted by somebody else";

/// Longest that a child may take to say that it is ready, and how much longer for each version that its table was
/// preloaded with: without a checkpoint it reads them all, which was measured to take less than half of this.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_TIMEOUT_A_VERSION: Duration = Duration::from_millis(1);

/// Longest that a child may take to say that it is ready. A store that doesn't answer is the child's to notice.
fn ready_timeout(config: &Config) -> Duration {
    let preloaded = u32::try_from(config.preload_versions).unwrap_or(u32::MAX);
    READY_TIMEOUT + READY_TIMEOUT_A_VERSION * preloaded + config.stall_timeout
}

/// Longest that a role may say nothing: as long as it may take to begin, and to bring one request to its end.
pub(super) fn silence(config: &Config) -> Silence {
    Silence::of_at_most(ready_timeout(config) + config.retry_timeout)
}

pub(super) async fn run(
    config: &Config,
    rate: Rate,
    prefix: &Prefix,
    files: &Files,
    stop: &mut Stop,
    console: &mut impl Console,
    faults: &(dyn Fn() -> Vec<FaultCount> + Sync),
) -> Result<(StepReport, Vec<TimelineRow>), BenchError> {
    let faults_before = faults();
    let first_version = preload::run(config, rate, prefix, stop, console).await?;
    let messages = rate.messages_in(config.seconds);
    let anchor = Anchor::now();
    let (consumer_arguments, producer_arguments) =
        arguments(config, rate, prefix, files, first_version, messages, &anchor);
    let shown =
        [&consumer_arguments, &producer_arguments].map(|arguments| format!("s3mq {}", arguments.join(" ")));
    console.step_started(rate, messages, &shown);

    let start = |role, arguments: &[String]| {
        Child::start(role, arguments, &config.flags.environment, Stdio::piped()).map_err(|error| {
            BenchError::Role { rate, role, problem: format!("could not be started: {error}") }
        })
    };
    let mut consumer = start("consumer", &consumer_arguments)?;
    if let Err(error) = until_ready(&mut consumer, rate, ready_timeout(config), stop).await {
        consumer.end().await;
        return Err(error);
    }
    let mut producer = match start("producer", &producer_arguments) {
        Ok(producer) => producer,
        Err(error) => {
            consumer.end().await;
            return Err(error);
        }
    };
    let outcome = watch(config, rate, &mut consumer, &mut producer, stop, console).await;
    if outcome.is_err() {
        tokio::join!(producer.end(), consumer.end());
    }
    let Watched { sent, received, marks, producer, consumer, collapsed, longest_pause } = outcome?;
    let bench_pause_seconds = longest_pause.as_secs_f64();
    if collapsed {
        // The consumer was asked to end and left its files marked as partial; what they hold is the result.
        files.promote()?;
    }
    let interval_seconds = config.interval.as_f64();
    let interval_us = config.interval.as_duration().as_micros() as i64;
    let begun = marks.iter().filter(|mark| mark.has_begun());
    let checkpoints: Vec<_> =
        begun.map(|mark| anchor.since_us(mark.started_us).div_euclid(interval_us)).collect();
    let timeline = join(interval_seconds, &sent, &received, &checkpoints);
    let verdict = verdict(&Evidence {
        rate,
        commit_interval: config.commit_interval,
        interval_seconds,
        warmup_seconds: config.warmup_seconds,
        collapsed,
        bench_pause_seconds,
        producer: &producer,
        consumer: &consumer,
        timeline: &timeline,
    });
    let cost = Cost::of(
        &config.info.prices,
        &Usage {
            producer: &producer.running_requests,
            consumer: &consumer.running_requests,
            checkpoints: &producer.checkpoint_requests,
            seconds: producer.sending_seconds,
            messages: producer.committed,
            file_bytes: producer.file_bytes,
            idle_pause_seconds: config.idle_pause_seconds,
        },
    );
    let unsent = producer.planned.saturating_sub(producer.committed);
    let first_interval = sent.iter().map(|row| row.index).min();
    let timeline_start_us = first_interval.map(|index| anchor.origin_us() + index * interval_us);
    let grown = |rss_bytes| growth(&timeline, interval_seconds, config.warmup_seconds, rss_bytes);
    let rss_growth = RssGrowth {
        producer: grown(|row| row.producer_rss_bytes),
        consumer: grown(|row| row.consumer_rss_bytes),
    };
    let faults = FaultCount::since(faults(), &faults_before);
    let step = StepReport {
        rate,
        verdict,
        cost,
        unsent,
        timeline_start_us,
        marks,
        faults,
        bench_pause_seconds,
        rss_growth,
        producer,
        consumer,
    };
    Ok((step, timeline))
}

/// What both children said until they had ended.
struct Watched {
    sent: Vec<SentInterval>,
    received: Vec<ReceivedInterval>,
    marks: Vec<Mark>,
    producer: ProducerSummary,
    consumer: ConsumerSummary,
    /// Whether the consumer had not caught up when the drain deadline passed.
    collapsed: bool,
    /// The longest that the bench itself stood still.
    longest_pause: Duration,
}

async fn until_ready(
    child: &mut Child,
    rate: Rate,
    patience: Duration,
    stop: &mut Stop,
) -> Result<(), BenchError> {
    let role = child.role();
    let failed = |problem: String| BenchError::Role { rate, role, problem };
    let (mut ticks, mut silence) = (Ticks::begin(), Silence::of_at_most(patience));
    loop {
        let said = tokio::select! {
            biased;
            () = stop.wait() => return Err(BenchError::Interrupted),
            said = child.next() => said?,
            _ = ticks.next() => match silence.goes_on() {
                Some(_) => return Err(failed(format!("was not ready within {} s", patience.as_secs()))),
                None => continue,
            },
        };
        match said {
            Said::Event(Event::Ready) => return Ok(()),
            Said::Event(Event::Failed { error, .. }) => return Err(failed(format!("failed: {error}"))),
            Said::Event(_) => {}
            Said::Ended(status) => return Err(failed(ended_early(status))),
        }
    }
}

/// Listens to both until both have ended, the consumer within the drain deadline.
async fn watch(
    config: &Config,
    rate: Rate,
    consumer: &mut Child,
    producer: &mut Child,
    stop: &mut Stop,
    console: &mut impl Console,
) -> Result<Watched, BenchError> {
    let (mut sent, mut received) = (0, 0);
    let (mut sent_intervals, mut received_intervals, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut produced, mut consumed) = (None::<ProducerSummary>, None::<ConsumerSummary>);
    let (mut producer_ended, mut consumer_ended) = (false, false);
    let mut unanswered = Duration::ZERO;
    let mut drain: Option<Drain> = None;
    let mut collapsed = false;
    let mut ticks = Ticks::begin();
    let (mut producer_silence, mut consumer_silence) = (silence(config), silence(config));
    while !(producer_ended && consumer_ended) {
        let (role, said) = tokio::select! {
            // What has been said, and that the bench stood still, goes before the deadlines.
            biased;
            () = stop.wait() => return Err(BenchError::Interrupted),
            said = producer.next(), if !producer_ended => ("producer", said?),
            said = consumer.next(), if !consumer_ended => ("consumer", said?),
            late = ticks.next() => {
                if let Some(drain) = &mut drain {
                    drain.put_off(late);
                }
                for (role, has_ended, silence) in
                    [("producer", producer_ended, &mut producer_silence), ("consumer", consumer_ended, &mut consumer_silence)]
                {
                    if !has_ended && let Some(problem) = silence.goes_on() {
                        return Err(BenchError::Role { rate, role, problem });
                    }
                }
                continue;
            }
            () = sleep_until(drain.as_ref().map(|drain| drain.ends(unanswered))) => {
                if collapsed {
                    // Asked to end and still there.
                    return Err(BenchError::Role { rate, role: "consumer", problem: "did not end when asked to".to_owned() });
                }
                collapsed = true;
                consumer.ask_to_end();
                drain = Some(Drain::begin(READY_TIMEOUT, Duration::ZERO, unanswered));
                continue;
            }
        };
        let failed = |problem: String| BenchError::Role { rate, role, problem };
        (if role == "producer" { &mut producer_silence } else { &mut consumer_silence }).ends();
        match said {
            Said::Event(Event::Progress { messages, unanswered_seconds }) => {
                if role == "consumer" {
                    unanswered = Duration::try_from_secs_f64(unanswered_seconds).unwrap_or(unanswered);
                }
                *(if role == "producer" { &mut sent } else { &mut received }) = messages;
                console.step_progress(sent, received);
            }
            Said::Event(Event::Produced(summary)) => produced = Some(*summary),
            Said::Event(Event::Consumed(summary)) => consumed = Some(*summary),
            Said::Event(Event::Failed { error, .. }) => return Err(failed(format!("failed: {error}"))),
            Said::Event(Event::Sent(interval)) => sent_intervals.push(interval),
            Said::Event(Event::Received(interval)) => received_intervals.push(interval),
            Said::Event(Event::Mark(mark)) => marks.push(mark),
            Said::Event(Event::Ready | Event::Preloaded { .. } | Event::Checkpointed { .. }) => {}
            Said::Ended(status) if role == "producer" => {
                if !status.success() || produced.is_none() {
                    return Err(failed(ended_early(status)));
                }
                producer_ended = true;
                drain = Some(Drain::begin(config.drain_timeout, config.stall_timeout, unanswered));
            }
            Said::Ended(status) => {
                match consumed.as_ref().map(|summary| summary.ended) {
                    None => return Err(failed(ended_early(status))),
                    Some(Ended::Interrupted) if !collapsed => {
                        return Err(failed(INTERRUPTED.to_owned()));
                    }
                    // It gave up on its own, which its rate does not survive either.
                    Some(Ended::DrainTimeout | Ended::WaitTimeout) => collapsed = true,
                    Some(_) => {}
                }
                consumer_ended = true;
            }
        }
    }
    match (produced, consumed) {
        (Some(produced), Some(consumed)) => match consumed.ended {
            Ended::Interrupted if !collapsed => {
                Err(BenchError::Role { rate, role: "consumer", problem: INTERRUPTED.to_owned() })
            }
            _ if produced.interrupted => {
                Err(BenchError::Role { rate, role: "producer", problem: INTERRUPTED.to_owned() })
            }
            _ => Ok(Watched {
                sent: sent_intervals,
                received: received_intervals,
                marks,
                producer: produced,
                consumer: consumed,
                collapsed,
                longest_pause: ticks.longest_pause(),
            }),
        },
        _ => Err(BenchError::Role { rate, role: "consumer", problem: "ended without a result".to_owned() }),
    }
}

fn ended_early(status: ExitStatus) -> String {
    if status.code() == Some(i32::from(Exit::Interrupted.code())) {
        return INTERRUPTED.to_owned();
    }
    format!("ended early ({status})")
}

fn arguments(
    config: &Config,
    rate: Rate,
    prefix: &Prefix,
    files: &Files,
    first_version: Option<u64>,
    messages: u64,
    anchor: &Anchor,
) -> (Vec<String>, Vec<String>) {
    // With `=`, so that a value may begin with a dash.
    let common = |role: &str| {
        let mut arguments = vec![role.to_owned()];
        let mut flag = |name: &str, value: String| arguments.push(format!("{name}={value}"));
        flag("--lake-path", prefix.to_string());
        flag("--autocommit-duration-ms", config.commit_interval.as_millis().to_string());
        flag("--clock-anchor", anchor.to_string());
        flag("--interval-seconds", config.interval.to_string());
        arguments.extend(["--no-preflight", "--quiet", "--exit-on-stdin-eof"].map(str::to_owned));
        arguments.extend(config.flags.both.iter().cloned());
        arguments
    };
    let mut consumer = common("consumer");
    let mut flag = |name: &str, value: String| consumer.push(format!("{name}={value}"));
    flag("--start", first_version.map_or_else(|| "earliest".to_owned(), |version| version.to_string()));
    flag("--output-path", files.rows.display().to_string());
    flag("--hlog-output-path", files.hlog.display().to_string());
    if config.raw_output {
        flag("--raw-output-path", files.raw.display().to_string());
    }
    flag("--log-frequency", ((rate.per_second() / 2.0) as u64).max(1).to_string());
    flag("--warmup-seconds", config.warmup_seconds.to_string());
    // Between two messages of a slow schedule it is quiet for longer than a drain should take.
    let quiet_seconds = 1.0 / rate.per_second() + 2.0 * config.commit_interval.as_secs_f64();
    let patience_seconds = config.drain_timeout.as_secs_f64() + quiet_seconds;
    flag("--drain-timeout-seconds", patience_seconds.min(Seconds::MAX.as_f64()).to_string());
    // The producer may take its time to open the table.
    let wait_seconds = ready_timeout(config).as_secs_f64() + patience_seconds;
    flag("--wait-timeout-seconds", wait_seconds.min(Seconds::MAX.as_f64()).to_string());
    consumer.extend(config.flags.consumer.iter().cloned());

    let mut producer = common("producer");
    let mut flag = |name: &str, value: String| producer.push(format!("{name}={value}"));
    flag("--rate", rate.to_string());
    flag("--messages", messages.to_string());
    producer.extend(config.flags.producer.iter().cloned());
    (consumer, producer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic would say the whole of what it is about.
    #[test]
    fn the_secrets_of_the_children_are_not_shown() {
        let environment = vec![("MINIO_S3_SECRET_ACCESS_KEY".to_owned(), "very secret".to_owned())];
        let shown = format!("{:?}", ChildFlags { environment, ..ChildFlags::default() });
        assert!(shown.contains("MINIO_S3_SECRET_ACCESS_KEY") && !shown.contains("very secret"), "{shown}");
    }
}
