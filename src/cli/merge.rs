//! `s3mq merge`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::Value;

use super::failure::Failure;
use crate::console::say;
use crate::exit::Exit;
use crate::report::merge_hlogs;
use crate::units::grouped;

/// Add interval logs (.hlog) of several runs or hosts up into one summary
///
/// Histograms add up without loss; percentiles would not. Logs of unlike runs are refused: where {rate}.json lies beside
/// {rate}.hlog, message size and commit interval must be the same.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// HdrHistogram interval logs, in microseconds
    #[arg(required = true, value_name = "FILE")]
    logs: Vec<PathBuf>,
}

pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    };
    let logs = args.logs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    for (index, path) in args.logs.iter().enumerate() {
        for (other, other_path) in args.logs[..index].iter().enumerate() {
            let refused = |why: String| {
                let (one, two) = (other_path.display(), path.display());
                Err(Failure::usage(format!("{one} and {two} {why}; they can't be added up")))
            };
            if logs[index] == logs[other] {
                return refused("are the same log, which would count twice".to_owned());
            }
            if let Some((field, one, two)) = unlike(other_path, path) {
                return refused(format!("are of runs with a {field} of {one} and {two}"));
            }
        }
    }
    let merged = merge_hlogs(&logs).map_err(|(index, error)| {
        Failure::usage(format!("{} can't be read: {error}", args.logs[index].display()))
    })?;
    say(&format!(
        "{:<12} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   (ms)",
        "tag", "count", "mean", "p50", "p95", "p99", "p99.9", "max"
    ));
    for (tag, latencies) in merged {
        let Some(summary) = latencies.summary() else {
            continue;
        };
        let ms = |us: f64| format!("{:.3}", us / 1e3);
        let at = |percentile| ms(latencies.percentile_us(percentile).unwrap_or(0) as f64);
        say(&format!(
            "{tag:<12} {:>14} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            grouped(summary.count),
            ms(summary.mean_us),
            at(50.0),
            at(95.0),
            at(99.0),
            at(99.9),
            ms(summary.max_us as f64)
        ));
    }
    Ok(Exit::Ok)
}

/// What of two runs is not the same, as far as the results beside their logs say.
fn unlike(one: &Path, two: &Path) -> Option<(&'static str, Value, Value)> {
    let run = |log: &Path| {
        let result = fs::read(log.with_extension("json")).ok()?;
        Some(serde_json::from_slice::<Value>(&result).ok()?["run"].take())
    };
    let (one, two) = (run(one)?, run(two)?);
    let fields = ["message_bytes", "autocommit_duration_ms"];
    let unlike = fields.into_iter().find(|field| one[field] != two[field])?;
    Some((unlike, one[unlike].clone(), two[unlike].clone()))
}
