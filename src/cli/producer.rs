//! `s3mq producer`.

use clap::Args as ClapArgs;

use super::checkpoint;
use super::failure::Failure;
use super::role::RoleArgs;
use super::storage::StorageArgs;
use crate::config::{ArrivalArgs, CheckpointArgs, CommitArgs, MessageArgs, TimelineArgs, WriteArgs};
use crate::console::Progress;
use crate::events::Event;
use crate::exit::Exit;
use crate::machine::watch_pauses;
use crate::producer::{self, Config, Schedule};
use crate::units::{Rate, Seconds};
use s3mq_queue::ProducerOptions;
use s3mq_queue::storage::LakePath;

/// Send messages at a rate into a table
///
/// Writes one JSON event a line to standard output (ready, progress, sent, mark, produced,
/// failed).
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The table: s3://BUCKET/PATH, or a PATH within the configured bucket
    #[arg(long, value_name = "PATH")]
    lake_path: LakePath,

    /// Messages a second, whole or fractional, or `max`: as fast as the queue takes them
    #[arg(long, value_name = "PER_SECOND")]
    rate: RateArg,

    /// How long to send, in seconds; rate times seconds, rounded once, is how many messages are sent
    #[arg(long, value_name = "SECONDS", required_unless_present = "messages", conflicts_with = "messages")]
    seconds_to_stream: Option<Seconds>,

    /// How many messages to send, in place of --seconds-to-stream
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,

    #[command(flatten)]
    arrival: ArrivalArgs,

    #[command(flatten)]
    commit: CommitArgs,

    #[command(flatten)]
    checkpoint: CheckpointArgs,

    #[command(flatten)]
    timeline: TimelineArgs,

    /// This producer's id; its rows carry it
    #[arg(long, value_name = "ID", default_value_t = 0, allow_negative_numbers = true)]
    producer_id: i32,

    /// How long after the schedule's end a producer that fell behind goes on, in seconds; what isn't handed
    /// over by then is not sent
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    grace_seconds: Seconds,

    #[command(flatten)]
    write: WriteArgs,

    #[command(flatten)]
    message: MessageArgs,

    #[command(flatten)]
    storage: StorageArgs,

    #[command(flatten)]
    role: RoleArgs,
}

#[derive(Clone, Copy, Debug)]
enum RateArg {
    Paced(Rate),
    Max,
}

impl std::str::FromStr for RateArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "max" { Ok(Self::Max) } else { text.parse().map(Self::Paced) }
    }
}

impl Args {
    fn schedule(&self) -> Result<Schedule, Failure> {
        let ArrivalArgs { arrival, seed } = self.arrival;
        let schedule = match (self.rate, self.messages, self.seconds_to_stream) {
            (RateArg::Paced(rate), Some(messages), _) => Schedule::Paced { rate, messages, arrival, seed },
            (RateArg::Paced(rate), None, Some(seconds)) => {
                Schedule::Paced { rate, messages: rate.messages_in(seconds), arrival, seed }
            }
            (RateArg::Max, Some(messages), _) => Schedule::Flood { messages },
            (RateArg::Max, None, Some(seconds)) => Schedule::FloodFor(seconds),
            (_, None, None) => return Err(Failure::usage("give --seconds-to-stream or --messages")),
        };
        match schedule {
            Schedule::Paced { messages: 0, rate, .. } => {
                Err(Failure::usage(format!("at {rate} a second, not one message is due in that time")))
            }
            schedule => Ok(schedule),
        }
    }
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let schedule = args.schedule()?;
    watch_pauses();
    let config = Config {
        queue: ProducerOptions {
            producer_id: args.producer_id,
            data_encoding: args.message.data_encoding,
            checkpoint_interval: args.checkpoint.checkpoint_interval,
            checkpoint_by: checkpoint::by_a_process(&args.lake_path, args.write, &args.storage),
            append_to_existing: args.write.append_to_existing,
            anchor: args.role.anchor(),
            ..ProducerOptions::default()
        },
        schedule,
        grace: args.grace_seconds.as_duration(),
        commit_interval: args.commit.interval(),
        max_batch_bytes: producer::MAX_BATCH_BYTES,
        message_size: args.message.size().map_err(Failure::usage)?,
        padding: args.message.payload,
        interval: args.timeline.interval_seconds.as_duration(),
    };
    let role = args.role.begin(&args.lake_path, &args.storage)?;
    let total = match schedule {
        Schedule::Paced { messages, .. } | Schedule::Flood { messages } => Some(messages),
        Schedule::FloodFor(_) => None,
    };
    let label = format!("producer {}", args.producer_id);
    let mut progress = Progress::new(&label, total, "messages", args.role.quiet);
    role.run(|lake, stop| async move {
        let summary = producer::run(config, &lake, stop, |event| progress.report(&event)).await?;
        let exit = if summary.interrupted { Exit::Interrupted } else { Exit::Ok };
        progress.report(&Event::Produced(Box::new(summary)));
        Ok(exit)
    })
    .await
}
