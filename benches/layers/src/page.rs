//! The tables of the documentation's page, from the results alone.

use super::figures::{Comparison, Metric, Row};
use super::report::{Build, Report};
use s3mq::machine::Machine;
use s3mq::units::grouped;

const BEGIN: &str = "<!-- begin: written by `just layers` from benches/results/layers.json -->\n";
const END: &str = "<!-- end -->\n";
const COLUMNS: &str = "flood messages/s | flood CPU us/message | paced p50 - i/2, ms | paced p50, ms | \
                       paced p99, ms | paced CPU us/message |";

/// What a page has before its tables and after them, both with their marks.
pub(super) fn around_the_tables(page: &str) -> Result<(String, String), String> {
    let tables = page.find(BEGIN).map(|begin| begin + BEGIN.len());
    let tables = tables.and_then(|start| Some((start, start + page[start..].find(END)?)));
    match tables {
        Some((start, end)) => Ok((page[..start].to_owned(), page[end..].to_owned())),
        None => Err(format!("it has no lines `{}` and `{}`", BEGIN.trim(), END.trim())),
    }
}

/// The tables, in Markdown.
pub(super) fn tables(report: &Report) -> String {
    let layers = report.layers.chunk_by(|a, b| a.layer == b.layer).map(|rows| {
        let cells: Vec<_> = rows.iter().map(figures).collect();
        format!("| `{}` | {} |", rows[0].layer.name(), cells.join(" | "))
    });
    let pairs = report.comparisons.chunk_by(|a, b| (a.upper, a.lower) == (b.upper, b.lower)).map(|rows| {
        let cells: Vec<_> = rows.iter().map(multiple).collect();
        format!("| `{}` to `{}` | {} |", rows[0].upper.name(), rows[0].lower.name(), cells.join(" | "))
    });
    let (before, after): (Vec<_>, Vec<_>) = report.round_trip.iter().partition(|row| row.when == "before");
    let round_trips = before.iter().zip(after).map(|(before, after)| {
        let (body_bytes, request) = (grouped(before.body_bytes as u64), &before.request);
        let p50s = format!("{} | {}", ms(before.p50_us), ms(after.p50_us));
        let p99s = format!("{} | {}", ms(before.p99_us), ms(after.p99_us));
        format!("| {request} | {body_bytes} | {p50s} | {p99s} |")
    });
    let mut text = format!("\n{}\n\n", describe(report));
    text +=
        &table("Median (best to worst round); `*` is store-bound:", &format!("| layer | {COLUMNS}"), layers);
    text += &table(
        "One layer's median as a multiple of another's; `*` where both are store-bound:",
        &format!("| | {COLUMNS}"),
        pairs,
    );
    text += &table(
        "The store's own round trips, one after the other:",
        "| request | body, bytes | p50 before, ms | p50 after, ms | p99 before, ms | p99 after, ms |",
        round_trips,
    );
    text
}

pub(super) fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1e3)
}

fn table(title: &str, header: &str, rows: impl Iterator<Item = String>) -> String {
    let rule = "|---".repeat(header.matches('|').count() - 1);
    let rows: Vec<_> = rows.collect();
    format!("{title}\n\n{header}\n{rule}|\n{}\n\n", rows.join("\n"))
}

fn describe(report: &Report) -> String {
    let Report { machine, store, store_server, job, .. } = report;
    let Machine { processors, cpu, os, .. } = machine;
    let Build { version, rustc, rustflags, deltalake, object_store, aws_sdk_s3 } = &report.build;
    let server = store_server.as_ref().map(|server| format!("{server}, ")).unwrap_or_default();
    let flags = if rustflags.is_empty() { "none" } else { rustflags };
    let (flood_messages, batch_messages) = (grouped(job.flood_messages), grouped(job.batch_messages));
    format!(
        "{processors} processors ({cpu}), {} GiB, {os}; store: {server}{store}; s3mq {version}, {rustc}, flags: {flags}; \
         delta-rs {deltalake}, object_store {object_store}, aws-sdk-s3 {aws_sdk_s3}.\n\n\
         Messages of {} bytes. Flood: {flood_messages} messages in batches of {batch_messages}. Paced: {} messages a \
         second, commits every {} ms, half of which is left out of `p50 - i/2`. {} rounds; polling every {} ms.",
        machine.memory_bytes >> 30,
        job.message_bytes,
        job.rate,
        job.autocommit_duration_ms,
        job.rounds,
        job.poll_interval_ms,
    )
}

fn figures(row: &Row) -> String {
    let show = |value: f64| match row.metric {
        Metric::MessagesPerSecond => grouped(value.round() as u64),
        Metric::CpuUsPerMessage => format!("{value:.3}"),
        Metric::PacedCpuUsPerMessage => format!("{value:.1}"),
        _ => format!("{:.2}", value / 1e3),
    };
    let mark = if row.store_bound { "*" } else { "" };
    format!("{}{mark} ({} to {})", show(row.median), show(row.best), show(row.worst))
}

fn multiple(row: &Comparison) -> String {
    let mark = if row.store_bound { "*" } else { "" };
    match row.ratio {
        Some(ratio) => format!("{ratio:.2}{mark}"),
        None if row.indistinguishable => format!("indistinguishable{mark}"),
        None => format!("no multiple{mark}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::job::Layer;
    use super::*;

    fn committed(name: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
    }

    fn report() -> Report {
        serde_json::from_str(&committed("benches/results/layers.json")).unwrap()
    }

    fn anew(page: &str, report: &Report) -> String {
        let (head, tail) = around_the_tables(page).unwrap();
        format!("{head}{}{tail}", tables(report))
    }

    #[test]
    fn the_committed_page_shows_the_committed_results() {
        let page = committed("docs/layers.md");
        assert!(anew(&page, &report()) == page, "run `just layers`, or write the page anew");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let report = report();
        let page = anew(&format!("head\n{BEGIN}old\n{END}tail\n"), &report);
        assert!(page.starts_with("head\n") && page.ends_with("tail\n") && !page.contains("old"), "{page}");
        assert_eq!(anew(&page, &report), page);
        for broken in ["", BEGIN, END, &format!("{END}{BEGIN}")] {
            assert!(around_the_tables(broken).is_err());
        }
    }

    #[test]
    fn what_is_indistinguishable_has_no_number() {
        let comparison = Comparison {
            upper: Layer::Queue,
            lower: Layer::Raw,
            metric: Metric::LatencyP50Us,
            ratio: None,
            indistinguishable: true,
            store_bound: true,
        };
        assert_eq!(multiple(&comparison), "indistinguishable*");
        assert_eq!(multiple(&Comparison { ratio: Some(1.234), store_bound: false, ..comparison }), "1.23");
    }
}
