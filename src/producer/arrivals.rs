//! When messages are due.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use crate::units::Rate;

/// How the messages of a schedule are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Evenly
    #[default]
    Uniform,
    /// As independent senders would: exponential times between messages, drawn from --seed
    Poisson,
    /// All of a second's messages at its start
    Burst,
}

/// The due times of a schedule, one after the other.
#[derive(Debug)]
pub(super) struct Arrivals {
    rate: Rate,
    arrival: Arrival,
    /// How many are past.
    pub(super) index: u64,
    /// When the next message is due, in microseconds after the schedule's start.
    pub(super) next_us: i64,
    /// The time of the next Poisson arrival; the sum of many small times is kept as a float.
    poisson_us: f64,
    random: SmallRng,
}

impl Arrivals {
    /// The same seed gives the same Poisson arrivals.
    pub(super) fn new(rate: Rate, arrival: Arrival, seed: u64) -> Self {
        let mut arrivals = Self {
            rate,
            arrival,
            index: 0,
            next_us: 0,
            poisson_us: 0.0,
            random: SmallRng::seed_from_u64(seed),
        };
        arrivals.next_us = arrivals.due_us();
        arrivals
    }

    /// Goes on to the message after that.
    pub(super) fn advance(&mut self) {
        self.index += 1;
        self.next_us = self.due_us();
    }

    fn due_us(&mut self) -> i64 {
        match self.arrival {
            Arrival::Uniform => self.rate.due_us(self.index),
            Arrival::Burst => self.rate.due_us(self.index) / 1_000_000 * 1_000_000,
            Arrival::Poisson => {
                // Of 1 - u, which is never 0, where u may be.
                let gap = -(1.0 - self.random.random::<f64>()).ln();
                self.poisson_us += gap * 1e6 / self.rate.per_second();
                self.poisson_us as i64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: &str, arrival: Arrival, count: usize) -> Vec<i64> {
        seeded_times(rate, arrival, 7, count)
    }

    fn seeded_times(rate: &str, arrival: Arrival, seed: u64, count: usize) -> Vec<i64> {
        let mut arrivals = Arrivals::new(rate.parse().unwrap(), arrival, seed);
        (0..count)
            .map(|index| {
                assert_eq!(arrivals.index, index as u64);
                let next_us = arrivals.next_us;
                arrivals.advance();
                next_us
            })
            .collect()
    }

    #[test]
    fn uniform_arrivals_are_evenly_spread() {
        assert_eq!(times("4", Arrival::Uniform, 5), [0, 250_000, 500_000, 750_000, 1_000_000]);
        assert_eq!(times("0.5", Arrival::Uniform, 2), [0, 2_000_000]);
    }

    #[test]
    fn bursts_are_due_at_the_start_of_their_second() {
        assert_eq!(times("3", Arrival::Burst, 7), [0, 0, 0, 1_000_000, 1_000_000, 1_000_000, 2_000_000]);
        assert_eq!(times("0.4", Arrival::Burst, 3), [0, 2_000_000, 5_000_000]);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_scatter_of_independent_senders() {
        let times = times("1000", Arrival::Poisson, 100_000);
        assert!(times.is_sorted());
        let seconds = times[times.len() - 1] as f64 / 1e6;
        assert!((99.0..101.0).contains(&seconds), "{seconds}");
        // The count in a window has its mean as its variance.
        let mut counts = [0f64; 90];
        times.iter().filter_map(|us| counts.get_mut((us / 1_000_000) as usize).map(|c| *c += 1.0)).count();
        let mean = counts.iter().sum::<f64>() / 90.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 89.0;
        assert!((0.6..1.6).contains(&(variance / mean)), "{mean} {variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let of = |seed| seeded_times("1000", Arrival::Poisson, seed, 100);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
