//! The table over the rates, for people.

use crate::measure::LatencySummary;
use crate::units::grouped;
use s3mq_queue::storage::Purpose;

use super::cost::Prices;
use super::step::StepReport;

const HEADER: [&str; 13] = [
    "rate/s",
    "sent",
    "received",
    "achieved/s",
    "p50 ms",
    "p75 ms",
    "p85 ms",
    "p95 ms",
    "p99 ms",
    "max ms",
    "PUTs",
    "GETs",
    "verdict",
];

/// Stands before a percentile that too few samples support.
const MARK: &str = "~";

/// Right-aligned columns under a header, one row a rate; what was lost, doubled or reordered is spelled
/// out below it.
pub fn table(steps: &[StepReport]) -> String {
    let mut text = aligned(std::iter::once(HEADER.map(str::to_owned)).chain(steps.iter().map(row)));
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
pub fn cost_table(prices: &Prices, steps: &[StepReport]) -> String {
    let header = ["rate/s", "$/hour", "$/month", "$/million messages", "storage $/month"].map(str::to_owned);
    let dollars = |amount: f64| format!("{amount:.4}");
    let rows = steps.iter().map(|step| {
        [
            step.rate.to_string(),
            dollars(step.cost.requests_usd_per_hour),
            format!("{:.2}", step.cost.requests_usd_per_month),
            step.cost
                .requests_usd_per_million_messages
                .map_or_else(|| "-".to_owned(), |cost| format!("{cost:.6}")),
            format!("{:.2}", step.cost.storage_usd_per_month),
        ]
    });
    let mut text = format!(
        "requests at the prices of {} as of {}, 1 producer, 1 consumer:\n",
        prices.name, prices.as_of
    );
    text.push_str(&aligned(std::iter::once(header).chain(rows)));
    if let Some(step) = steps.last() {
        let idle = step.cost.idle_usd_per_month;
        text.push_str(&format!(
            "idle (no messages), calculated from the polling policy: {idle:.2} $/month a consumer\n"
        ));
    }
    text
}

/// Right-aligned columns.
pub(super) fn aligned<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The `percentile` of `latency`, which is `us`, in milliseconds; marked where too few samples support it.
pub fn percentile_ms(latency: &LatencySummary, percentile: u8, us: u64) -> String {
    marked_ms(&latency.unsupported_percentiles, percentile, us)
}

/// The same with the percentiles that too few samples support.
pub(super) fn marked_ms(unsupported: &[u8], percentile: u8, us: u64) -> String {
    let mark = if unsupported.contains(&percentile) { MARK } else { "" };
    format!("{mark}{:.1}", us as f64 / 1e3)
}

fn row(step: &StepReport) -> [String; 13] {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let latency = consumer.latency.as_ref();
    let ms = |percentile, figure: fn(&LatencySummary) -> u64| {
        or_dash(latency.map(|latency| percentile_ms(latency, percentile, figure(latency))))
    };
    let puts = producer.requests.attempts(Purpose::DataPut) + producer.requests.attempts(Purpose::CommitPut);
    let gets = [Purpose::CommitGetHit, Purpose::CommitGetMiss, Purpose::DataGet]
        .map(|purpose| consumer.requests.attempts(purpose))
        .iter()
        .sum();
    [
        step.rate.to_string(),
        grouped(producer.committed),
        grouped(consumer.received),
        or_dash(producer.achieved_rate.map(|rate| format!("{rate:.1}"))),
        ms(50, |l| l.p50_us),
        ms(75, |l| l.p75_us),
        ms(85, |l| l.p85_us),
        ms(95, |l| l.p95_us),
        ms(99, |l| l.p99_us),
        or_dash(latency.map(|l| format!("{:.1}", l.max_us as f64 / 1e3))),
        grouped(puts),
        grouped(gets),
        step.verdict.to_string(),
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
    match count {
        0 => None,
        1 => Some(format!("the store did not answer for {longest:.1} s{bench}; {caught_up}")),
        _ => Some(format!(
            "the store did not answer {} times, for {total:.1} s together and {longest:.1} s at the longest{bench}; {caught_up}",
            grouped(count)
        )),
    }
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
