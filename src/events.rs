//! What a role reports while it works: one JSON object a line on its standard output, for `s3mq bench` and for scripts.
//! Every event has a field `event`; unknown ones are to be passed over.

use serde::{Deserialize, Serialize};

use crate::machine::ResourceUsage;
pub use crate::measure::LatencySummary;
use crate::measure::{ChosenPercentile, Integrity, StageSummary};
pub use s3mq_queue::CheckpointOutcome;
use s3mq_queue::ProducerEpoch;
use s3mq_queue::storage::StoreClock;
pub use s3mq_queue::storage::{Requests, StoreStalls};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Connected, and (for a producer) the table exists: what comes next can begin.
    Ready,
    /// About once a second.
    Progress {
        /// Messages handed over by a producer, delivered by a consumer; versions that a preload has added.
        messages: u64,
        /// How long the store was asked and did not answer so far, in seconds.
        #[serde(default)]
        unanswered_seconds: f64,
    },
    /// An interval of a producer's timeline is over.
    Sent(SentInterval),
    /// An interval of a consumer's timeline is over.
    Received(ReceivedInterval),
    /// Something happened beside the messages that may show in their latency.
    Mark(Mark),
    /// A checkpoint of a table is there.
    Checkpointed {
        /// Of which version.
        version: u64,
        /// Attempts that it took.
        requests: Requests,
    },
    /// A table was filled with versions.
    Preloaded {
        /// Its latest version.
        last_version: u64,
        /// Checkpoints made.
        checkpoints: u64,
        /// How long it took, in seconds.
        seconds: f64,
    },
    /// A producer is through.
    Produced(Box<ProducerSummary>),
    /// A consumer is through.
    Consumed(Box<ConsumerSummary>),
    /// It failed; the process ends with `exit_code`.
    Failed {
        /// One line.
        error: String,
        /// See the README.
        exit_code: u8,
        /// Attempts that a checkpoint took which failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requests: Option<Requests>,
    },
}

/// One interval of a producer's timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentInterval {
    /// Which: whole intervals since the clock anchor.
    pub index: i64,
    /// Messages handed over in it.
    pub messages: u64,
    /// From due to hand-over; `None` where there were none, or there is no schedule.
    pub send_delay: Option<LatencySummary>,
    /// Memory that the process held at its end, in bytes; 0 where the system doesn't say.
    pub rss_bytes: u64,
}

/// One interval of a consumer's timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedInterval {
    /// Which: whole intervals since the clock anchor.
    pub index: i64,
    /// Messages delivered in it.
    pub messages: u64,
    /// Their latencies, warm-up left out; `None` where there were none.
    pub latency: Option<LatencySummary>,
    /// The chosen percentiles of these, in microseconds; empty where there were none.
    pub percentiles_us: Vec<u64>,
    /// At its end: how long ago the last message that was delivered had been due, in microseconds. `None`
    /// before the first.
    pub lag_us: Option<i64>,
    /// Memory that the process held at its end, in bytes; 0 where the system doesn't say.
    pub rss_bytes: u64,
}

/// Something that happened beside the messages, at a moment of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What.
    pub kind: MarkKind,
    /// Which version of the table it is about.
    pub version: u64,
    /// When it began, in Unix microseconds of the producer's clock.
    pub started_us: i64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Body bytes that it sent.
    pub bytes: u64,
    /// How it ended.
    pub outcome: CheckpointOutcome,
}

/// What a [`Mark`] marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// A checkpoint of the table was due.
    Checkpoint,
}

/// How the checkpoints that were due ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCounts {
    /// They are there.
    pub made: u64,
    /// The store or delta-rs failed.
    pub failed: u64,
    /// The one before was still running.
    pub skipped: u64,
    /// The producer was through and didn't wait any longer.
    pub abandoned: u64,
}

/// What a producer did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProducerSummary {
    /// Its id and epoch.
    #[serde(flatten)]
    pub by: ProducerEpoch,
    /// Messages it was asked to send; with `--rate max` and a time, those it sent.
    pub planned: u64,
    /// Messages committed.
    pub committed: u64,
    /// Seconds from the start of the schedule to the last hand-over or the schedule's end, whichever is later.
    pub sending_seconds: f64,
    /// Messages handed over a second of that; `None` where there was no such time.
    pub achieved_rate: Option<f64>,
    /// From when a message was due to its hand-over; `None` with `--rate max`, which has no schedule.
    pub send_delay: Option<LatencySummary>,
    /// How long the pacer waited for room in the queue, in seconds: the store was slower than the schedule.
    pub held_up_seconds: f64,
    /// Data files.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Commits, the end of stream included.
    pub commits: u64,
    /// PUTs of log entries that had to be sent again.
    pub commit_retries: u64,
    /// Versions that another producer took first.
    pub conflicts: u64,
    /// Attempts to PUT a data file beyond one for each that was committed.
    pub wasted_data_puts: u64,
    /// Attempts to PUT a log entry beyond one for each commit.
    pub wasted_commit_puts: u64,
    /// From a commit's PUT being sent to its being acknowledged, the end of stream included.
    pub commit_time: Option<LatencySummary>,
    /// How long it took to open the table, once it was there, in seconds.
    pub cold_open_seconds: f64,
    /// The checkpoints that were due.
    pub checkpoints: CheckpointCounts,
    /// Attempts that they took, which are not among the other requests. Those of one that was abandoned or killed are
    /// not known.
    pub checkpoint_requests: Requests,
    /// What it took of the machine.
    pub resources: ResourceUsage,
    /// Whether it was interrupted before it had sent everything.
    pub interrupted: bool,
    /// The `Server` header of the store's answers.
    pub store_server: Option<String>,
    /// How far the wall clock was stepped during the run, in microseconds.
    pub wall_clock_step_us: i64,
    /// The store's clock against this host's: roles on different hosts are compared through it.
    pub store_clock: Option<StoreClock>,
    /// The spans of more than ten commit intervals, and more than a second, in which the store did not answer.
    pub store_stalls: StoreStalls,
    /// Attempts on the wire, from the process's start.
    pub requests: Requests,
    /// Of these, the ones sent once it was ready: opening the table left out.
    pub running_requests: Requests,
}

