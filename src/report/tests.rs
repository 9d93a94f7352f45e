//! A rate of which nothing was measured, in every exporter.

use std::time::Duration;

use clap::Parser;
use uuid::Uuid;

use super::*;
use crate::config::{DeadlineArgs, MessageArgs, PollArgs, RunArgs};
use crate::events::{CheckpointCounts, ConsumerSummary, Ended, ProducerSummary, Requests, StoreStalls};
use crate::machine::{Machine, ResourceUsage};
use crate::measure::{Integrity, Percentiles, Sample};
use crate::units::Seconds;
use s3mq_queue::ProducerEpoch;

pub(super) fn nothing_measured() -> StepReport {
    let resources = ResourceUsage {
        cpu_seconds: 0.0,
        peak_rss_bytes: 0,
        longest_pause_seconds: 0.0,
        cpu_quota: None,
        throttled_share: None,
    };
    let (requests, prices) = (Requests::default(), Prices::default());
    let producer = ProducerSummary {
        by: ProducerEpoch { producer: 0, epoch: Uuid::nil() },
        planned: 1,
        committed: 0,
        sending_seconds: 0.0,
        achieved_rate: None,
        send_delay: None,
        held_up_seconds: 0.0,
        files: 0,
        file_bytes: 0,
        commits: 0,
        commit_retries: 0,
        conflicts: 0,
        wasted_data_puts: 0,
        wasted_commit_puts: 0,
        commit_time: None,
        cold_open_seconds: 0.0,
        checkpoints: CheckpointCounts::default(),
        checkpoint_requests: requests.clone(),
        resources,
        interrupted: false,
        store_server: None,
        wall_clock_step_us: 0,
        store_clock: None,
        store_stalls: StoreStalls::default(),
        requests: requests.clone(),
        running_requests: requests.clone(),
    };
    let consumer = ConsumerSummary {
        ended: Ended::DrainTimeout,
        received: 0,
        warmup: 0,
        beyond_window: 0,
        latency: None,
        percentiles: Vec::new(),
        latency_since_handed_over: None,
        stages: Vec::new(),
        negative_latencies: 0,
        unreadable: 0,
        unstamped: 0,
        open_streams: Vec::new(),
        lost_untracked: 0,
        lost_files: 0,
        retractions: 0,
        integrity: Integrity { streams: Vec::new() },
        cold_open_seconds: None,
        first_version: 0,
        last_version: None,
        receiving_seconds: 0.0,
        store_clock: None,
        store_stalls: StoreStalls::default(),
        recovery_seconds: None,
        wall_clock_step_us: 0,
        resources,
        requests: requests.clone(),
        running_requests: requests.clone(),
    };
    StepReport {
        rate: "1".parse().unwrap(),
        verdict: Verdict { outcome: Outcome::Collapsed, harness_bound: false, reasons: Vec::new() },
        cost: Cost::of(&prices, &producer, &requests, Duration::ZERO),
        unsent: 1,
        timeline_start_us: None,
        marks: Vec::new(),
        faults: Vec::new(),
        bench_pause_seconds: 0.0,
        rss_growth: RssGrowth { producer: None, consumer: None },
        producer,
        consumer,
    }
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    poll: PollArgs,
    #[command(flatten)]
    requests: DeadlineArgs,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_was_not_measured_is_empty_null_or_a_dash() {
    let Flags { run, message, poll, requests } = Flags::parse_from(["s3mq", "--warmup-seconds=1"]);
    let info = RunInfo {
        deltalake_version: "",
        version: "",
        begun: String::new(),
        store: String::new(),
        store_model: None,
        faults: None,
        deadlines: Deadlines { requests, drain_timeout_seconds: Seconds::whole(60) },
        run,
        message,
        poll,
        poll_interval_ms: 100.0,
        unsigned_payload: true,
        prices: Prices::default(),
        machine: Machine::this(),
    };
    let steps = [nothing_measured()];

    let json: serde_json::Value = serde_json::from_slice(&step_json(&info, &steps[0])).unwrap();
    let result = &json["result"];
    for field in [
        "/consumer/latency",
        "/consumer/last_version",
        "/producer/achieved_rate",
        "/producer/send_delay",
        "/producer/commit_time",
        "/consumer/cold_open_seconds",
        "/rss_growth/producer",
    ] {
        assert!(result.pointer(field).unwrap().is_null(), "{field}");
    }
    // What isn't finite is written as null too, and none of these may be.
    for (name, dollars) in result["cost"].as_object().unwrap() {
        assert!(dollars.is_number() || name == "requests_usd_per_million_messages", "{name}: {dollars}");
    }

    let summary = text(summary_csv(&info, &steps));
    let mut lines = summary.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (header, row) = (lines.next().unwrap(), lines.next().unwrap());
    for (name, field) in header.into_iter().zip(row) {
        let unmeasured = [
            "achieved_rate",
            "p50",
            "p75",
            "p85",
            "p95",
            "p99",
            "max",
            "mean",
            "handed_over_p50",
            "handed_over_p99",
            "send_delay_p99",
            "commit_p50",
            "commit_p99",
            "discovered_p50",
            "discovered_p99",
            "consumer_cold_open",
            "recovery",
            "producer_rss_growth",
            "consumer_rss_growth",
            "store_model",
            "faults",
            "store_server",
            "store",
            "begun",
            "megabytes_per_second",
        ]
        .contains(&name);
        assert_eq!(field.is_empty(), unmeasured, "{name}: {field}");
    }

    let table = table(&info, &steps);
    let cells: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["1", "0", "0", "-", "-", "-", "-", "-", "-", "-", "-", "0", "0", "collapsed"]);

    let ages = log_age_table(0, &steps);
    let cells: Vec<_> = ages.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["1", "-", "-", "-", "-", "-", "0.0", "-", "0", "-", "-", "-"]);

    let mut hlog = Hlog::new(Vec::new()).unwrap();
    hlog.interval(5_000_000, 1_000_000, &Sample::default()).unwrap();
    assert_eq!(merge_hlogs(&[hlog.into_inner()]).unwrap().len(), 0);
    assert_eq!(text(intervals_csv(&Percentiles::default(), &join(1.0, &[], &[], &[]))).lines().count(), 1);
}
