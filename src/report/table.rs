//! The table over the rates, for people.

use crate::storage::Purpose;
use crate::units::grouped;

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

/// Right-aligned columns under a header, one row a rate; what was lost, doubled or reordered is spelled
/// out below it.
pub fn table(steps: &[StepReport]) -> String {
    let rows: Vec<[String; 13]> =
        std::iter::once(HEADER.map(str::to_owned)).chain(steps.iter().map(row)).collect();
    let widths: Vec<usize> =
        (0..HEADER.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for step in steps {
        for note in notes(step) {
            text.push_str(&format!("rate {}: {note}\n", step.rate));
        }
    }
    text
}

fn row(step: &StepReport) -> [String; 13] {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let ms = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), |us| format!("{:.1}", us as f64 / 1e3));
    let latency = consumer.latency.as_ref();
    let puts = producer.requests.attempts(Purpose::DataPut) + producer.requests.attempts(Purpose::CommitPut);
    let gets = [Purpose::CommitGetHit, Purpose::CommitGetMiss, Purpose::DataGet]
        .map(|purpose| consumer.requests.attempts(purpose))
        .iter()
        .sum();
    [
        step.rate.to_string(),
        grouped(producer.committed),
        grouped(consumer.received),
        producer.achieved_rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")),
        ms(latency.map(|l| l.p50_us)),
        ms(latency.map(|l| l.p75_us)),
        ms(latency.map(|l| l.p85_us)),
        ms(latency.map(|l| l.p95_us)),
        ms(latency.map(|l| l.p99_us)),
        ms(latency.map(|l| l.max_us)),
        grouped(puts),
        grouped(gets),
        step.verdict.to_string(),
    ]
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
    for stream in &consumer.integrity.streams {
        if let Some((first, last)) = stream.first_lost.first() {
            notes.push(format!("producer {} lost {first}-{last} first", stream.stream.producer));
        }
    }
    notes
}
