//! The flags that several commands share, each declared once. Their validated values are what is used and what
//! `{rate}.json` has of them.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};

use crate::measure::Percentiles;
use crate::producer::{Arrival, MAX_BATCH_BYTES, Padding, STAMP_BYTES};
use crate::units::{Seconds, parse_bytes, parse_ms, parse_seconds_or_none};
use s3mq_queue::storage::Prefix;
use s3mq_queue::{Batch, DataEncoding, Poll, ProducerOptions};

/// What each rate of a sweep is run with.
#[derive(Clone, Debug, Args, Serialize)]
pub struct RunArgs {
    /// How long each rate streams, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    pub seconds_to_stream: Seconds,

    /// How messages are spread over time.
    #[command(flatten)]
    #[serde(flatten)]
    pub arrival: ArrivalArgs,

    /// How often producers commit.
    #[command(flatten)]
    #[serde(flatten)]
    pub commit: CommitArgs,

    /// Checkpoints of the table.
    #[command(flatten)]
    #[serde(flatten)]
    pub checkpoint: CheckpointArgs,

    /// Age each rate's table before its roles start: add this many versions, each with a data file of one
    /// message, which are in no figure
    #[arg(long, value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(0..=MAX_PRELOADED_VERSIONS))]
    pub preload_versions: u64,

    /// How finely the timeline is cut.
    #[command(flatten)]
    #[serde(flatten)]
    pub timeline: TimelineArgs,

    /// Which percentiles the extra files show.
    #[command(flatten)]
    #[serde(skip)]
    pub percentiles: PercentileArgs,

    /// Leave messages out of the figures that were due this long after the first, in seconds; rounded up to whole
    /// commit intervals [default: a tenth of --seconds-to-stream, at most 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds_or_none)]
    pub warmup_seconds: Option<f64>,

    /// How long after the warm-up messages are measured: to the end of the last whole commit interval.
    #[arg(skip)]
    pub measured_seconds: f64,
}

/// More versions would hardly be meant: at two thousand a second it takes more than an hour.
pub const MAX_PRELOADED_VERSIONS: u64 = 10_000_000;

impl RunArgs {
    /// With the defaults that depend on other flags; an error where the flags don't go together.
    pub(crate) fn validated(mut self) -> Result<Self, String> {
        let streamed = self.seconds_to_stream.as_f64();
        let warmup = self.warmup_seconds.unwrap_or((streamed / 10.0).min(30.0));
        let window = measured_window(warmup, streamed, self.commit.interval());
        (self.warmup_seconds, self.measured_seconds) = (Some(window.start), window.end - window.start);
        if warmup >= streamed {
            return Err(format!(
                "--warmup-seconds {warmup} leaves nothing to measure of --seconds-to-stream {streamed}"
            ));
        }
        Ok(self)
    }
}

/// The part of a run that is measured, in seconds after its first message: whole commit intervals, for within one the first
/// message waits longest and the last not at all. All after the warm-up where not even one interval is whole.
fn measured_window(warmup: f64, streamed: f64, commit_interval: Duration) -> Range<f64> {
    let interval = commit_interval.as_secs_f64();
    // A sum of binary fractions may be a hair off a whole number.
    const TOLERANCE: f64 = 1e-9;
    let (first, last) = ((warmup / interval - TOLERANCE).ceil(), (streamed / interval + TOLERANCE).floor());
    if first < last { first * interval..last * interval } else { warmup..streamed }
}

/// Where a bench writes.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "benchmark-results")]
    pub output_dir: PathBuf,

    /// Also write {rate}.raw.csv: every message's due and received time, in Unix microseconds
    #[arg(long)]
    pub raw_output: bool,

    /// Where in the bucket: each rate's table is at PREFIX/{rate}, which is emptied before and after. Nothing but
    /// objects of s3mq may be below PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "adhoc/s3-messaging")]
    pub prefix: Prefix,

    /// Leave the tables there
    #[arg(long)]
    pub keep_data: bool,
}

/// How long a store is waited for.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub struct DeadlineArgs {
    /// Longest that one attempt of a request may take, in seconds; 8 at most before a run starts
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub request_timeout_seconds: Seconds,

    /// Longest that one request is retried while the store answers others, in seconds; 12 at most before a run
    /// starts, whatever --stall-timeout-seconds is
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub retry_timeout_seconds: Seconds,

    /// Longest that a role goes on without any answer from the store, in seconds: until then everything that
    /// failed is asked again, beyond --retry-timeout-seconds, and no other deadline counts the time
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub stall_timeout_seconds: Seconds,
}

/// The schedule of what is sent at a rate.
#[derive(Clone, Debug, Args, Serialize)]
pub struct ArrivalArgs {
    /// How messages are spread over time
    #[arg(long, value_enum, default_value = "uniform")]
    pub arrival: Arrival,

    /// Seed of --arrival poisson; the same seed gives the same times
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

/// When a consumer asks for the next version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PollPolicy {
    /// Learns when commits come and asks shortly before each is due
    Adaptive,
    /// Asks every --poll-interval-ms
    Fixed,
}

/// The commit interval where none is given, in milliseconds.
pub const DEFAULT_COMMIT_MS: u64 = 1000;

/// How often producers commit.
#[derive(Clone, Debug, Args, Serialize)]
pub struct CommitArgs {
    /// Producers' commit interval, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_COMMIT_MS, value_parser = parse_ms)]
    pub autocommit_duration_ms: u64,
}

