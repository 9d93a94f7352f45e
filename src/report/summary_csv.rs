//! `summary.csv`: one row a rate. Latencies in seconds with six decimals; an empty field where
//! nothing was measured.

use crate::storage::Purpose;

use super::step::StepReport;

/// The bytes of the file.
pub fn summary_csv(steps: &[StepReport]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = [
        "rate",
        "verdict",
        "harness_bound",
        "planned",
        "committed",
        "received",
        "unsent",
        "lost",
        "duplicated",
        "out_of_order",
        "unreadable",
        "negative_latencies",
        "achieved_rate",
        "measured",
        "p50",
        "p75",
        "p85",
        "p95",
        "p99",
        "max",
        "mean",
        "commits",
        "commit_retries",
        "data_puts",
        "commit_puts",
        "commit_gets_hit",
        "commit_gets_miss",
        "data_gets",
        "lists",
    ];
    // Writing to memory can't fail.
    let _ = writer.write_record(header);
    for step in steps {
        let _ = writer.write_record(row(step));
    }
    writer.into_inner().unwrap_or_default()
}

fn row(step: &StepReport) -> Vec<String> {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let seconds = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{:.6}", us / 1e6));
    let latency = consumer.latency.as_ref();
    let mut row = vec![
        step.rate.to_string(),
        step.verdict.outcome.name().to_owned(),
        step.verdict.harness_bound.to_string(),
    ];
    row.extend(
        [
            producer.planned,
            producer.committed,
            consumer.received,
            step.unsent,
            consumer.lost(),
            consumer.integrity.duplicated(),
            consumer.integrity.out_of_order(),
            consumer.unreadable,
            consumer.negative_latencies,
        ]
        .map(|count| count.to_string()),
    );
    row.push(producer.achieved_rate.map_or_else(String::new, |rate| format!("{rate:.3}")));
    row.push(latency.map_or(0, |latency| latency.count).to_string());
    row.extend(
        [
            latency.map(|l| l.p50_us as f64),
            latency.map(|l| l.p75_us as f64),
            latency.map(|l| l.p85_us as f64),
            latency.map(|l| l.p95_us as f64),
            latency.map(|l| l.p99_us as f64),
            latency.map(|l| l.max_us as f64),
            latency.map(|l| l.mean_us),
        ]
        .map(seconds),
    );
    row.extend(
        [
            producer.commits,
            producer.commit_retries,
            producer.requests.attempts(Purpose::DataPut),
            producer.requests.attempts(Purpose::CommitPut),
            consumer.requests.attempts(Purpose::CommitGetHit),
            consumer.requests.attempts(Purpose::CommitGetMiss),
            consumer.requests.attempts(Purpose::DataGet),
            producer.requests.attempts(Purpose::List) + consumer.requests.attempts(Purpose::List),
        ]
        .map(|count| count.to_string()),
    );
    row
}
