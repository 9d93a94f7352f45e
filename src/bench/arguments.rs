//! The command lines of a bench's children: ordinary documented flags, which can be given by hand.

use std::fmt::Display;

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

/// A command line that is being written.
struct Line(Vec<String>);

impl Line {
    fn of(role: &str, step: &Step<'_>) -> Self {
        let mut line = Self(vec![role.to_owned()]).with("lake-path", &step.prefix);
        line.0.extend(["--no-preflight", "--quiet", "--exit-on-stdin-eof"].map(str::to_owned));
        line.0.extend(step.config.store.flags.iter().cloned());
        line
    }

    /// Of a producer or a consumer.
    fn of_role(role: &str, step: &Step<'_>, anchor: &Anchor) -> Self {
        let run = &step.config.info.run;
        Self::of(role, step)
            .with("clock-anchor", anchor)
            .with("autocommit-duration-ms", run.commit.autocommit_duration_ms)
            .with("interval-seconds", run.timeline.interval_seconds)
    }

    /// With `=`, so that a value may begin with a dash.
    fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(format!("--{name}={value}"));
        self
    }

    fn with_given(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

pub(super) fn preload(step: &Step<'_>) -> Vec<String> {
    let run = &step.config.info.run;
    Line::of("preload", step)
        .with("versions", run.preload_versions)
        .with("checkpoint-interval", run.checkpoint.checkpoint_interval)
        .0
}

pub(super) fn consumer(step: &Step<'_>, anchor: &Anchor, first_version: Option<u64>) -> Vec<String> {
    let (config, rate, files) = (step.config, step.rate, &step.files);
    let (info, run) = (&config.info, &config.info.run);
    // Between two messages of a slow schedule it is quiet for longer than a drain should take.
    let quiet_seconds = 1.0 / rate.per_second() + 2.0 * run.commit.interval().as_secs_f64();
    let drain_seconds = info.deadlines.drain_timeout_seconds.as_f64() + quiet_seconds;
    // The producer may take its time to open the table.
    let wait_seconds = ready_timeout(config).as_secs_f64() + drain_seconds;
    let raw = config.output.raw_output.then(|| files.raw.display());
    Line::of_role("consumer", step, anchor)
        .with("start", first_version.map_or_else(|| "earliest".to_owned(), |version| version.to_string()))
        .with("output-path", files.rows.display())
        .with("hlog-output-path", files.hlog.display())
        .with_given("raw-output-path", raw)
        .with("log-frequency", ((rate.per_second() / 2.0) as u64).max(1))
        .with_given("warmup-seconds", run.warmup_seconds)
        .with("drain-timeout-seconds", drain_seconds.min(Seconds::MAX.as_f64()))
        .with("wait-timeout-seconds", wait_seconds.min(Seconds::MAX.as_f64()))
        .with("percentiles", &run.percentiles.percentiles)
        .with("poll", value_name(&info.poll.poll))
        .with_given("poll-interval-ms", info.poll.poll_interval_ms)
        .0
}

pub(super) fn producer(step: &Step<'_>, anchor: &Anchor, messages: u64) -> Vec<String> {
    let (info, run) = (&step.config.info, &step.config.info.run);
    Line::of_role("producer", step, anchor)
        .with("rate", step.rate)
        .with("messages", messages)
        .with_given("message-size", info.message.message_size)
        .with("checkpoint-interval", run.checkpoint.checkpoint_interval)
        .with("arrival", value_name(&run.arrival.arrival))
        .with("seed", run.arrival.seed)
        .with("payload", value_name(&info.message.payload))
        .with("data-encoding", value_name(&info.message.data_encoding))
        .0
}
