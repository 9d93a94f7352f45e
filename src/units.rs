//! Quantities that cross the command line: rates, durations, sizes and the counts made of them. Each is a plain number or
//! has a unit (`20k`, `30s`, `1KiB`). A [`Rate`] is a whole number of millionths: with floats, a sweep by `0.1` would name
//! a prefix `0.30000000000000004`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

const MICROS: u64 = 1_000_000;

/// Units, and how many of the plain number's each is. Of two that a text may end with, the longer comes first.
type Units = &'static [(&'static str, f64)];

const RATES: Units = &[("k", 1e3), ("K", 1e3), ("M", 1e6)];
const DURATIONS: Units = &[("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0)];
const SIZES: Units = &[
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
];

/// The number that a text says, in the plain number's unit; exact to a millionth.
fn parse(text: &str, units: Units) -> Option<f64> {
    let with_unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let Some((number, factor)) = with_unit else { return text.parse().ok() };
    let value = number.trim_end().parse::<f64>().ok()? * factor;
    // A decimal fraction times its factor may be a hair off: 2.01 kB are 2010 bytes.
    Some((value * 1e6).round() / 1e6)
}

/// A size in bytes, such as `300`, `300B` or `1KiB`.
///
/// # Errors
/// When it isn't one, or no whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse(text, SIZES) {
        Some(bytes) if bytes >= 0.0 && bytes < 2f64.powi(53) && bytes.fract() == 0.0 => Ok(bytes as u64),
        _ => Err(format!("`{text}` is not a number of bytes, such as 300, 300B or 1KiB")),
    }
}

/// Milliseconds, such as `100`, `100ms` or `2s`: a whole number from 1 to a day.
///
/// # Errors
/// When it isn't one.
pub fn parse_ms(text: &str) -> Result<u64, String> {
    const DAY_MS: f64 = 86_400_000.0;
    let ms = text.parse::<f64>().ok().or_else(|| Some(parse(text, DURATIONS)? * 1e3));
    match ms {
        Some(ms) if (1.0..=DAY_MS).contains(&ms) && ms.fract() == 0.0 => Ok(ms as u64),
        _ => Err("must be a whole number of milliseconds from 1 to a day, such as 100 or 2s".to_owned()),
    }
}

/// Messages a second: positive, at most [`Rate::MAX`], exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    per_second_micros: u64,
}

impl Rate {
    /// The highest rate that is taken: 100 million messages a second.
    pub const MAX: Self = Self { per_second_micros: 100_000_000 * MICROS };

    /// Messages a second.
    pub fn per_second(self) -> f64 {
        self.per_second_micros as f64 / MICROS as f64
    }

    /// How many messages are due in `seconds`: `rate * seconds`, rounded once.
    pub fn messages_in(self, seconds: Seconds) -> u64 {
        (self.per_second() * seconds.as_f64()).round() as u64
    }

    /// When message `index` is due, in microseconds after the first: `index / rate`.
    pub fn due_us(self, index: u64) -> i64 {
        // A product of less than 2^53 is exact in a double, and one beyond it (hours at a hundred
        // million a second) is off by less than a microsecond.
        (index as f64 * 1e12 / self.per_second_micros as f64) as i64
    }

    /// This rate, and each `step` more, up to and including `end`.
    pub fn sweep(self, end: Self, step: Self) -> impl Iterator<Item = Self> {
        (self.per_second_micros..=end.per_second_micros)
            .step_by(step.per_second_micros as usize)
            .map(|per_second_micros| Self { per_second_micros })
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = parse(text, RATES)
            .ok_or_else(|| format!("`{text}` is not a number of messages, such as 20000 or 20k"))?;
        if !value.is_finite() || value <= 0.0 {
            return Err("must be a number above 0".to_owned());
        }
        let micros = (value * MICROS as f64).round();
        if micros < 1.0 || micros > Self::MAX.per_second_micros as f64 {
            return Err(format!("must be between 0.000001 and {}", Self::MAX));
        }
        Ok(Self { per_second_micros: micros as u64 })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.per_second_micros / MICROS, self.per_second_micros % MICROS);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:06}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A length of time given on the command line, in seconds; positive and at most a year.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Seconds(f64);

