//! Delays of the embedded server, for the commands that have one.

use std::time::Duration;

use clap::Args;

use super::failure::Failure;
use s3mq_server::{Delays, RequestKind};

/// Delays of the embedded server.
#[derive(Clone, Debug, Args)]
pub(super) struct DelayArgs {
    /// Make the embedded store's requests of a kind take this much longer, in ms, s or us: data-put,
    /// commit-put, commit-get, data-get or list, as in commit-put=200ms. Several, or separated by
    /// commas. It tries out the measuring, not a store
    #[arg(long, value_name = "KIND=DURATION", value_delimiter = ',', value_parser = parse)]
    delay: Vec<Delay>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Delay {
    kind: RequestKind,
    duration: Duration,
}

impl DelayArgs {
    /// All of them together.
    pub(super) fn delays(&self) -> Result<Delays, Failure> {
        let mut delays = Delays::default();
        for (index, Delay { kind, duration }) in self.delay.iter().enumerate() {
            if self.delay[..index].iter().any(|other| other.kind == *kind) {
                return Err(Failure::usage(format!("--delay {} is given twice", kind.name())));
            }
            delays.set(*kind, *duration);
        }
        Ok(delays)
    }
}

/// Longer than that, and every request would time out.
const MAX_MS: f64 = 60_000.0;

fn parse(text: &str) -> Result<Delay, String> {
    let Some((name, amount)) = text.split_once('=') else {
        return Err("must be KIND=DURATION, as in commit-put=200ms".to_owned());
    };
    let kind = RequestKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let names = RequestKind::ALL.map(RequestKind::name).join(", ");
        format!("there is no kind `{name}`; there are {names}")
    })?;
    // `ms` and `us` before the `s` that they end with.
    let (number, unit_ms) = [("ms", 1.0), ("us", 1e-3), ("s", 1e3)]
        .into_iter()
        .find_map(|(unit, unit_ms)| Some((amount.strip_suffix(unit)?, unit_ms)))
        .ok_or_else(|| format!("`{amount}` has no unit: ms, s or us"))?;
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    let ms = number * unit_ms;
    if !(0.0..=MAX_MS).contains(&ms) {
        return Err("must be between 0 and 60s".to_owned());
    }
    Ok(Delay { kind, duration: Duration::from_micros((ms * 1e3).round() as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_taken_in_each_unit() {
        for (text, kind, us) in [
            ("commit-put=200ms", RequestKind::CommitPut, 200_000),
            ("data-put=1.5s", RequestKind::DataPut, 1_500_000),
            ("commit-get=250us", RequestKind::CommitGet, 250),
            ("data-get=0ms", RequestKind::DataGet, 0),
            ("list=60s", RequestKind::List, 60_000_000),
        ] {
            assert_eq!(parse(text), Ok(Delay { kind, duration: Duration::from_micros(us) }), "{text}");
        }
    }

    #[test]
    fn delays_that_mean_nothing_are_refused() {
        for text in [
            "",
            "commit-put",
            "commit-put=",
            "commit-put=200",
            "commit-put=ms",
            "commit-put=-1ms",
            "commit-put=nanms",
            "commit-put=infs",
            "commit-put=61s",
            "commit=1ms",
            "=1ms",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
