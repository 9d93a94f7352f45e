//! The tables over the rates, for people.

use terminal_size::{Width, terminal_size_of};

use crate::config::DEFAULT_COMMIT_MS;
use crate::events::CheckpointOutcome;
use crate::measure::{LatencySummary, Stage, StageSummary};
use crate::units::grouped;
use s3mq_queue::storage::{Purpose, advice_on_slow_gets};

use super::cost::Prices;
use super::step::{RunInfo, StepReport};

/// Stands before a percentile that too few samples support.
const MARK: &str = "~";

/// One row a rate under what all of them were run with; what was lost, doubled or reordered is spelled out below.
pub(crate) fn table(info: &RunInfo, steps: &[StepReport]) -> String {
    let store = steps.iter().find_map(|step| step.producer.store_server.as_ref()).unwrap_or(&info.store);
    let interval_ms = info.run.commit.autocommit_duration_ms;
    let mut text = format!(
        "{store}, {}-byte messages, a commit every {interval_ms} ms, begun {}:\n",
        info.message.bytes(),
        info.begun
    );
    let rows = steps.iter().map(|step| row(info, step));
    text += &aligned(rows, &["p75 ms", "p85 ms", "GETs", "PUTs", "sent", "MB/s"]);
    if interval_ms == DEFAULT_COMMIT_MS {
        text.push_str(&format!(
            "half of the commit interval, {} ms, is in every median; --autocommit-duration-ms sets it\n",
            interval_ms / 2
        ));
    }
    if text.contains(MARK) {
        text.push_str(&format!(
            "{MARK} fewer than ten messages lie beyond this percentile: it says little\n"
        ));
    }
    for step in steps {
        for note in notes(step) {
            text.push_str(&format!("rate {}: {note}\n", step.rate));
        }
    }
    text
}

/// What each rate costs, under the name and date of the price table; one row a rate.
pub(crate) fn cost_table(prices: &Prices, steps: &[StepReport]) -> String {
    let rows = steps.iter().map(|step| {
        let cost = &step.cost;
        let a_million = cost.requests_usd_per_million_messages.map(|cost| format!("{cost:.6}"));
        vec![
            ("rate/s", step.rate.to_string()),
            ("$/hour", format!("{:.4}", cost.requests_usd_per_hour)),
            ("$/month", format!("{:.2}", cost.requests_usd_per_month)),
            ("$/million messages", or_dash(a_million)),
            ("storage $/month", format!("{:.2}", cost.storage_usd_per_month)),
        ]
    });
    let mut text = format!(
        "requests at the prices of {} as of {}, 1 producer, 1 consumer:\n",
        prices.name, prices.as_of
    );
    text.push_str(&aligned(rows, &[]));
    if let Some(step) = steps.last() {
        let consumer = step.cost.consumer_usd_per_month;
        let producer = step.cost.requests_usd_per_month - consumer;
        text.push_str(&format!(
            "P producers and C consumers on one table: P x {producer:.2} + P x C x {consumer:.2} $/month;\n\
             each consumer reads what every producer commits; repeats after conflicts, and GETs that\n\
             find nothing because commits of several come at no steady pace, are on top\n"
        ));
        let idle = step.cost.idle_usd_per_month;
        text.push_str(&format!(
            "idle (no messages), calculated from the polling policy: {idle:.2} $/month a consumer\n"
        ));
    }
    text
}

/// What may grow with a table's log: commit, discovery and cold-open time, checkpoints, memory. One row a rate; of two
/// values in a field, the first is the producer's. `preload_versions` is what each table was aged by.
pub(crate) fn log_age_table(preload_versions: u64, steps: &[StepReport]) -> String {
    let mut text = match preload_versions {
        0 => "log age:\n".to_owned(),
        versions => format!("log age, each table preloaded with {} versions:\n", grouped(versions)),
    };
    text.push_str(&aligned(steps.iter().map(log_age_row), &["s each", "RSS growth", "open ms", "p99 ms"]));
    for step in steps {
        let counts = step.producer.checkpoints;
        for (count, how) in [
            (counts.failed, "failed"),
            (counts.skipped, "were skipped: the one before was still running"),
            (counts.abandoned, "were not waited for at the end"),
        ] {
            if count > 0 {
                text.push_str(&format!("rate {}: {} checkpoints {how}\n", step.rate, grouped(count)));
            }
        }
    }
    text
}

