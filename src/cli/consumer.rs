//! `s3mq consumer`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;

use super::failure::Failure;
use super::role::RoleArgs;
use super::storage::StorageArgs;
use crate::config::{CommitArgs, PercentileArgs, PollArgs, TimelineArgs};
use crate::console::{Progress, warn};
use crate::consumer::{self, Config, Sink};
use crate::events::{ConsumerSummary, Ended, Event, OpenStream};
use crate::exit::Exit;
use crate::machine::watch_pauses;
use crate::measure::{PercentileRow, Sample};
use crate::report::{Hlog, PartialFile, RateCsv, prepare_file};
use crate::units::{Seconds, grouped, parse_bytes, parse_seconds_or_none};
use s3mq_queue::storage::LakePath;
use s3mq_queue::{ConsumerOptions, Start};

/// Receive a table's messages and write their latency percentiles
///
/// May be started before the table exists. Writes one JSON event a line to standard output (ready,
/// progress, consumed, failed).
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The table: s3://BUCKET/PATH, or a PATH within the configured bucket
    #[arg(long, value_name = "PATH")]
    lake_path: LakePath,

    /// CSV of latency percentiles over time; grows as FILE.partial [default: none is written]
    #[arg(long, value_name = "FILE")]
    output_path: Option<PathBuf>,

    /// CSV of every message's due and received time, in Unix microseconds [default: none is written]
    #[arg(long, value_name = "FILE")]
    raw_output_path: Option<PathBuf>,

    /// HdrHistogram interval log: a histogram of latencies an interval, and one a stage, in microseconds
    /// [default: none is written]
    #[arg(long, value_name = "FILE")]
    hlog_output_path: Option<PathBuf>,

    /// End after this many messages [default: when the producers end their streams]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    expected_messages: Option<u64>,

    /// How many producers' ends of stream to wait for, without --expected-messages
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    producers: u16,

    /// Messages between two rows of the CSV
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    log_frequency: u64,

    #[command(flatten)]
    commit: CommitArgs,

    #[command(flatten)]
    timeline: TimelineArgs,

    #[command(flatten)]
    percentiles: PercentileArgs,

    /// Where to begin: `earliest`, `latest`, or a version
    #[arg(long, value_name = "WHERE", default_value = "earliest", value_parser = parse_start)]
    start: Start,

    /// Leave messages out of the figures that were due this long after the first, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds_or_none)]
    warmup_seconds: f64,

    /// Leave messages out of the figures that were due this long after the warm-up, or later
    #[arg(long, value_name = "SECONDS", hide = true)]
    measured_seconds: Option<Seconds>,

    /// Before the first message: give up when none came for this long, in seconds. Time in which the store doesn't
    /// answer isn't counted
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    wait_timeout_seconds: Seconds,

    /// After the first message: give up when nothing came for this long, in seconds. Time in which the store doesn't
    /// answer isn't counted
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    drain_timeout_seconds: Seconds,

    #[command(flatten)]
    poll: PollArgs,

    /// Messages that may be fetched and not delivered yet
    #[arg(long, value_name = "COUNT", default_value_t = ConsumerOptions::default().max_inflight_messages as u64,
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "Flow")]
    max_inflight_messages: u64,

    /// Bytes of data files that may be fetched and not delivered yet, and as many that they may decode to
    #[arg(long, value_name = "BYTES",
          default_value_t = ConsumerOptions::default().max_inflight_bytes as u64,
          value_parser = parse_bytes, help_heading = "Flow")]
    max_inflight_bytes: u64,

    /// Go on past a version that removes rows, instead of stopping
    #[arg(long, help_heading = "Flow")]
    ignore_removes: bool,

    #[command(flatten)]
    storage: StorageArgs,

    #[command(flatten)]
    role: RoleArgs,
}

fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        version => version
            .parse()
            .map(Start::Version)
            .map_err(|_| "must be `earliest`, `latest` or a version".to_owned()),
    }
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    watch_pauses();
    let config = Config {
        queue: ConsumerOptions {
            start: args.start,
            poll: args.poll.policy(&args.commit).map_err(Failure::usage)?,
            max_inflight_messages: args.max_inflight_messages as usize,
            max_inflight_bytes: args.max_inflight_bytes as usize,
            ignore_removes: args.ignore_removes,
            anchor: args.role.anchor(),
        },
        expected_messages: args.expected_messages,
        producers: usize::from(args.producers),
        log_frequency: args.log_frequency,
        warmup: Duration::from_secs_f64(args.warmup_seconds),
        measured: args.measured_seconds.map(Seconds::as_duration),
        wait_timeout: args.wait_timeout_seconds.as_duration(),
        drain_timeout: args.drain_timeout_seconds.as_duration(),
        commit_interval: args.commit.interval(),
        interval: args.timeline.interval_seconds.as_duration(),
        percentiles: args.percentiles.percentiles.clone(),
    };
    let role = args.role.begin(&args.lake_path, &args.storage)?;
    one_file_each(&args)?;
    let cannot_write = |error: io::Error| format!("cannot write results: {error}");
    let mut output = Output::create(&args).map_err(|error| Failure::usage(cannot_write(error)))?;
    let summary = role
        .run(async |lake, stop| {
            let summary = consumer::run(config, &lake, stop, &mut output).await?;
            let is_whole = summary.ended != Ended::Interrupted;
            output.end(is_whole).map_err(|error| Failure::runtime(cannot_write(error)))?;
            output.report(Event::Consumed(Box::new(summary.clone())));
            Ok(summary)
        })
        .await?;
    verdict(&args, &summary)
}

