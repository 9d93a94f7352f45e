//! `summary.csv`: one row a rate. Latencies in seconds with six decimals; an empty field where
//! nothing was measured.

use s3mq_queue::storage::Purpose;

use super::log_age::discovered;
use super::step::{RunInfo, StepReport};

/// The bytes of the file, of a run with this configuration; empty for no steps.
pub fn summary_csv(info: &RunInfo, steps: &[StepReport]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, step) in steps.iter().enumerate() {
        // A column's name stands beside its value, so that the two can't come apart.
        let (names, values): (Vec<_>, Vec<_>) = columns(info, step).into_iter().unzip();
        // Writing to memory can't fail.
        if index == 0 {
            let _ = writer.write_record(names);
        }
        let _ = writer.write_record(values);
    }
    writer.into_inner().unwrap_or_default()
}

fn columns(info: &RunInfo, step: &StepReport) -> Vec<(String, String)> {
    let (producer, consumer) = (&step.producer, &step.consumer);
    let latency = consumer.latency.as_ref();
    let since_handed_over = consumer.latency_since_handed_over.as_ref();
    let count = |name: &str, count: u64| (name.to_owned(), count.to_string());
    let seconds = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{:.6}", us / 1e6));
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.4}"));
    let chosen = info.run.percentiles.percentiles.iter().map(|percentile| {
        let found = consumer.percentiles.iter().find(|chosen| chosen.percentile == percentile);
        (format!("p{percentile}"), seconds(found.map(|chosen| chosen.us as f64)))
    });

    let longest_stall_seconds =
        producer.store_stalls.longest_seconds.max(consumer.store_stalls.longest_seconds);

    let mut columns = vec![
        ("rate".to_owned(), step.rate.to_string()),
        ("verdict".to_owned(), step.verdict.outcome.name().to_owned()),
        ("harness_bound".to_owned(), step.verdict.harness_bound.to_string()),
        count("planned", producer.planned),
        count("committed", producer.committed),
        count("received", consumer.received),
        count("unsent", step.unsent),
        count("lost", consumer.lost()),
        count("duplicated", consumer.integrity.duplicated()),
        count("out_of_order", consumer.integrity.out_of_order()),
        count("unreadable", consumer.unreadable),
        count("negative_latencies", consumer.negative_latencies),
        (
            "achieved_rate".to_owned(),
            producer.achieved_rate.map_or_else(String::new, |rate| format!("{rate:.3}")),
        ),
        count("measured", latency.map_or(0, |latency| latency.count)),
    ];
    columns.extend(chosen);
    columns.extend([
        ("max".to_owned(), seconds(latency.map(|latency| latency.max_us as f64))),
        ("mean".to_owned(), seconds(latency.map(|latency| latency.mean_us))),
        ("handed_over_p50".to_owned(), seconds(since_handed_over.map(|latency| latency.p50_us as f64))),
        ("handed_over_p99".to_owned(), seconds(since_handed_over.map(|latency| latency.p99_us as f64))),
        ("send_delay_p99".to_owned(), seconds(producer.send_delay.as_ref().map(|delay| delay.p99_us as f64))),
        ("commit_p50".to_owned(), seconds(producer.commit_time.as_ref().map(|time| time.p50_us as f64))),
        ("commit_p99".to_owned(), seconds(producer.commit_time.as_ref().map(|time| time.p99_us as f64))),
        ("discovered_p50".to_owned(), seconds(discovered(step).map(|stage| stage.p50_us as f64))),
        ("discovered_p99".to_owned(), seconds(discovered(step).map(|stage| stage.p99_us as f64))),
        ("producer_cold_open".to_owned(), seconds(Some(producer.cold_open_seconds * 1e6))),
        ("consumer_cold_open".to_owned(), seconds(consumer.cold_open_seconds.map(|seconds| seconds * 1e6))),
        count("commits", producer.commits),
        count("commit_retries", producer.commit_retries),
        count("conflicts", producer.conflicts),
        count("wasted_data_puts", producer.wasted_data_puts),
        count("wasted_commit_puts", producer.wasted_commit_puts),
        count("data_puts", producer.requests.attempts(Purpose::DataPut)),
        count("commit_puts", producer.requests.attempts(Purpose::CommitPut)),
        count("commit_gets_hit", consumer.requests.attempts(Purpose::CommitGetHit)),
        count("commit_gets_miss", consumer.requests.attempts(Purpose::CommitGetMiss)),
        count("data_gets", consumer.requests.attempts(Purpose::DataGet)),
        count("lists", producer.requests.attempts(Purpose::List) + consumer.requests.attempts(Purpose::List)),
        count("checkpoints", producer.checkpoints.made),
        count("checkpoints_failed", producer.checkpoints.failed),
        count("checkpoint_requests", producer.checkpoint_requests.total()),
        count("producer_peak_rss_bytes", producer.effort.peak_rss_bytes),
        count("consumer_peak_rss_bytes", consumer.effort.peak_rss_bytes),
        count("producer_store_stalls", producer.store_stalls.count),
        count("consumer_store_stalls", consumer.store_stalls.count),
        ("longest_store_stall".to_owned(), seconds(Some(longest_stall_seconds * 1e6))),
        ("recovery".to_owned(), seconds(consumer.recovery_seconds.map(|seconds| seconds * 1e6))),
        ("producer_rss_growth".to_owned(), share(step.rss_growth.producer)),
        ("consumer_rss_growth".to_owned(), share(step.rss_growth.consumer)),
        // What was done on purpose: these are not figures of a store as it is.
        (
            "store_model".to_owned(),
            info.store_model.as_ref().map_or_else(String::new, |model| model.name.clone()),
        ),
        ("delays".to_owned(), info.delays.clone()),
        ("faults".to_owned(), info.faults.as_ref().map_or_else(String::new, |faults| faults.file.clone())),
        ("store_server".to_owned(), producer.store_server.clone().unwrap_or_default()),
    ]);
    columns
}