/// The stage that ends when the consumer has the log entry.
pub(super) fn discovered(step: &StepReport) -> Option<&StageSummary> {
    step.consumer.stages.iter().find(|stage| stage.stage == Stage::Discovered)
}

/// Mean length of the checkpoints that were made, in seconds; `None` where none was.
fn checkpoint_seconds(step: &StepReport) -> Option<f64> {
    let made = step.marks.iter().filter(|mark| mark.outcome == CheckpointOutcome::Made);
    let seconds: Vec<_> = made.map(|mark| mark.seconds).collect();
    (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
}

fn log_age_row(step: &StepReport) -> Row {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let versions =
        consumer.last_version.map(|last| format!("{}-{}", grouped(consumer.first_version), grouped(last)));
    let commit = |percentile, figure: fn(&LatencySummary) -> u64| {
        let time = producer.commit_time.as_ref();
        or_dash(time.map(|time| percentile_ms(&time.unsupported_percentiles, percentile, figure(time))))
    };
    let discovered = |percentile, figure: fn(&StageSummary) -> u64| {
        let stage = discovered(step);
        or_dash(stage.map(|stage| percentile_ms(&stage.unsupported_percentiles, percentile, figure(stage))))
    };
    let opened = [Some(producer.cold_open_seconds), consumer.cold_open_seconds]
        .map(|seconds| or_dash(seconds.map(|seconds| format!("{:.1}", seconds * 1e3))));
    let growth = [step.rss_growth.producer, step.rss_growth.consumer]
        .map(|growth| or_dash(growth.map(|growth| format!("{:+.1}%", growth * 100.0))));
    vec![
        ("rate/s", step.rate.to_string()),
        ("versions", or_dash(versions)),
        ("commit p50 ms", commit(50, |time| time.p50_us)),
        ("p99 ms", commit(99, |time| time.p99_us)),
        ("discovered p50 ms", discovered(50, |stage| stage.p50_us)),
        ("p99 ms", discovered(99, |stage| stage.p99_us)),
        ("open ms", opened.join(" ")),
        ("checkpoints", grouped(producer.checkpoints.made)),
        ("s each", or_dash(checkpoint_seconds(step).map(|seconds| format!("{seconds:.2}")))),
        ("RSS growth", growth.join(" ")),
    ]
}

/// A line of a table: the name of each column and what it has there.
type Row = Vec<(&'static str, String)>;

/// Right-aligned columns under their names. On a terminal that is too narrow, columns are left out in the order of
/// `dispensable`.
fn aligned(rows: impl Iterator<Item = Row>, dispensable: &[&str]) -> String {
    let max_width =
        terminal_size_of(std::io::stdout()).map_or(usize::MAX, |(Width(columns), _)| usize::from(columns));
    aligned_within(rows.collect(), dispensable, max_width)
}

fn aligned_within(rows: Vec<Row>, dispensable: &[&str], max_width: usize) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut columns: Vec<_> = (0..first.len())
        .map(|column| {
            let widths = rows.iter().map(|row| row[column].0.len().max(row[column].1.len()));
            (column, widths.max().unwrap_or(0))
        })
        .collect();
    let mut dispensable = dispensable.iter();
    while columns.iter().map(|(_, width)| width + 2).sum::<usize>() > max_width.saturating_add(2) {
        let Some(name) = dispensable.next() else { break };
        columns.retain(|(column, _)| first[*column].0 != *name);
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = columns.iter().map(|&(column, width)| format!("{:>width$}", cell(column)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&|column| first[column].0.to_owned());
    text.extend(rows.iter().map(|row| line(&|column| row[column].1.clone())));
    if columns.len() < first.len() {
        text.push_str("(summary.csv has all columns)\n");
    }
    text
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// The `percentile`, which is `us`, in milliseconds; marked where it is among the unsupported ones.
pub(crate) fn percentile_ms(unsupported: &[u8], percentile: u8, us: u64) -> String {
    let mark = if unsupported.contains(&percentile) { MARK } else { "" };
    format!("{mark}{:.1}", us as f64 / 1e3)
}

fn row(info: &RunInfo, step: &StepReport) -> Row {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let latency = consumer.latency.as_ref();
    let ms = |percentile, figure: fn(&LatencySummary) -> u64| {
        or_dash(latency.map(|l| percentile_ms(&l.unsupported_percentiles, percentile, figure(l))))
    };
    let puts = producer.requests.attempts(Purpose::DataPut) + producer.requests.attempts(Purpose::CommitPut);
    let gets = [Purpose::CommitGetHit, Purpose::CommitGetMiss, Purpose::DataGet]
        .map(|purpose| consumer.requests.attempts(purpose))
        .iter()
        .sum();
    vec![
        ("rate/s", step.rate.to_string()),
        ("sent", grouped(producer.committed)),
        ("received", grouped(consumer.received)),
        ("achieved/s", or_dash(producer.achieved_rate.map(|rate| format!("{rate:.1}")))),
        ("MB/s", or_dash(info.megabytes_per_second(step).map(|rate| format!("{rate:.1}")))),
        ("p50 ms", ms(50, |l| l.p50_us)),
        ("p75 ms", ms(75, |l| l.p75_us)),
        ("p85 ms", ms(85, |l| l.p85_us)),
        ("p95 ms", ms(95, |l| l.p95_us)),
        ("p99 ms", ms(99, |l| l.p99_us)),
        ("max ms", ms(100, |l| l.max_us)),
        ("PUTs", grouped(puts)),
        ("GETs", grouped(gets)),
        ("verdict", step.verdict.to_string()),
    ]
}

/// The stalls of the store, as the role saw them that waited longest.
fn stalls(step: &StepReport) -> Option<String> {
    let (producer, consumer) = (step.producer.store_stalls, step.consumer.store_stalls);
    let stalls = if producer.longest_seconds > consumer.longest_seconds { producer } else { consumer };
    let (count, total, longest) = (stalls.count, stalls.total_seconds, stalls.longest_seconds);
    let bench = match step.bench_pause_seconds {
        // Only one that is about as long explains it.
        pause if pause >= longest / 2.0 => {
            format!(", while the bench itself (and an embedded store) stood still for {pause:.1} s")
        }
        _ => String::new(),
    };
    let caught_up = match step.consumer.recovery_seconds {
        Some(seconds) => format!("caught up {seconds:.1} s after its answer"),
        None => "nothing was due after its answer".to_owned(),
    };
    let times = match count {
        0 => return None,
        1 => format!("for {longest:.1} s"),
        _ => format!("{} times, for {total:.1} s together and {longest:.1} s at the longest", grouped(count)),
    };
    Some(format!("the store did not answer {times}{bench}; {caught_up}"))
}

fn notes(step: &StepReport) -> Vec<String> {
    let consumer = &step.consumer;
    let mut notes = step.verdict.reasons.clone();
    let mut count = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{} {what}", grouped(count)));
        }
    };
    count(step.unsent, "messages were planned and not sent");
    count(consumer.lost(), "committed messages were lost");
    count(consumer.lost_files, "data files could not be read");
    count(consumer.integrity.duplicated(), "messages came more than once");
    count(consumer.integrity.out_of_order(), "messages came out of order");
    count(consumer.integrity.beyond_end(), "messages came beyond their stream's end");
    count(consumer.unreadable, "messages had no readable stamp");
    count(consumer.negative_latencies, "messages seem to have come before they were due (clock)");
    notes.extend(stalls(step));
    let p50_us = |stage| consumer.stages.iter().find(|row| row.stage == stage).map(|row| row.p50_us);
    let fetched_and_stored = p50_us(Stage::Fetched).zip(p50_us(Stage::Stored));
    notes.extend(fetched_and_stored.and_then(|(get, put)| advice_on_slow_gets(get, put)).map(str::to_owned));
    for stream in &consumer.integrity.streams {
        if let Some((first, last)) = stream.first_lost.first() {
            notes.push(format!("producer {} lost {first}-{last} first", stream.stream.producer));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_can_be_dispensed_with_are_left_out_where_there_is_no_room() {
        let row = vec![
            ("rate/s", "1000".to_owned()),
            ("p75 ms", "1.0".to_owned()),
            ("verdict", "sustained".to_owned()),
        ];
        let lines = |width| aligned_within(vec![row.clone()], &["p75 ms"], width);
        let whole = "rate/s  p75 ms    verdict\n  1000     1.0  sustained\n";
        assert_eq!(lines(usize::MAX), whole);
        assert_eq!(lines(25), whole);
        let narrow = "rate/s    verdict\n  1000  sustained\n(summary.csv has all columns)\n";
        assert_eq!(lines(24), narrow);
        assert_eq!(lines(1), narrow, "the others stay");
        assert_eq!(aligned_within(Vec::new(), &[], 80), "");
    }
}
