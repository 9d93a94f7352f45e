//! `summary.csv`: one row a rate. Latencies in seconds with six decimals; an empty field where
//! nothing was measured.

use s3mq_queue::storage::Purpose;

use super::step::{RunInfo, StepReport};
use super::table::discovered;

/// The bytes of the file, of a run with this configuration; empty for no steps.
pub(crate) fn summary_csv(info: &RunInfo, steps: &[StepReport]) -> Vec<u8> {
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
    let (commit, discovered) = (producer.commit_time.as_ref(), discovered(step));
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let count = |name: &str, count: u64| (name.to_owned(), count.to_string());
    let seconds = |name: &str, seconds: Option<f64>| {
        (name.to_owned(), seconds.map_or_else(String::new, |seconds| format!("{seconds:.6}")))
    };
    let us = |name: &str, us: Option<u64>| seconds(name, us.map(|us| us as f64 / 1e6));
    let share = |name: &str, share: Option<f64>| {
        (name.to_owned(), share.map_or_else(String::new, |share| format!("{share:.4}")))
    };
    let achieved = producer.achieved_rate.map_or_else(String::new, |rate| format!("{rate:.3}"));
    let longest_stall = producer.store_stalls.longest_seconds.max(consumer.store_stalls.longest_seconds);
    let megabytes = info.megabytes_per_second(step);
    let lists = producer.requests.attempts(Purpose::List) + consumer.requests.attempts(Purpose::List);

    let mut columns = vec![
        text("rate", &step.rate.to_string()),
        text("verdict", step.verdict.outcome.into()),
        text("harness_bound", &step.verdict.harness_bound.to_string()),
        count("planned", producer.planned),
        count("committed", producer.committed),
        count("received", consumer.received),
        count("unsent", step.unsent),
        count("lost", consumer.lost()),
        count("duplicated", consumer.integrity.duplicated()),
        count("out_of_order", consumer.integrity.out_of_order()),
        count("unreadable", consumer.unreadable),
        count("negative_latencies", consumer.negative_latencies),
        text("achieved_rate", &achieved),
        count("measured", latency.map_or(0, |latency| latency.count)),
    ];
    columns.extend(info.run.percentiles.percentiles.iter().map(|percentile| {
        let found = consumer.percentiles.iter().find(|chosen| chosen.percentile == percentile);
        us(&format!("p{percentile}"), found.map(|chosen| chosen.us))
    }));
    columns.extend([
        us("max", latency.map(|latency| latency.max_us)),
        seconds("mean", latency.map(|latency| latency.mean_us / 1e6)),
        us("handed_over_p50", since_handed_over.map(|latency| latency.p50_us)),
        us("handed_over_p99", since_handed_over.map(|latency| latency.p99_us)),
        us("send_delay_p99", producer.send_delay.as_ref().map(|delay| delay.p99_us)),
        us("commit_p50", commit.map(|time| time.p50_us)),
        us("commit_p99", commit.map(|time| time.p99_us)),
        us("discovered_p50", discovered.map(|stage| stage.p50_us)),
        us("discovered_p99", discovered.map(|stage| stage.p99_us)),
        seconds("producer_cold_open", Some(producer.cold_open_seconds)),
        seconds("consumer_cold_open", consumer.cold_open_seconds),
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
        count("lists", lists),
        count("checkpoints", producer.checkpoints.made),
        count("checkpoints_failed", producer.checkpoints.failed),
        count("checkpoint_requests", producer.checkpoint_requests.total()),
        count("producer_peak_rss_bytes", producer.resources.peak_rss_bytes),
        count("consumer_peak_rss_bytes", consumer.resources.peak_rss_bytes),
        count("producer_store_stalls", producer.store_stalls.count),
        count("consumer_store_stalls", consumer.store_stalls.count),
        seconds("longest_store_stall", Some(longest_stall)),
        seconds("recovery", consumer.recovery_seconds),
        share("producer_rss_growth", step.rss_growth.producer),
        share("consumer_rss_growth", step.rss_growth.consumer),
        text("store", &info.store),
        text("begun", &info.begun),
        count("autocommit_duration_ms", info.run.commit.autocommit_duration_ms),
        count("message_bytes", info.message.bytes() as u64),
        text("megabytes_per_second", &megabytes.map_or_else(String::new, |rate| format!("{rate:.3}"))),
        // Under these, the figures are not those of a store as it is.
        text("store_model", info.store_model.as_ref().map_or("", |model| &model.name)),
        text("faults", info.faults.as_ref().map_or("", |faults| &faults.file)),
        text("store_server", producer.store_server.as_deref().unwrap_or_default()),
    ]);
    columns
}
