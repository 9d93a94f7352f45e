//! Whether the roles' memory grows with the run.

use crate::report::TimelineRow;

/// Fewer intervals than this say nothing.
const MIN_INTERVALS: usize = 10;

/// How much more memory a role held at most in the last tenth of the sending than in the first tenth after
/// the warm-up: 0.05 is 5 % more. `None` where the run was too short, or the system doesn't say.
pub(super) fn growth(
    timeline: &[TimelineRow],
    interval_seconds: f64,
    warmup_seconds: f64,
    rss_bytes: fn(&TimelineRow) -> u64,
) -> Option<f64> {
    let held: Vec<_> = timeline
        .iter()
        .filter(|row| row.sent > 0 && row.time_from_start_seconds - interval_seconds >= warmup_seconds)
        .map(rss_bytes)
        .filter(|&bytes| bytes > 0)
        .collect();
    if held.len() < MIN_INTERVALS {
        return None;
    }
    let tenth = held.len() / 10;
    let (early, late) = (held[..tenth].iter().max()?, held[held.len() - tenth..].iter().max()?);
    Some(*late as f64 / *early as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(held: &[u64]) -> Vec<TimelineRow> {
        let row = |(index, &producer_rss_bytes): (usize, &u64)| TimelineRow {
            time_from_start_seconds: (index + 1) as f64,
            sent: 1,
            producer_rss_bytes,
            ..TimelineRow::default()
        };
        held.iter().enumerate().map(row).collect()
    }

    fn grown(held: &[u64], warmup_seconds: f64) -> Option<f64> {
        growth(&timeline(held), 1.0, warmup_seconds, |row| row.producer_rss_bytes)
    }

    #[test]
    fn the_last_tenth_is_held_against_the_first_after_the_warm_up() {
        let held: Vec<_> = (0..40).map(|second| 100 + second).collect();
        assert_eq!(grown(&held, 0.0), Some(139.0 / 103.0 - 1.0));
        assert_eq!(grown(&held, 20.0), Some(139.0 / 121.0 - 1.0));
        assert_eq!(grown(&[100; 10], 0.0), Some(0.0));
    }

    #[test]
    fn a_short_run_or_a_silent_system_has_no_growth() {
        assert_eq!(grown(&[100; 9], 0.0), None);
        assert_eq!(grown(&[100; 12], 3.0), None);
        assert_eq!(grown(&[0; 40], 0.0), None);
    }
}
