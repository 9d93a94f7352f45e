//! A phase-locked loop: when the next commit is due, from when the past ones came. A producer commits on a grid, each a
//! little after the end of an interval. An interval without a commit is a turn of the grid and not a sign of a slower
//! one; the period is taken anew where most of the recent gaps contradict it. Several producers keep no common grid:
//! then it isn't steady, and nothing should be planned on it. Times are nanoseconds of any one clock.

/// How much of an arrival's deviation moves the phase; the period moves by a quarter of its square (critical damping).
const PHASE_GAIN: f64 = 0.15;
/// How much of a deviation goes into the running mean of them.
const SPREAD_GAIN: f64 = 0.1;
/// A deviation counts into that mean as this many times the mean at most: a hiccup is no scatter.
const OUTLIER: f64 = 4.0;
/// Recent gaps that have a say in whether the period is wrong altogether.
const GAPS: usize = 5;
/// So many commits found at one look say that the period is far too long.
const MANY: u32 = 3;
/// Arrivals after which a period has proved itself.
const SETTLED: u32 = 20;
/// So many periods may fail before that, one after the other.
const FAILURES: u32 = 3;
/// The grid is steady while commits deviate from it by less than this share of the period, in the mean.
const STEADY: f64 = 1.0 / 6.0;

#[derive(Debug)]
pub(super) struct PhaseLock {
    /// Time between two commits.
    pub period_ns: f64,
    /// Mean deviation of a commit from its due time.
    pub spread_ns: f64,
    pub last_ns: Option<f64>,
    due_ns: f64,
    /// How often in a row the period was taken anew before it had proved itself.
    failures: u32,
    /// Arrivals since the period was given or taken anew.
    arrivals: u32,
    /// The newest last; at most [`GAPS`].
    gaps_ns: Vec<f64>,
}

