//! The tables of the documentation's page, read from the results alone.

use std::fmt::Write;
use std::str::FromStr;

use super::figures::Metric;
use super::report::{Report, When};
use super::{Comparison, Layer, Row};
use s3mq::units::grouped;

const BEGIN: &str = "<!-- begin: written by `just layers` from benches/results/layers.json -->\n";
const END: &str = "<!-- end -->\n";

/// A page that has tables between two marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    head: String,
    tail: String,
}

impl Page {
    /// The page with the tables of these results.
    pub fn with(&self, report: &Report) -> String {
        format!("{}{BEGIN}{}{END}{}", self.head, tables(report), self.tail)
    }
}

impl FromStr for Page {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
        let (head, tail) =
            parts.ok_or_else(|| format!("it has no lines `{}` and `{}`", BEGIN.trim(), END.trim()))?;
        Ok(Self { head: head.to_owned(), tail: tail.to_owned() })
    }
}

/// The tables, in Markdown.
pub fn tables(report: &Report) -> String {
    let mut text = String::from("\n");
    // Writing to a string can't fail.
    let _ = describe(&mut text, report)
        .and_then(|()| layers(&mut text, report))
        .and_then(|()| comparisons(&mut text, report))
        .and_then(|()| round_trips(&mut text, report));
    text.push('\n');
    text
}

fn describe(text: &mut String, report: &Report) -> std::fmt::Result {
    let Report { build, machine, job, .. } = report;
    writeln!(
        text,
        "{} processors ({}), {} GiB, {}; store: {}{}; s3mq {}, {}, flags: {}; delta-rs {}, object_store {}, \
         aws-sdk-s3 {}.\n",
        machine.processors,
        machine.cpu,
        machine.memory_bytes >> 30,
        machine.os,
        report.store_server.as_ref().map(|server| format!("{server}, ")).unwrap_or_default(),
        report.store,
        build.version,
        build.rustc,
        if build.rustflags.is_empty() { "none" } else { &build.rustflags },
        build.deltalake,
        build.object_store,
        build.aws_sdk_s3,
    )?;
    writeln!(
        text,
        "Messages of {} bytes. Flood: {} messages in batches of {}. Paced: {} messages a second, commits every \
         {} ms, half of which is left out of `p50 - i/2`. {} rounds; polling every {} ms.\n",
        job.message_bytes,
        grouped(job.flood_messages),
        grouped(job.batch_messages),
        job.rate,
        job.autocommit_duration_ms,
        job.rounds,
        job.poll_interval_ms,
    )
}

const COLUMNS: &str = "flood messages/s | flood CPU us/message | paced p50 - i/2, ms | paced p50, ms | \
                       paced p99, ms | paced CPU us/message |";

fn layers(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "Median (best to worst round); `*` is store-bound:\n")?;
    writeln!(text, "| layer | {COLUMNS}\n|---|---|---|---|---|---|---|")?;
    for layer in Layer::ALL {
        write!(text, "| `{}` |", layer.name())?;
        for metric in Metric::ALL {
            let cell = report.row(layer, metric).map(figures).unwrap_or_default();
            write!(text, " {cell} |")?;
        }
        writeln!(text)?;
    }
    writeln!(text)
}

fn figures(row: &Row) -> String {
    let show = |value: f64| match row.metric {
        Metric::MessagesPerSecond => grouped(value.round() as u64),
        Metric::CpuUsPerMessage => format!("{value:.3}"),
        Metric::PacedCpuUsPerMessage => format!("{value:.1}"),
        Metric::LatencyP50Us | Metric::LatencyP50BeyondHalfIntervalUs | Metric::LatencyP99Us => {
            format!("{:.2}", value / 1e3)
        }
    };
    let mark = if row.store_bound { "*" } else { "" };
    let figures = &row.figures;
    format!("{}{mark} ({} to {})", show(figures.median), show(figures.best), show(figures.worst))
}

fn comparisons(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "One layer's median as a multiple of another's; `*` where both are store-bound:\n")?;
    writeln!(text, "| | {COLUMNS}\n|---|---|---|---|---|---|---|")?;
    for pair in report.comparisons.chunk_by(|a, b| (a.upper, a.lower) == (b.upper, b.lower)) {
        write!(text, "| `{}` to `{}` |", pair[0].upper.name(), pair[0].lower.name())?;
        for metric in Metric::ALL {
            let cell = pair.iter().find(|row| row.metric == metric).map(multiple).unwrap_or_default();
            write!(text, " {cell} |")?;
        }
        writeln!(text)?;
    }
    writeln!(text)
}

fn multiple(row: &Comparison) -> String {
    let mark = if row.store_bound { "*" } else { "" };
    match row.ratio {
        Some(ratio) => format!("{ratio:.2}{mark}"),
        None if row.indistinguishable => format!("indistinguishable{mark}"),
        None => format!("no multiple{mark}"),
    }
}

fn round_trips(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "The store's own round trips, one after the other:\n")?;
    writeln!(
        text,
        "| request | body, bytes | p50 before, ms | p50 after, ms | p99 before, ms | p99 after, ms |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for before in report.round_trip.iter().filter(|row| row.when == When::Before) {
        let after = report.round_trip.iter().find(|row| {
            (row.when, &row.request, row.body_bytes) == (When::After, &before.request, before.body_bytes)
        });
        let ms = |us: Option<u64>| us.map_or_else(String::new, |us| format!("{:.2}", us as f64 / 1e3));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            before.request,
            grouped(before.body_bytes as u64),
            ms(Some(before.p50_us)),
            ms(after.map(|row| row.p50_us)),
            ms(Some(before.p99_us)),
            ms(after.map(|row| row.p99_us)),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn committed(name: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
    }

    fn report() -> Report {
        serde_json::from_str(&committed("benches/results/layers.json")).unwrap()
    }

    fn anew(page: &str, report: &Report) -> String {
        page.parse::<Page>().unwrap().with(report)
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
            assert!(broken.parse::<Page>().is_err());
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