fn verdict(args: &Args, summary: &ConsumerSummary) -> Result<Exit, Failure> {
    if summary.unstamped > 0 {
        warn(&format!(
            "{} messages or rows of other writers have no stamp of when they were due; they are in no latency",
            grouped(summary.unstamped)
        ));
    }
    if summary.ended != Ended::Interrupted && !summary.is_whole() {
        let message = format!(
            "committed messages did not come through whole: {} lost, {} files unreadable, {} duplicated, {} out of \
             order, {} without a stamp",
            summary.lost(),
            summary.lost_files,
            summary.integrity.duplicated(),
            summary.integrity.out_of_order(),
            summary.unreadable
        );
        return Err(Failure { exit: Exit::Lossy, message });
    }
    // One that committed nothing since those that ended began is of a preload, or of a producer that was started again.
    let still_sends = |open: &&OpenStream| {
        open.at_the_same_time && open.seconds_before_end <= 10.0 * args.commit.interval().as_secs_f64()
    };
    let (recent, older): (Vec<_>, Vec<_>) = summary.open_streams.iter().partition(still_sends);
    let named = |open: &[&OpenStream]| {
        let names =
            open.iter().map(|open| format!("producer {} (epoch {})", open.by.producer, open.by.epoch));
        names.collect::<Vec<_>>().join(", ")
    };
    if !recent.is_empty() {
        return Err(Failure::runtime(format!(
            "{} had not ended its stream when {} had: not all of the table was read; give --producers {}",
            named(&recent),
            args.producers,
            usize::from(args.producers) + recent.len()
        )));
    }
    if !older.is_empty() {
        warn(&format!(
            "{} never ended its stream: it was a preload, was killed, or is still sending",
            named(&older)
        ));
    }
    match summary.ended {
        Ended::Interrupted => Ok(Exit::Interrupted),
        Ended::Expected | Ended::EndOfStream => Ok(Exit::Ok),
        Ended::WaitTimeout => Err(Failure::runtime(format!(
            "no message came to `{}` in {} s; start a producer there (--wait-timeout-seconds waits longer)",
            args.lake_path, args.wait_timeout_seconds
        ))),
        Ended::DrainTimeout => {
            let expected =
                args.expected_messages.map_or("an unknown number".to_owned(), |count| count.to_string());
            Err(Failure::runtime(format!(
                "nothing came for {} s after {} of {expected} messages; a producer may have died \
                 (--drain-timeout-seconds waits longer)",
                args.drain_timeout_seconds, summary.received
            )))
        }
    }
}

/// Two results in one file would be a mix of both.
fn one_file_each(args: &Args) -> Result<(), Failure> {
    let files = [
        ("--output-path", &args.output_path),
        ("--raw-output-path", &args.raw_output_path),
        ("--hlog-output-path", &args.hlog_output_path),
    ];
    let mut taken = BTreeMap::new();
    for (flag, path) in files {
        if let Some(file) = path.as_ref().and_then(|path| std::path::absolute(path).ok())
            && let Some(other) = taken.insert(file.clone(), flag)
        {
            let file = file.display();
            return Err(Failure::usage(format!("{other} and {flag} name the same file, {file}")));
        }
    }
    Ok(())
}

/// What comes out of a consumer: files, and events with the progress in them.
struct Output {
    rows: Option<RateCsv<PartialFile>>,
    raw: Option<PartialFile>,
    hlog: Option<Hlog<PartialFile>>,
    progress: Progress,
}

impl Output {
    fn create(args: &Args) -> io::Result<Self> {
        let create = |path: &PathBuf| {
            prepare_file(path)?;
            PartialFile::create(path)
        };
        let mut raw = args.raw_output_path.as_ref().map(create).transpose()?;
        if let Some(raw) = &mut raw {
            raw.write_all(b"due_us,received_us\n")?;
        }
        Ok(Self {
            rows: args.output_path.as_ref().map(|path| RateCsv::new(create(path)?)).transpose()?,
            raw,
            hlog: args.hlog_output_path.as_ref().map(|path| Hlog::new(create(path)?)).transpose()?,
            progress: Progress::new("consumer", args.expected_messages, "messages", args.role.quiet),
        })
    }

    /// Gives the files their names. Those of an interrupted run stay marked as partial, with what they have.
    fn end(&mut self, is_whole: bool) -> io::Result<()> {
        let rows = self.rows.take().map(RateCsv::into_inner).transpose()?;
        for mut file in [rows, self.raw.take(), self.hlog.take().map(Hlog::into_inner)].into_iter().flatten()
        {
            if is_whole { file.finish()? } else { file.flush()? }
        }
        Ok(())
    }
}

impl Sink for Output {
    fn report(&mut self, event: Event) {
        self.progress.report(&event);
    }

    fn row(&mut self, row: &PercentileRow) -> io::Result<()> {
        self.rows.as_mut().map_or(Ok(()), |rows| rows.row(row))
    }

    fn message(&mut self, due_us: i64, received_us: i64) -> io::Result<()> {
        self.raw.as_mut().map_or(Ok(()), |raw| writeln!(raw, "{due_us},{received_us}"))
    }

    fn interval(&mut self, start_us: i64, length_us: i64, sample: &Sample) -> io::Result<()> {
        self.hlog.as_mut().map_or(Ok(()), |hlog| hlog.interval(start_us, length_us, sample))
    }
}