impl PhaseLock {
    pub(super) fn of(period_ns: f64) -> Self {
        Self {
            period_ns,
            spread_ns: period_ns / 100.0,
            last_ns: None,
            due_ns: 0.0,
            failures: 0,
            arrivals: 0,
            gaps_ns: Vec::with_capacity(GAPS),
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.spread_ns < STEADY * self.period_ns
    }

    /// When the next commit is due; `None` before the first.
    pub(super) fn due_ns(&self) -> Option<f64> {
        self.last_ns.map(|_| self.due_ns)
    }

    /// The last of `commits` came at `at_ns`; of the others, if any, it isn't known when.
    pub(super) fn arrived(&mut self, at_ns: f64, commits: u32) {
        let Some(last_ns) = self.last_ns.replace(at_ns) else {
            self.due_ns = at_ns + self.period_ns;
            return;
        };
        let gap_ns = (at_ns - last_ns) / f64::from(commits.max(1));
        if self.gaps_ns.len() == GAPS {
            self.gaps_ns.remove(0);
        }
        self.gaps_ns.push(gap_ns);
        let at_once = (commits >= MANY && gap_ns > 0.0 && gap_ns < self.period_ns / 2.0).then_some(gap_ns);
        if let Some(period_ns) = at_once.or_else(|| self.other_period_ns()) {
            // Trusted, for looking rarely would never show it; but not where one period after the other fails.
            let failures = if self.arrivals < SETTLED { self.failures + 1 } else { 0 };
            let is_doubted = failures > FAILURES;
            let new = Self { last_ns: self.last_ns, due_ns: at_ns + period_ns, ..Self::of(period_ns) };
            let spread_ns = if is_doubted { period_ns * STEADY } else { new.spread_ns };
            *self = Self { failures, spread_ns, ..new };
            return;
        }
        let late_ns = at_ns - self.due_ns;
        let nearest_turn_ns = (late_ns / self.period_ns).round().max(0.0) * self.period_ns;
        let off_ns = (late_ns - nearest_turn_ns).max(-self.period_ns / 2.0);
        // A commit that is late by more than half a period doesn't make the one after it late.
        let whole_turns = (late_ns / self.period_ns).floor().max(0.0);
        // Plain means at first, so that what the loop began with is soon forgotten.
        self.arrivals += 1;
        let share = 1.0 / (f64::from(self.arrivals) + 1.0);
        let (phase_gain, spread_gain) = (PHASE_GAIN.max(share), SPREAD_GAIN.max(share));
        self.period_ns += phase_gain * phase_gain / 4.0 * off_ns;
        self.due_ns += (whole_turns + 1.0) * self.period_ns + phase_gain * off_ns;
        let max_ns = OUTLIER * self.spread_ns.max(self.period_ns / 1_000.0);
        self.spread_ns += spread_gain * (off_ns.abs().min(max_ns) - self.spread_ns);
    }

    /// The median of the recent gaps, where that isn't the period at all.
    fn other_period_ns(&self) -> Option<f64> {
        let mut sorted: [f64; GAPS] = self.gaps_ns.as_slice().try_into().ok()?;
        sorted.sort_unstable_by(f64::total_cmp);
        let median_ns = sorted[GAPS / 2];
        let is_other = median_ns > 0.0 && (median_ns - self.period_ns).abs() > self.period_ns / 4.0;
        is_other.then_some(median_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// Arrivals at these times, in milliseconds, over a period given as `period_ms`; each is one commit.
    fn learned(period_ms: f64, arrivals_ms: impl IntoIterator<Item = f64>) -> PhaseLock {
        let mut grid = PhaseLock::of(period_ms * MS);
        arrivals_ms.into_iter().for_each(|at_ms| grid.arrived(at_ms * MS, 1));
        grid
    }

    #[test]
    fn a_steady_grid_is_kept_to_the_microsecond() {
        let grid = learned(100.0, (0..50).map(|i| 7.0 + f64::from(i) * 100.0));
        assert!((grid.due_ns().unwrap() - 5_007.0 * MS).abs() < 1_000.0);
    }

    #[test]
    fn a_grid_that_differs_a_little_is_learned() {
        let grid = learned(100.0, (0..200).map(|i| f64::from(i) * 101.0));
        assert!((grid.period_ns - 101.0 * MS).abs() < 0.05 * MS, "{}", grid.period_ns);
        assert!((grid.due_ns().unwrap() - 20_200.0 * MS).abs() < 0.5 * MS);
    }

    #[test]
    fn another_period_is_taken_over_after_a_few_gaps() {
        let grid = learned(1_000.0, (0..8).map(|i| f64::from(i) * 250.0));
        assert!((grid.period_ns - 250.0 * MS).abs() < 1.0);
        assert!((grid.due_ns().unwrap() - 2_000.0 * MS).abs() < 1.0);
    }

    #[test]
    fn several_commits_at_one_look_correct_the_period_at_once() {
        let mut grid = learned(10_000.0, [0.0]);
        grid.arrived(10_000.0 * MS, 10);
        assert!((grid.period_ns - 1_000.0 * MS).abs() < 1.0);
    }

    #[test]
    fn producers_without_a_common_grid_are_not_steady() {
        let mut random = 1u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut at_ms = 0.0;
        let poisson = learned(
            1_000.0,
            (0..100).map(|_| {
                at_ms += -(1.0 - next()).ln() * 250.0;
                at_ms
            }),
        );
        assert!(!poisson.is_steady());
        assert!(learned(100.0, (0..20).map(|i| f64::from(i) * 100.0)).is_steady());
    }

    #[test]
    fn an_empty_interval_is_a_turn_of_the_grid() {
        let grid = learned(100.0, [0.0, 100.0, 200.0, 500.0]);
        assert!((grid.due_ns().unwrap() - 600.0 * MS).abs() < 1_000.0);
        assert!((grid.period_ns - 100.0 * MS).abs() < 1_000.0);
    }

    #[test]
    fn a_late_commit_does_not_make_the_next_one_late() {
        let mut grid = learned(100.0, (0..20).map(|i| f64::from(i) * 100.0));
        grid.arrived(2_070.0 * MS, 1);
        let due_ms = grid.due_ns().unwrap() / MS;
        assert!((2_090.0..=2_100.0).contains(&due_ms), "{due_ms}");
    }

    #[test]
    fn commits_that_came_together_share_their_gap() {
        let mut grid = PhaseLock::of(100.0 * MS);
        (0..10).for_each(|i| grid.arrived(f64::from(i) * 300.0 * MS, 3));
        assert!((grid.period_ns - 100.0 * MS).abs() < 1.0);
    }
}
