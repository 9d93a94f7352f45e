//! Flags that say what flows through the queue, shared by the roles and the bench.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::failure::Failure;
use crate::measure::Percentiles;
use crate::producer::{self, STAMP_BYTES};
use crate::units::Seconds;
use s3mq_queue::{Batch, DataEncoding, Poll, ProducerOptions};

/// What fills a message up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaddingArg {
    /// The alphabet over and over
    Text,
    /// Random letters and digits
    Random,
}

/// How the column `data` is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EncodingArg {
    /// Every byte of every message
    Plain,
    /// Each message as what differs from the one before (DELTA_BYTE_ARRAY)
    Prefix,
}

/// How messages are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ArrivalArg {
    /// Evenly
    Uniform,
    /// As independent senders would: exponential times between messages, drawn from --seed
    Poisson,
    /// All of a second's messages at its start
    Burst,
}

/// The schedule of what is sent at a rate.
#[derive(Clone, Debug, Args)]
pub(super) struct ArrivalArgs {
    /// How messages are spread over time
    #[arg(long, value_enum, default_value = "uniform")]
    pub arrival: ArrivalArg,

    /// Seed of --arrival poisson; the same seed gives the same times
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

impl ArrivalArgs {
    pub(super) fn arrival(&self) -> producer::Arrival {
        match self.arrival {
            ArrivalArg::Uniform => producer::Arrival::Uniform,
            ArrivalArg::Poisson => producer::Arrival::Poisson { seed: self.seed },
            ArrivalArg::Burst => producer::Arrival::Burst,
        }
    }
}

/// When a consumer asks for the next version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PollArg {
    /// Learns the cadence of commits and asks shortly before each is due
    Adaptive,
    /// Asks every --poll-interval-ms
    Fixed,
}

/// How often producers commit.
#[derive(Clone, Debug, Args)]
pub(super) struct CommitArgs {
    /// Producers' commit interval, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub autocommit_duration_ms: u64,
}

impl CommitArgs {
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.autocommit_duration_ms)
    }
}

/// Which tables are written to.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct WriteArgs {
    /// Also write to a table that s3mq didn't create, or create one where others have files. Otherwise both are
    /// refused
    #[arg(long)]
    pub append_to_existing: bool,
}

/// Checkpoints of the table.
#[derive(Clone, Debug, Args)]
pub(super) struct CheckpointArgs {
    /// Versions of the table from one checkpoint to the next; 0 makes none. They are made beside the commits,
    /// with connections of their own
    #[arg(long, value_name = "VERSIONS", default_value_t = ProducerOptions::default().checkpoint_interval)]
    pub checkpoint_interval: u64,
}

/// A timeline of shorter intervals would fill the disk rather than tell anything.
fn parse_interval(text: &str) -> Result<Seconds, String> {
    match text.parse::<Seconds>()? {
        interval if interval.as_f64() < 0.01 => Err("must be at least 0.01".to_owned()),
        interval => Ok(interval),
    }
}

/// How finely the timeline is cut.
#[derive(Clone, Debug, Args)]
pub(super) struct TimelineArgs {
    /// Length of the timeline's intervals, in seconds, at least 0.01
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval_seconds: Seconds,
}

/// Which percentiles the extra files show.
#[derive(Clone, Debug, Args)]
pub(super) struct PercentileArgs {
    /// Percentiles in the extra files (intervals, JSON, summary); {rate}.csv always has 50,75,85,95,99
    #[arg(long, value_name = "LIST", default_value_t = Percentiles::default())]
    pub percentiles: Percentiles,
}

/// What a message is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Messages")]
pub struct MessageArgs {
    /// Bytes a message, at least 17 [default: the 17 bytes of the stamp alone]
    #[arg(long, value_name = "BYTES")]
    pub message_size: Option<usize>,

    /// What fills a message up to its size
    #[arg(long, value_enum, default_value = "text")]
    pub payload: PaddingArg,

    /// Encoding of the Parquet column `data`
    #[arg(long, value_enum, default_value = "plain")]
    pub data_encoding: EncodingArg,
}

impl MessageArgs {
    /// Bytes a message; `None` is the stamp alone.
    ///
    /// # Errors
    /// When a message of this size can't be sent.
    pub fn size(&self) -> Result<Option<usize>, Failure> {
        // One message must fit a batch.
        let most = producer::MAX_BATCH_BYTES.min(Batch::MAX_BYTES);
        match self.message_size {
            Some(size) if !(STAMP_BYTES..=most).contains(&size) => Err(Failure::usage(format!(
                "--message-size must be between {STAMP_BYTES} (the stamp) and {most} bytes"
            ))),
            size => Ok(size),
        }
    }

    /// Bytes a message.
    pub fn bytes(&self) -> usize {
        self.message_size.unwrap_or(STAMP_BYTES)
    }

    /// What fills a message up.
    pub fn padding(&self) -> producer::Padding {
        match self.payload {
            PaddingArg::Text => producer::Padding::Text,
            PaddingArg::Random => producer::Padding::Random,
        }
    }

    /// Encoding of the column `data`.
    pub fn encoding(&self) -> DataEncoding {
        match self.data_encoding {
            EncodingArg::Plain => DataEncoding::Plain,
            EncodingArg::Prefix => DataEncoding::Prefix,
        }
    }
}

/// How a consumer polls.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Polling")]
pub(super) struct PollArgs {
    /// When the consumer asks for the next version
    #[arg(long, value_enum, default_value = "adaptive")]
    pub poll: PollArg,

    /// Pause between two questions of --poll fixed, in milliseconds [default: a tenth of
    /// --autocommit-duration-ms, at least 1]
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub poll_interval_ms: Option<u64>,
}

impl PollArgs {
    pub(super) fn policy(&self, commit: &CommitArgs) -> Result<Poll, Failure> {
        match (self.poll, self.poll_interval_ms) {
            (PollArg::Adaptive, None) => Ok(Poll::Adaptive { expected: commit.interval() }),
            (PollArg::Adaptive, Some(_)) => Err(Failure::usage("--poll-interval-ms goes with --poll fixed")),
            (PollArg::Fixed, interval_ms) => {
                let interval_ms = interval_ms.unwrap_or((commit.autocommit_duration_ms / 10).max(1));
                Ok(Poll::Fixed { interval: Duration::from_millis(interval_ms) })
            }
        }
    }
}

/// The name that clap knows a value by.
pub(super) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
