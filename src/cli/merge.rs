//! `s3mq merge`.

use std::fs;
use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::failure::Failure;
use crate::console::say;
use crate::exit::Exit;
use crate::report::merge_hlogs;
use crate::units::grouped;

/// Add interval logs (.hlog) of several runs or hosts up into one summary
///
/// Histograms add up without loss; percentiles would not.
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