/// Why a consumer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// `--expected-messages` came.
    Expected,
    /// All of `--producers` ended their streams.
    EndOfStream,
    /// The first message didn't come for `--wait-timeout-seconds`.
    WaitTimeout,
    /// Nothing came for `--drain-timeout-seconds`.
    DrainTimeout,
    /// SIGINT or SIGTERM.
    Interrupted,
}

/// A producer epoch that had not ended when a consumer had seen the ends that it waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenStream {
    /// Whose.
    #[serde(flatten)]
    pub by: ProducerEpoch,
    /// From its last commit to the last end of a stream, in seconds of the producers' clocks.
    pub seconds_before_end: f64,
    /// Whether it committed messages after those that ended had begun to.
    pub at_the_same_time: bool,
}

/// What a consumer saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsumerSummary {
    /// Why it ended.
    pub ended: Ended,
    /// Messages delivered.
    pub received: u64,
    /// Of these, left out of the latency figures as warm-up.
    pub warmup: u64,
    /// Of these, left out because they were due after the last whole commit interval.
    pub beyond_window: u64,
    /// From due to delivered, after the warm-up; `None` where nothing was measured.
    pub latency: Option<LatencySummary>,
    /// The chosen percentiles of that; empty where nothing was measured.
    pub percentiles: Vec<ChosenPercentile>,
    /// From handed over to delivered, for messages of our own producers: without the producer's own lateness.
    pub latency_since_handed_over: Option<LatencySummary>,
    /// Where that time went, for messages of our own producers.
    pub stages: Vec<StageSummary>,
    /// Messages that seem to have come before they were due (clocks disagree). They are in no percentile.
    pub negative_latencies: u64,
    /// Messages of our own producers without a readable stamp.
    pub unreadable: u64,
    /// Messages of other writers without a readable stamp, and their rows without data. They are in no latency.
    pub unstamped: u64,
    /// Messages in data files that could not be read, where no producer epoch accounts for them.
    pub lost_untracked: u64,
    /// Data files that could not be read.
    pub lost_files: u64,
    /// Rows with `diff < 0`, left out.
    pub retractions: u64,
    /// Producer epochs that had not ended when `--producers` others had.
    pub open_streams: Vec<OpenStream>,
    /// What came of each producer epoch's messages.
    pub integrity: Integrity<ProducerEpoch>,
    /// How long it took to open the table, in seconds; `None` where it wasn't there yet.
    pub cold_open_seconds: Option<f64>,
    /// First version read.
    pub first_version: u64,
    /// Last version delivered.
    pub last_version: Option<u64>,
    /// Seconds from the first delivery to the last.
    pub receiving_seconds: f64,
    /// How far the wall clock was stepped during the run, in microseconds.
    pub wall_clock_step_us: i64,
    /// The store's clock against this host's: roles on different hosts are compared through it.
    pub store_clock: Option<StoreClock>,
    /// The spans of more than ten commit intervals, and more than a second, in which the store did not answer.
    pub store_stalls: StoreStalls,
    /// The longest time from the store's first answer after a stall until a message due after it was delivered, in
    /// seconds. `None` where there was no stall, or one that it has not caught up with.
    pub recovery_seconds: Option<f64>,
    /// What it took of the machine.
    pub resources: ResourceUsage,
    /// Attempts on the wire, from the process's start.
    pub requests: Requests,
    /// Of these, the ones sent once it was ready: opening the table left out.
    pub running_requests: Requests,
}

impl ConsumerSummary {
    /// Committed messages that were skipped.
    pub fn lost(&self) -> u64 {
        self.integrity.lost() + self.lost_untracked
    }

    /// Whether every committed message came once, in order and readable.
    pub fn is_whole(&self) -> bool {
        self.lost() == 0
            && self.lost_files == 0
            && self.unreadable == 0
            && self.integrity.duplicated() == 0
            && self.integrity.out_of_order() == 0
            && self.integrity.beyond_end() == 0
    }
}
