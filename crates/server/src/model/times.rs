//! How long one operation takes: a distribution through the percentiles that are known of it. Between two of them the
//! logarithm of the time is linear over the standard normal deviate; beyond the first and the last it goes on likewise.
//! So two percentiles are a log-normal distribution, and every one that is given is met exactly.

use std::collections::BTreeMap;

use rand::Rng;
use serde::Deserialize;

/// The percentiles that a model can give, by their key, and the standard normal deviates that belong to them.
const PERCENTILES: [(&str, f64); 11] = [
    ("p1_ms", -2.326_348),
    ("p5_ms", -1.644_854),
    ("p10_ms", -1.281_552),
    ("p25_ms", -0.674_490),
    ("p50_ms", 0.0),
    ("p75_ms", 0.674_490),
    ("p90_ms", 1.281_552),
    ("p95_ms", 1.644_854),
    ("p99_ms", 2.326_348),
    ("p999_ms", 3.090_232),
    ("p9999_ms", FURTHEST),
];

/// What is drawn lies between the percentiles 0.01 and 99.99: nothing is known of what is rarer.
const FURTHEST: f64 = 3.719_016;

/// The key of how fast a body goes.
const BANDWIDTH: &str = "bytes_per_second";

/// No time that means anything is outside, given or drawn.
const MIN_MS: f64 = 0.001;
const MAX_MS: f64 = 60_000.0;

/// The time of one operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "BTreeMap<String, f64>")]
pub(super) struct Times {
    /// Deviates and the logarithms of their times in nanoseconds, both rising; at least two.
    points: Vec<(f64, f64)>,
    /// `None` where a body takes no time of its own.
    bytes_per_second: Option<f64>,
}

impl TryFrom<BTreeMap<String, f64>> for Times {
    type Error = String;

    /// Of one table of a model's file.
    fn try_from(table: BTreeMap<String, f64>) -> Result<Self, String> {
        let is_known = |key: &str| key == BANDWIDTH || PERCENTILES.iter().any(|(name, _)| *name == key);
        if let Some(unknown) = table.keys().find(|key| !is_known(key)) {
            let names: Vec<_> = PERCENTILES.iter().map(|(name, _)| *name).chain([BANDWIDTH]).collect();
            let unknown = unknown.escape_debug();
            return Err(format!("there is no key `{unknown}`; there are {}", names.join(", ")));
        }
        let mut points = Vec::new();
        let mut before = ("", MIN_MS);
        for (key, deviate) in PERCENTILES {
            let Some(&ms) = table.get(key) else { continue };
            if !(MIN_MS..=MAX_MS).contains(&ms) {
                return Err(format!("`{key}` must be a number from {MIN_MS} to {MAX_MS}"));
            }
            if ms < before.1 {
                return Err(format!("`{key}` must not be below `{}`", before.0));
            }
            before = (key, ms);
            points.push((deviate, (ms * 1e6).ln()));
        }
        if !table.contains_key("p50_ms") || points.len() < 2 {
            return Err("must have `p50_ms` and another percentile".to_owned());
        }
        let bytes_per_second = table.get(BANDWIDTH).copied();
        if bytes_per_second.is_some_and(|bytes| !(1.0..=1e12).contains(&bytes)) {
            return Err(format!("`{BANDWIDTH}` must be a number from 1 to 1e12"));
        }
        Ok(Self { points, bytes_per_second })
    }
}

impl Times {
    /// The time that belongs to a standard normal deviate, in nanoseconds.
    pub(super) fn at_ns(&self, deviate: f64) -> u64 {
        let deviate = deviate.clamp(-FURTHEST, FURTHEST);
        let above = self.points.partition_point(|(point, _)| *point < deviate);
        let upper = above.clamp(1, self.points.len() - 1);
        let ((left, from), (right, to)) = (self.points[upper - 1], self.points[upper]);
        let ln_ns = from + (to - from) * (deviate - left) / (right - left);
        ln_ns.exp().clamp(MIN_MS * 1e6, MAX_MS * 1e6).round() as u64
    }

    /// How much longer it takes for a body, in nanoseconds.
    pub(super) fn of_body_ns(&self, bytes: u64) -> u64 {
        self.bytes_per_second.map_or(0, |per_second| (bytes as f64 / per_second * 1e9) as u64)
    }
}

/// A standard normal deviate (Box and Muller).
pub(super) fn draw(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn table(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    }

    /// What share of draws lies below a percentile.
    fn share(key: &str) -> f64 {
        let digits = key.trim_start_matches('p').trim_end_matches("_ms");
        // p5 is 5 %, p999 is 99.9 %.
        let whole = digits.len().min(2);
        digits.parse::<f64>().unwrap() / 10_f64.powi((digits.len() - whole) as i32) / 100.0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_drawn_has_the_percentiles_that_were_given(
            seed: u64,
            // Eleven doublings stay below what a time may be.
            first_ms in 0.05_f64..20.0,
            chosen in proptest::collection::vec((proptest::bool::ANY, 1.01_f64..2.0), PERCENTILES.len()),
        ) {
            let mut ms = first_ms;
            let mut given = Vec::new();
            for ((key, _), (is_given, factor)) in PERCENTILES.into_iter().zip(chosen) {
                if is_given || key == "p50_ms" || key == "p99_ms" {
                    ms *= factor;
                    given.push((key, ms));
                }
            }
            let times = Times::try_from(table(&given)).unwrap();
            let mut random = SmallRng::seed_from_u64(seed);
            const DRAWS: usize = 20_000;
            let drawn: Vec<_> = (0..DRAWS).map(|_| times.at_ns(draw(&mut random))).collect();
            for (key, ms) in given {
                let below = drawn.iter().filter(|ns| **ns as f64 <= ms * 1e6).count() as f64 / DRAWS as f64;
                // Five standard deviations of a count, at least a few draws.
                let allowed = 5.0 * (share(key) * (1.0 - share(key)) / DRAWS as f64).sqrt() + 5e-4;
                prop_assert!((below - share(key)).abs() < allowed, "{key}: {below} of {times:?}");
            }
        }
    }

    #[test]
    fn a_given_percentile_is_met_exactly_and_beyond_the_last_it_goes_on_as_before() {
        let given = [("p10_ms", 8.0), ("p50_ms", 10.0), ("p90_ms", 20.0), ("p99_ms", 80.0)];
        let times = Times::try_from(table(&given)).unwrap();
        for (key, ms) in given {
            let (_, deviate) = PERCENTILES.into_iter().find(|(name, _)| *name == key).unwrap();
            assert_eq!(times.at_ns(deviate), (ms * 1e6) as u64, "{key}");
        }
        assert_eq!(times.at_ns(9.0), times.at_ns(FURTHEST));
        assert_eq!(times.at_ns(-9.0), times.at_ns(-FURTHEST));
        let factor = |from: f64, to: f64| times.at_ns(to) as f64 / times.at_ns(from) as f64;
        assert!((factor(1.5, 2.0) - factor(3.0, 3.5)).abs() < 1e-6);
        assert!((factor(-1.0, -0.5) - factor(-3.0, -2.5)).abs() < 1e-6);
    }

    #[test]
    fn a_body_takes_its_bytes_by_the_bandwidth() {
        let mut entries = vec![("p50_ms", 1.0), ("p99_ms", 2.0)];
        assert_eq!(Times::try_from(table(&entries)).unwrap().of_body_ns(1 << 30), 0);
        entries.push((BANDWIDTH, 1e6));
        assert_eq!(Times::try_from(table(&entries)).unwrap().of_body_ns(2_500), 2_500_000);
    }
}
