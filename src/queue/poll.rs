//! When to ask for the next version.
//!
//! A consumer learns of a commit by asking for its entry: an answer is a *hit*, an absence is a *miss*
//! that costs as much as a hit. Asking often finds a commit early and pays for many misses; the
//! adaptive policy asks when the next commit is expected. Both are pure functions of the times of past
//! hits and misses, in nanoseconds of any one clock.

use std::time::Duration;

/// A policy, as it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Learns the cadence of commits, beginning with this one, and asks shortly before each is due.
    Adaptive {
        /// The cadence to begin with: the producers' commit interval.
        expected: Duration,
    },
    /// Asks again this long after each miss.
    Fixed {
        /// The pause between two questions.
        interval: Duration,
    },
}

impl Poll {
    pub(super) fn start(self) -> Poller {
        let period_ns = self.interval().as_nanos() as f64;
        Poller {
            policy: self,
            period_ns,
            spread_ns: period_ns / 50.0,
            arrival_ns: None,
            hits: 0,
            misses: 0,
            last_miss_ns: None,
            probes: 0,
        }
    }

    /// The longest pause between two questions, while nothing comes for long.
    pub fn longest_pause(self) -> Duration {
        match self {
            Self::Adaptive { expected } => expected.max(Duration::from_nanos(SHORTEST_PAUSE_NS as u64)),
            Self::Fixed { interval } => interval,
        }
    }

    /// The pause between two questions that the policy begins with.
    pub fn interval(self) -> Duration {
        match self {
            Self::Adaptive { expected } => expected,
            Self::Fixed { interval } => interval,
        }
    }
}

/// Weight of the newest observation in the running means.
const GAIN: f64 = 0.2;
/// No two probes closer than this: a store on loopback answers in about a millisecond.
const SHORTEST_PAUSE_NS: f64 = 500_000.0;

/// After this many periods without a commit the stream counts as silent.
const SILENCE_PERIODS: f64 = 10.0;

/// Decides, hit by hit and miss by miss, when to ask next.
///
/// The adaptive policy expects a commit one period after the last, asks a little earlier than that (a
/// miss, which pins the arrival from below), and then ever less closely until the hit. A hit that no
/// miss came before was asked for late: there may be more, so the next question is immediate, and the
/// expectation moves earlier.
#[derive(Debug)]
pub(super) struct Poller {
    policy: Poll,
    /// Learned time between two commits.
    period_ns: f64,
    /// Learned scatter of commits around their expected time.
    spread_ns: f64,
    /// When the last commit is thought to have arrived.
    arrival_ns: Option<u64>,
    /// Hits since the last miss.
    hits: u32,
    /// Misses since the last hit.
    misses: u32,
    last_miss_ns: Option<u64>,
    /// Misses since the next commit became due.
    probes: i32,
}

impl Poller {
    /// A commit was found at `now_ns`; gives the time to ask for the next one.
    pub(super) fn hit(&mut self, now_ns: u64) -> u64 {
        let at_tip = self.misses > 0;
        self.hits += 1;
        self.misses = 0;
        self.probes = 0;
        match (self.policy, self.last_miss_ns) {
            (Poll::Adaptive { .. }, Some(miss_ns)) if at_tip => {
                // It came between the last miss and now.
                self.learn(now_ns - (now_ns - miss_ns) / 2);
                self.next_due_ns(now_ns)
            }
            _ => now_ns,
        }
    }

    /// Nothing was there at `now_ns`; gives the time to ask again.
    pub(super) fn miss(&mut self, now_ns: u64) -> u64 {
        if self.hits > 0 && self.misses == 0 && self.policy_is_adaptive() {
            // Late by an unknown time; feel the way back until a miss comes before the hit.
            self.learn(now_ns.saturating_sub((2.0 * self.guard_ns()) as u64));
        }
        self.misses = self.misses.saturating_add(1);
        self.last_miss_ns = Some(now_ns);
        if !self.policy_is_adaptive() {
            return now_ns + self.period_ns as u64;
        }
        let due_ns = self.next_due_ns(now_ns);
        if due_ns > now_ns {
            return due_ns;
        }
        self.probes += 1;
        let close_ns = self.spread_ns.max(SHORTEST_PAUSE_NS) * 1.5_f64.powi(self.probes.min(20) - 1);
        // Long overdue, it is silence and no late commit: what comes after it may be found a period late.
        let silent =
            self.arrival_ns.is_some_and(|at| (now_ns - at) as f64 > SILENCE_PERIODS * self.period_ns);
        let longest_ns = if silent { self.period_ns } else { self.period_ns / 10.0 };
        now_ns + close_ns.min(longest_ns.max(SHORTEST_PAUSE_NS)) as u64
    }

    fn policy_is_adaptive(&self) -> bool {
        matches!(self.policy, Poll::Adaptive { .. })
    }

    /// How long before a commit is expected it is first asked for.
    fn guard_ns(&self) -> f64 {
        (1.5 * self.spread_ns).max(SHORTEST_PAUSE_NS).min(self.period_ns / 4.0)
    }