impl CommitArgs {
    /// The interval.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.autocommit_duration_ms)
    }
}

/// Which tables are written to.
#[derive(Clone, Copy, Debug, Args)]
pub struct WriteArgs {
    /// Also write to a table that s3mq didn't create, or create one where others have files. Otherwise both are
    /// refused
    #[arg(long)]
    pub append_to_existing: bool,
}

/// Checkpoints of the table.
#[derive(Clone, Debug, Args, Serialize)]
pub struct CheckpointArgs {
    /// Versions of the table from one checkpoint to the next; 0 makes none. They are made beside the commits,
    /// with connections of their own
    #[arg(long, value_name = "VERSIONS", default_value_t = ProducerOptions::default().checkpoint_interval)]
    pub checkpoint_interval: u64,
}

/// A timeline of shorter intervals would fill the disk.
fn parse_interval(text: &str) -> Result<Seconds, String> {
    let interval = text.parse::<Seconds>()?;
    if interval.as_f64() < 0.01 { Err("must be at least 0.01".to_owned()) } else { Ok(interval) }
}

/// How finely the timeline is cut.
#[derive(Clone, Debug, Args, Serialize)]
pub struct TimelineArgs {
    /// Length of the timeline's intervals, in seconds, at least 0.01
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval_seconds: Seconds,
}

/// Which percentiles the extra files show.
#[derive(Clone, Debug, Args)]
pub struct PercentileArgs {
    /// Percentiles in the extra files (intervals, JSON, summary); {rate}.csv always has 50,75,85,95,99
    #[arg(long, value_name = "LIST", default_value_t = Percentiles::default())]
    pub percentiles: Percentiles,
}

/// What a message is.
#[derive(Clone, Debug, Args, Serialize)]
#[command(next_help_heading = "Messages")]
pub struct MessageArgs {
    /// Bytes a message, at least 17 [default: the 17 bytes of the stamp alone]
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| parse_bytes(text).map(|bytes| bytes as usize))]
    #[serde(rename = "message_bytes", serialize_with = "message_bytes")]
    pub message_size: Option<usize>,

    /// What fills a message up to its size
    #[arg(long, value_enum, default_value = "text")]
    pub payload: Padding,

    /// Encoding of the Parquet column `data`
    #[arg(long, value_enum, default_value = "plain")]
    pub data_encoding: DataEncoding,
}

impl MessageArgs {
    /// Bytes a message; `None` is the stamp alone. An error where a message of this size can't be sent.
    pub fn size(&self) -> Result<Option<usize>, String> {
        // One message must fit a batch.
        let max = MAX_BATCH_BYTES.min(Batch::MAX_BYTES);
        match self.message_size {
            Some(size) if !(STAMP_BYTES..=max).contains(&size) => {
                Err(format!("--message-size must be between {STAMP_BYTES} (the stamp) and {max} bytes"))
            }
            size => Ok(size),
        }
    }

    /// Bytes a message.
    pub fn bytes(&self) -> usize {
        self.message_size.unwrap_or(STAMP_BYTES)
    }
}

fn message_bytes<S: Serializer>(size: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
    size.unwrap_or(STAMP_BYTES).serialize(serializer)
}

/// How a consumer polls.
#[derive(Clone, Debug, Args, Serialize)]
#[command(next_help_heading = "Polling")]
pub struct PollArgs {
    /// When the consumer asks for the next version
    #[arg(long, value_enum, default_value = "adaptive")]
    pub poll: PollPolicy,

    /// Pause between two questions of --poll fixed, in milliseconds [default: a tenth of
    /// --autocommit-duration-ms, at least 1]
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    #[serde(skip)]
    pub poll_interval_ms: Option<u64>,
}

impl PollArgs {
    /// The policy, where producers commit like this; an error where the flags don't go together.
    pub(crate) fn policy(&self, commit: &CommitArgs) -> Result<Poll, String> {
        match (self.poll, self.poll_interval_ms) {
            (PollPolicy::Adaptive, None) => Ok(Poll::Adaptive { expected: commit.interval() }),
            (PollPolicy::Adaptive, Some(_)) => Err("--poll-interval-ms goes with --poll fixed".to_owned()),
            (PollPolicy::Fixed, interval_ms) => {
                let interval_ms = interval_ms.unwrap_or((commit.autocommit_duration_ms / 10).max(1));
                Ok(Poll::Fixed { interval: Duration::from_millis(interval_ms) })
            }
        }
    }
}

/// The name that clap knows a value by.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_commit_intervals_are_measured_where_there_are_any() {
        let window = |warmup, streamed, interval_ms| {
            let window = measured_window(warmup, streamed, Duration::from_millis(interval_ms));
            let ms = |seconds: f64| (seconds * 1e3).round() as u64;
            (ms(window.start), ms(window.end))
        };
        assert_eq!(window(0.8, 8.0, 1000), (1000, 8000));
        assert_eq!(window(0.0, 8.5, 1000), (0, 8000));
        assert_eq!(window(0.3, 3.0, 100), (300, 3000));
        assert_eq!(window(30.0, 300.0, 7), (30_002, 299_999));
        // Not one is whole.
        assert_eq!(window(2.9, 3.0, 1000), (2900, 3000));
        assert_eq!(window(0.1, 1.0, 60_000), (100, 1000));
    }
}