/// The seconds of a length of time, which may be none.
///
/// # Errors
/// When it isn't one.
pub fn parse_seconds_or_none(text: &str) -> Result<f64, String> {
    match parse(text, DURATIONS) {
        Some(seconds) if (0.0..=Seconds::MAX.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds, 0 or more".to_owned()),
    }
}

impl Seconds {
    /// The longest that is taken: a leap year.
    pub const MAX: Self = Self::whole(366 * 86_400);

    /// A length of whole seconds.
    pub const fn whole(seconds: u32) -> Self {
        Self(seconds as f64)
    }

    /// The length in seconds.
    pub fn as_f64(self) -> f64 {
        self.0
    }

    /// The length as a standard duration.
    pub fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_secs_f64(self.0)
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse(text, DURATIONS) {
            Some(value) if value > 0.0 && value <= Self::MAX.0 => Ok(Self(value)),
            Some(_) => Err("must be above 0 and at most a year".to_owned()),
            None => Err(format!("`{text}` is not a number of seconds, such as 30, 30s or 5m")),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A count for people: `1234567` is `1,234,567`.
pub fn grouped(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_whole_or_fractional_and_print_as_given() {
        for text in ["1", "0.5", "1000", "0.000001", "2.25", "100000000"] {
            assert_eq!(rate(text).to_string(), text);
        }
    }

    #[test]
    fn rates_that_mean_nothing_are_refused() {
        for text in ["0", "-1", "nan", "inf", "1e12", "", "x", "0.0000001", "-0.0"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_that_mean_nothing_are_refused() {
        for text in ["0", "-1", "nan", "inf", "1e12", "", "x"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn units_are_taken_as_people_type_them() {
        for (text, plain) in [("20k", "20000"), ("1.5k", "1500"), ("2M", "2000000"), ("20 k", "20000")] {
            assert_eq!(rate(text), rate(plain), "{text}");
        }
        for (text, seconds) in [("30s", 30.0), ("500ms", 0.5), ("5m", 300.0), ("5min", 300.0), ("1h", 3600.0)]
        {
            assert_eq!(text.parse(), Ok(Seconds(seconds)), "{text}");
        }
        for (text, bytes) in [
            ("300", 300),
            ("300B", 300),
            ("1KiB", 1024),
            ("1kB", 1000),
            ("1.5KiB", 1536),
            ("2.01kB", 2010),
            ("4.1MB", 4_100_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, ms) in
            [("100", 100), ("100ms", 100), ("2s", 2_000), ("1.5s", 1_500), ("1h", 3_600_000), ("0.29s", 290)]
        {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
        assert!(
            ["300b", "B", "1.5", "-1", "nan", "1e99", "1KiBs"].iter().all(|text| parse_bytes(text).is_err())
        );
        assert!(["0", "1.5", "0.5ms", "-1s", "2d", "25h"].iter().all(|text| parse_ms(text).is_err()));
        assert!(["20kk", "k", "20 s", "30B"].iter().all(|text| text.parse::<Rate>().is_err()));
    }

    #[test]
    fn message_counts_are_rounded_once() {
        assert_eq!(rate("7").messages_in(Seconds(3.0)), 21);
        assert_eq!(rate("0.5").messages_in(Seconds(10.0)), 5);
        assert_eq!(rate("0.3").messages_in(Seconds(10.0)), 3);
        assert_eq!(rate("3").messages_in(Seconds(0.5)), 2);
    }

    #[test]
    fn a_sweep_includes_its_end() {
        let names = |s: &str, e: &str, d: &str| {
            rate(s).sweep(rate(e), rate(d)).map(|rate| rate.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("1000", "3000", "1000"), ["1000", "2000", "3000"]);
        assert_eq!(names("0.1", "0.3", "0.1"), ["0.1", "0.2", "0.3"]);
        assert_eq!(names("5", "9", "3"), ["5", "8"]);
    }

    proptest! {
        #[test]
        fn due_times_never_go_back(micros in 1u64..100_000_000_000_000, index in 0u64..10_000_000_000) {
            let rate = Rate { per_second_micros: micros };
            prop_assert!(rate.due_us(index) <= rate.due_us(index + 1));
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