    /// When to ask for the next commit, in view of the last one's arrival; now, where that is past.
    fn next_due_ns(&self, now_ns: u64) -> u64 {
        match self.arrival_ns {
            Some(arrival_ns) => now_ns.max(arrival_ns + (self.period_ns - self.guard_ns()) as u64),
            None => now_ns,
        }
    }

    /// Takes in that the newest of `hits` commits arrived at `arrival_ns`.
    fn learn(&mut self, arrival_ns: u64) {
        if let Some(last_ns) = self.arrival_ns
            && arrival_ns > last_ns
        {
            let gap_ns = (arrival_ns - last_ns) as f64 / f64::from(self.hits.max(1));
            // A pause between two streams is no cadence: one gap changes little, several in a row all.
            let gap_ns = gap_ns.clamp(0.5 * self.period_ns, 2.0 * self.period_ns);
            let off_ns = (gap_ns - self.period_ns).abs();
            self.period_ns += GAIN * (gap_ns - self.period_ns);
            self.spread_ns += GAIN * (off_ns.min(self.period_ns / 4.0) - self.spread_ns);
        }
        self.arrival_ns = Some(self.arrival_ns.map_or(arrival_ns, |last_ns| last_ns.max(arrival_ns)));
        self.hits = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a policy against commits at the given times; answers questions per commit and the mean
    /// delay of discovery, in milliseconds, over the second half.
    fn run(policy: Poll, commits_ns: &[u64], round_trip_ns: u64) -> (f64, f64) {
        let mut poller = policy.start();
        let (mut now_ns, mut asked, mut delay_ns) = (0, 0u64, 0u64);
        let half = commits_ns.len() / 2;
        for (i, &commit_ns) in commits_ns.iter().enumerate() {
            loop {
                asked += u64::from(i >= half);
                let seen_ns = now_ns + round_trip_ns / 2;
                now_ns += round_trip_ns;
                if commit_ns <= seen_ns {
                    delay_ns += if i >= half { now_ns - commit_ns } else { 0 };
                    now_ns = poller.hit(now_ns).max(now_ns);
                    break;
                }
                now_ns = poller.miss(now_ns).max(now_ns);
            }
        }
        let counted = (commits_ns.len() - half) as f64;
        (asked as f64 / counted, delay_ns as f64 / counted / 1e6)
    }

    fn steady(period_ms: f64, jitter_ms: f64, count: u64) -> Vec<u64> {
        let mut random = 1u64;
        (1..=count)
            .map(|i| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let jitter = (random >> 11) as f64 / (1u64 << 53) as f64 * jitter_ms;
                ((i as f64 * period_ms + jitter) * 1e6) as u64
            })
            .collect()
    }

    #[test]
    fn at_a_steady_cadence_adaptive_asks_rarely_and_finds_no_later_than_fixed() {
        for (period_ms, jitter_ms) in [(100.0, 1.0), (100.0, 3.0), (1000.0, 5.0), (20.0, 1.0)] {
            let commits = steady(period_ms, jitter_ms, 400);
            let expected = Duration::from_secs_f64(period_ms / 1e3);
            let (asked, delay_ms) = run(Poll::Adaptive { expected }, &commits, 1_000_000);
            let (_, fixed_delay_ms) = run(Poll::Fixed { interval: expected / 10 }, &commits, 1_000_000);
            assert!(asked <= 4.0, "{asked} questions a commit at {period_ms} ms");
            assert!(
                delay_ms <= fixed_delay_ms + 1.0,
                "{delay_ms} against {fixed_delay_ms} at {period_ms} ms"
            );
        }
    }

    #[test]
    fn adaptive_learns_a_cadence_that_it_was_told_wrong() {
        let commits = steady(250.0, 1.0, 400);
        let (asked, delay_ms) =
            run(Poll::Adaptive { expected: Duration::from_millis(1000) }, &commits, 1_000_000);
        assert!(asked <= 4.0 && delay_ms < 10.0, "{asked} questions, {delay_ms} ms");
    }

    #[test]
    fn a_backlog_is_read_without_pauses() {
        let mut poller = Poll::Adaptive { expected: Duration::from_secs(1) }.start();
        for i in 0..50 {
            assert_eq!(poller.hit(i * 1_000), i * 1_000);
        }
    }

    #[test]
    fn in_silence_adaptive_asks_once_a_period() {
        let mut poller = Poll::Adaptive { expected: Duration::from_millis(100) }.start();
        poller.miss(0);
        poller.hit(1_000_000);
        let (mut now_ns, mut asked_late) = (1_000_000, 0);
        while now_ns < 20_000_000_000 {
            now_ns = poller.miss(now_ns);
            asked_late += u32::from(now_ns > 10_000_000_000);
        }
        assert!((95..=105).contains(&asked_late), "{asked_late} questions in ten seconds of silence");
    }

    #[test]
    fn fixed_asks_at_its_interval() {
        let mut poller = Poll::Fixed { interval: Duration::from_millis(7) }.start();
        assert_eq!(poller.miss(5), 7_000_005);
        assert_eq!(poller.hit(9), 9);
    }
}
