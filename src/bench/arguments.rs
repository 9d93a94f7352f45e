//! The command lines of a bench's children: ordinary documented flags, which can be given by hand.

use super::step::{Step, ready_timeout};
use crate::config::value_name;
use crate::units::Seconds;
use s3mq_clock::Anchor;

/// Flags and secrets that say which store to the children. There is no `Debug`, so that no panic shows the secrets.
pub(crate) struct StoreFlags {
    /// Flags.
    pub(crate) flags: Vec<String>,
    /// Secrets, which must not be in an argument list.
    pub(crate) environment: Vec<(String, String)>,
}

/// What the lines of all roles begin with. A value stands behind `=`, so that it may begin with a dash.
fn line(role: &str, step: &Step<'_>) -> Vec<String> {
    let mut line = vec![role.to_owned(), format!("--lake-path={}", step.prefix)];
    line.extend(["--no-preflight", "--quiet", "--exit-on-stdin-eof"].map(str::to_owned));
    line.extend(step.config.store.flags.iter().cloned());
    line
}

/// The same of a producer or a consumer.
fn role_line(role: &str, step: &Step<'_>, anchor: &Anchor) -> Vec<String> {
    let run = &step.config.info.run;
    let mut line = line(role, step);
    line.extend([
        format!("--clock-anchor={anchor}"),
        format!("--autocommit-duration-ms={}", run.commit.autocommit_duration_ms),
        format!("--interval-seconds={}", run.timeline.interval_seconds),
    ]);
    line
}

pub(super) fn preload(step: &Step<'_>) -> Vec<String> {
    let run = &step.config.info.run;
    let mut line = line("preload", step);
    line.push(format!("--versions={}", run.preload_versions));
    line.push(format!("--checkpoint-interval={}", run.checkpoint.checkpoint_interval));
    line
}

pub(super) fn consumer(step: &Step<'_>, anchor: &Anchor, first_version: Option<u64>) -> Vec<String> {
    let (config, rate, files) = (step.config, step.rate, &step.files);
    let (info, run) = (&config.info, &config.info.run);
    // Between two messages of a slow schedule it is quiet for longer than a drain should take.
    let quiet_seconds = 1.0 / rate.per_second() + 2.0 * run.commit.interval().as_secs_f64();
    let drain_seconds = info.deadlines.drain_timeout_seconds.as_f64() + quiet_seconds;
    // The producer may take its time to open the table.
    let wait_seconds = ready_timeout(config).as_secs_f64() + drain_seconds;
    let max_seconds = Seconds::MAX.as_f64();
    let start = first_version.map_or_else(|| "earliest".to_owned(), |version| version.to_string());
    let mut line = role_line("consumer", step, anchor);
    line.extend([
        format!("--start={start}"),
        format!("--output-path={}", files.rows.display()),
        format!("--hlog-output-path={}", files.hlog.display()),
        format!("--log-frequency={}", ((rate.per_second() / 2.0) as u64).max(1)),
        format!("--measured-seconds={}", run.measured_seconds),
        format!("--drain-timeout-seconds={}", drain_seconds.min(max_seconds)),
        format!("--wait-timeout-seconds={}", wait_seconds.min(max_seconds)),
        format!("--percentiles={}", run.percentiles.percentiles),
        format!("--poll={}", value_name(&info.poll.poll)),
    ]);
    line.extend(config.output.raw_output.then(|| format!("--raw-output-path={}", files.raw.display())));
    line.extend(run.warmup_seconds.map(|seconds| format!("--warmup-seconds={seconds}")));
    line.extend(info.poll.poll_interval_ms.map(|ms| format!("--poll-interval-ms={ms}")));
    line
}

pub(super) fn producer(step: &Step<'_>, anchor: &Anchor, messages: u64) -> Vec<String> {
    let (info, run) = (&step.config.info, &step.config.info.run);
    let mut line = role_line("producer", step, anchor);
    line.extend([
        format!("--rate={}", step.rate),
        format!("--messages={messages}"),
        format!("--checkpoint-interval={}", run.checkpoint.checkpoint_interval),
        format!("--arrival={}", value_name(&run.arrival.arrival)),
        format!("--seed={}", run.arrival.seed),
        format!("--payload={}", value_name(&info.message.payload)),
        format!("--data-encoding={}", value_name(&info.message.data_encoding)),
    ]);
    line.extend(info.message.message_size.map(|size| format!("--message-size={size}")));
    line
}
