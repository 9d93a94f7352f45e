//! How far this host's clock is from the store's, by the `Date` of every answer. No request is sent for it.
//!
//! An answer with date `D`, in whole seconds, asked for at local time `a` and received at `b`, puts the store's clock
//! minus ours between `D - b` and `D + 1 s - a`. Answers around the turn of a second narrow that to about a round trip.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Where the store's clock minus ours may lie, in microseconds: the lowest and the highest offset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OffsetBounds(Option<(i64, i64)>);

impl OffsetBounds {
    /// Takes an answer in: its `Date` header, and when it was asked for and received by our wall clock.
    pub(super) fn observe(&mut self, date: &str, asked_us: i64, received_us: i64) {
        let Some(date_us) = httpdate::parse_http_date(date).ok().and_then(unix_us) else {
            return;
        };
        let new = (date_us - received_us, date_us + 1_000_000 - asked_us);
        let (lower_us, upper_us) = self.0.unwrap_or(new);
        self.0 = Some((lower_us.max(new.0), upper_us.min(new.1)));
    }

    /// What is known by now; `None` before the first answer.
    pub(super) fn estimate(self) -> Option<StoreClock> {
        let (lower_us, upper_us) = self.0?;
        let width_us = upper_us - lower_us;
        Some(StoreClock {
            offset_us: lower_us + width_us / 2,
            uncertainty_us: width_us.abs() / 2 + width_us.abs() % 2,
            stepped: width_us < 0,
        })
    }
}

fn unix_us(time: SystemTime) -> Option<i64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_micros() as i64)
}

/// The store's clock against this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreClock {
    /// The store's clock minus ours, in microseconds.
    pub offset_us: i64,
    /// The offset is right to within this, in microseconds.
    pub uncertainty_us: i64,
    /// No single offset fits all answers: one of the clocks was stepped, or the store has several.
    pub stepped: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// What a store whose clock is ahead by `offset_us` says to a question at our `asked_us`.
    fn ask(bounds: &mut OffsetBounds, offset_us: i64, asked_us: i64, half_trip_us: i64) {
        let store_us = asked_us + half_trip_us + offset_us;
        let date = UNIX_EPOCH + Duration::from_secs((store_us / 1_000_000) as u64);
        bounds.observe(&httpdate::fmt_http_date(date), asked_us, asked_us + 2 * half_trip_us);
    }

    proptest! {
        #[test]
        fn the_true_offset_is_always_within_the_bounds(
            offset_us in -100_000_000i64..100_000_000,
            questions in proptest::collection::vec((0i64..5_000_000, 100i64..50_000), 1..100),
        ) {
            let mut bounds = OffsetBounds::default();
            for (after_us, half_trip_us) in questions {
                ask(&mut bounds, offset_us, 1_700_000_000_000_000 + after_us, half_trip_us);
            }
            let clock = bounds.estimate().unwrap();
            prop_assert!((clock.offset_us - offset_us).abs() <= clock.uncertainty_us + 1);
            prop_assert!(!clock.stepped);
        }
    }

    #[test]
    fn asking_across_the_turn_of_a_second_finds_the_offset_closely() {
        let mut bounds = OffsetBounds::default();
        assert_eq!(bounds.estimate(), None);
        for question in 0..150 {
            ask(&mut bounds, 250_000, 1_700_000_000_000_000 + question * 10_000, 500);
        }
        let clock = bounds.estimate().unwrap();
        assert!(clock.uncertainty_us < 6_000 && (clock.offset_us - 250_000).abs() < 6_000, "{clock:?}");
    }

    #[test]
    fn a_step_of_a_clock_is_noticed() {
        let mut bounds = OffsetBounds::default();
        ask(&mut bounds, 0, 1_700_000_000_000_000, 500);
        ask(&mut bounds, 5_000_000, 1_700_000_001_000_000, 500);
        assert!(bounds.estimate().unwrap().stepped);
        bounds.observe("not a date", 0, 0);
    }
}
