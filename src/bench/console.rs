//! What a bench shows of its rates on the terminal.

use crate::console::{Progress, say, say_faults};
use crate::report::{FaultCount, StepReport, percentile_ms};
use crate::units::{Rate, grouped};

/// Shows how far a bench is, and what came of each rate.
pub(crate) struct Console {
    progress: Option<Progress>,
    quiet: bool,
    verbose: bool,
    planned: u64,
}

impl Console {
    /// `quiet` is without progress, `verbose` with the children's commands.
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        Self { progress: None, quiet, verbose, planned: 0 }
    }

    /// These commands are started for `label`, to handle so many messages or versions.
    pub(super) fn started(&mut self, label: &str, planned: u64, unit: &'static str, commands: &[&[String]]) {
        if self.verbose {
            commands.iter().for_each(|command| say(&format!("s3mq {}", command.join(" "))));
        }
        self.planned = planned;
        self.progress = Some(Progress::new(label, Some(planned), unit, self.quiet));
    }

    pub(super) fn preload_progress(&mut self, versions: u64) {
        if let Some(progress) = &mut self.progress {
            progress.count(versions);
        }
    }

    pub(super) fn preload_ended(&mut self, last_version: u64, checkpoints: u64, seconds: f64) {
        self.progress = None;
        say(&format!(
            "preloaded to version {} with {} checkpoint{} in {seconds:.1} s",
            grouped(last_version),
            grouped(checkpoints),
            if checkpoints == 1 { "" } else { "s" }
        ));
    }

    pub(super) fn step_progress(&mut self, sent: u64, received: u64) {
        // The roles report at different moments; what was received had been sent.
        let [sent, received_text, planned] = [sent.max(received), received, self.planned].map(grouped);
        if let Some(progress) = &mut self.progress {
            progress.update(received, &format!("{sent} sent, {received_text} received of {planned}"));
        }
    }

    pub(super) fn step_ended(&mut self, step: &StepReport) {
        self.progress = None;
        let latency = step.consumer.latency.as_ref().map_or_else(
            || "nothing measured".to_owned(),
            |latency| {
                let ms = |percentile, us| percentile_ms(&latency.unsupported_percentiles, percentile, us);
                format!("p50 {} ms, p99 {} ms", ms(50, latency.p50_us), ms(99, latency.p99_us))
            },
        );
        say(&format!(
            "rate {}: {}, {} of {} received, {latency}",
            step.rate,
            step.verdict,
            grouped(step.consumer.received),
            grouped(step.producer.planned)
        ));
        say_faults(&format!("rate {}: ", step.rate), &step.faults);
    }

    pub(super) fn step_failed(&mut self, rate: Rate, faults: &[FaultCount]) {
        self.progress = None;
        say_faults(&format!("rate {rate}: "), faults);
    }
}
