//! The tables over the rates, for people.

use crate::measure::LatencySummary;
use crate::units::grouped;
use s3mq_queue::storage::Purpose;

use super::cost::Prices;
use super::step::StepReport;

/// Stands before a percentile that too few samples support.
const MARK: &str = "~";

/// One row a rate; what was lost, doubled or reordered is spelled out below.
pub(crate) fn table(steps: &[StepReport]) -> String {
    let mut text = aligned(steps.iter().map(row));
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
        [
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
    text.push_str(&aligned(rows));
    if let Some(step) = steps.last() {
        let consumer = step.cost.consumer_usd_per_month;
        let producer = step.cost.requests_usd_per_month - consumer;
        text.push_str(&format!(
            "P producers and C consumers on one table: P x {producer:.2} + P x C x {consumer:.2} $/month;\n\
             each consumer reads what every producer commits, and repeats after conflicts come on top\n"
        ));
        let idle = step.cost.idle_usd_per_month;
        text.push_str(&format!(
            "idle (no messages), calculated from the polling policy: {idle:.2} $/month a consumer\n"
        ));
    }
    text
}

/// Right-aligned columns under their names.
pub(super) fn aligned<const N: usize>(rows: impl Iterator<Item = [(&'static str, String); N]>) -> String {
    let rows: Vec<_> = rows.collect();
    let header = rows.first().map(|row| row.each_ref().map(|(name, _)| (*name).to_owned()));
    let lines: Vec<_> =
        header.into_iter().chain(rows.into_iter().map(|row| row.map(|cell| cell.1))).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// The `percentile`, which is `us`, in milliseconds; marked where it is among the unsupported ones.
pub(crate) fn percentile_ms(unsupported: &[u8], percentile: u8, us: u64) -> String {
    let mark = if unsupported.contains(&percentile) { MARK } else { "" };
    format!("{mark}{:.1}", us as f64 / 1e3)
}

fn row(step: &StepReport) -> [(&'static str, String); 13] {
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
    [
        ("rate/s", step.rate.to_string()),
        ("sent", grouped(producer.committed)),
        ("received", grouped(consumer.received)),
        ("achieved/s", or_dash(producer.achieved_rate.map(|rate| format!("{rate:.1}")))),
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
    for stream in &consumer.integrity.streams {
        if let Some((first, last)) = stream.first_lost.first() {
            notes.push(format!("producer {} lost {first}-{last} first", stream.stream.producer));
        }
    }
    notes
}
