//! When to ask for the next version. The entry is found (a *hit*) or absent (a *miss*), which costs as much: the adaptive
//! policy asks when the next commit is due. Both policies are pure functions of the times of past hits and misses.

use std::time::Duration;

use super::phase_lock::PhaseLock;

/// A policy, as it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Learns the interval of commits, beginning with this one, and asks about when each is due.
    Adaptive {
        /// The interval to begin with: the producers' commit interval.
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
            expected_ns: period_ns,
            phase_lock: PhaseLock::of(period_ns),
            answer_ns: 0.0,
            unlocated: 0,
            asked_when_due: false,
            missed_ns: None,
            found_ns: 0,
            found_at_once: 0,
            probes: 0,
        }
    }

    /// The longest pause between two questions, while nothing comes for long.
    pub fn longest_pause(self) -> Duration {
        match self {
            Self::Adaptive { expected } => expected.max(Duration::from_nanos(MIN_PAUSE_NS as u64)),
            Self::Fixed { interval } => interval,
        }
    }

    /// The pause between two questions that the policy begins with.
    pub fn interval(self) -> Duration {
        let (Self::Adaptive { expected: interval } | Self::Fixed { interval }) = self;
        interval
    }
}

/// A shorter pause than this is none: the timer alone would take as long.
const MIN_PAUSE_NS: f64 = 50_000.0;
/// How much longer each pause between probes is than the one before.
const PAUSE_GROWTH: f64 = 1.5;
/// How long before a commit is due it is looked for first, in mean deviations of the commits.
const LEAD: f64 = 1.0;
/// Weight of the newest observation in the running mean of how long an answer takes.
const ANSWER_GAIN: f64 = 0.1;
/// After this many intervals without a commit the stream counts as idle.
const IDLE_INTERVALS: f64 = 10.0;

/// A question and its answer, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// When it was sent.
    pub at_ns: u64,
    /// When the answer was there.
    pub answered_ns: u64,
}

impl Asked {
    /// When the store is thought to have looked: halfway.
    fn looked_ns(self) -> u64 {
        self.at_ns + (self.answered_ns - self.at_ns) / 2
    }
}

/// Decides, hit by hit and miss by miss, when to ask next.
///
/// The adaptive policy asks a little before a commit is due by the [`PhaseLock`], and then ever less closely until the
/// hit. The middle of the last miss and the hit is the commit's arrival. One that the first question found came earlier,
/// by twice as much for each found like that in a row. After a hit the next question follows at once, so that a backlog
/// is read without pauses.
#[derive(Debug)]
pub(super) struct Poller {
    policy: Poll,
    /// The commit interval that the policy begins with. It bounds every wait, whatever was learned.
    expected_ns: f64,
    phase_lock: PhaseLock,
    /// How long the answer to a first question takes, which finds everything idle.
    answer_ns: f64,
    /// Commits that were found since the last one whose arrival is known.
    unlocated: u32,
    /// Whether the next answer is that of a first question, asked when its commit was due.
    asked_when_due: bool,
    /// When the store looked in vain, if that was the last answer.
    missed_ns: Option<u64>,
    /// When the store looked and found the last commit.
    found_ns: u64,
    /// Commits in a row that the first question found.
    found_at_once: i32,
    /// Misses since the next commit became due.
    probes: i32,
}

impl Poller {
    /// A commit was found; gives the time to ask for the next one.
    pub(super) fn hit(&mut self, asked: Asked) -> u64 {
        let is_adaptive = matches!(self.policy, Poll::Adaptive { .. });
        let was_first = self.was_first(asked);
        self.found_at_once += i32::from(was_first);
        let missed_ns = self.missed_ns.take();
        self.unlocated += 1;
        self.probes = 0;
        self.found_ns = asked.looked_ns();
        match missed_ns {
            Some(missed_ns) if is_adaptive && !was_first => {
                self.arrived(missed_ns + (self.found_ns - missed_ns) / 2);
                self.when_due_ns(asked.answered_ns)
            }
            _ => asked.answered_ns,
        }
    }

    /// Nothing was there; gives the time to ask again.
    pub(super) fn miss(&mut self, asked: Asked) -> u64 {
        let now_ns = asked.answered_ns;
        if let Poll::Fixed { interval } = self.policy {
            return now_ns + interval.as_nanos() as u64;
        }
        if self.unlocated > 0 {
            // The last one is the latest, and came before it was asked for.
            let step_ns = self.phase_lock.spread_ns.max(MIN_PAUSE_NS);
            let earlier_ns = step_ns * 2_f64.powi((self.found_at_once - 1).clamp(0, 100));
            let max_ns = self.phase_lock.period_ns / 4.0;
            self.arrived(self.found_ns.saturating_sub(earlier_ns.min(max_ns) as u64));
        }
        if self.was_first(asked) {
            self.found_at_once = 0;
        }
        self.missed_ns = Some(asked.looked_ns());
        let due_ns = self.when_due_ns(now_ns);
        if due_ns > now_ns {
            return due_ns;
        }
        self.probes += 1;
        // Long overdue, the stream is idle and no commit late: what comes after it may be found an interval late.
        let is_idle =
            self.phase_lock.last_ns.is_some_and(|at| now_ns as f64 - at > IDLE_INTERVALS * self.expected_ns);
        let max_ns = if is_idle { self.expected_ns } else { self.expected_ns / 10.0 }.max(MIN_PAUSE_NS);
        let pause_ns = if self.phase_lock.is_steady() {
            let close_ns = self.phase_lock.spread_ns.max(MIN_PAUSE_NS) / 4.0;
            (close_ns * PAUSE_GROWTH.powi(self.probes.min(100) - 1)).min(max_ns)
        } else {
            max_ns
        };
        if pause_ns < MIN_PAUSE_NS { now_ns } else { now_ns + pause_ns as u64 }
    }

    /// Whether this answers the first question for a commit; if so, notes how long that took.
    fn was_first(&mut self, asked: Asked) -> bool {
        let was_first = std::mem::take(&mut self.asked_when_due);
        if was_first {
            let took_ns = (asked.answered_ns - asked.at_ns) as f64;
            self.answer_ns += ANSWER_GAIN * (took_ns.min(self.phase_lock.period_ns) - self.answer_ns);
        }
        was_first
    }

    fn arrived(&mut self, at_ns: u64) {
        self.phase_lock.arrived(at_ns as f64, std::mem::take(&mut self.unlocated));
    }

    /// When to ask for the next commit in view of when it is due; now, where that is past or can't be foreseen.
    fn when_due_ns(&mut self, now_ns: u64) -> u64 {
        // A whole answer earlier: the first question should just miss, and the probe that follows is answered faster.
        let lead_ns = self.answer_ns + LEAD * self.phase_lock.spread_ns;
        let latest_ns = now_ns + self.expected_ns as u64;
        match self.phase_lock.due_ns().map(|due_ns| (due_ns - lead_ns) as u64) {
            Some(first_ns) if first_ns > now_ns && self.phase_lock.is_steady() => {
                self.asked_when_due = first_ns <= latest_ns;
                first_ns.min(latest_ns)
            }
            _ => now_ns,
        }
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
                let asked = Asked { at_ns: now_ns, answered_ns: now_ns + round_trip_ns };
                now_ns = asked.answered_ns;
                if commit_ns <= asked.looked_ns() {
                    delay_ns += if i >= half { now_ns - commit_ns } else { 0 };
                    now_ns = poller.hit(asked).max(now_ns);
                    break;
                }
                now_ns = poller.miss(asked).max(now_ns);
            }
        }
        let counted = (commits_ns.len() - half) as f64;
        (asked as f64 / counted, delay_ns as f64 / counted / 1e6)
    }

    /// A question that was answered at once.
    fn at(ns: u64) -> Asked {
        Asked { at_ns: ns, answered_ns: ns }
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
    fn at_a_steady_interval_adaptive_asks_rarely_and_finds_no_later_than_fixed() {
        for (period_ms, jitter_ms) in
            [(100.0, 0.2), (100.0, 1.0), (100.0, 3.0), (1000.0, 5.0), (20.0, 1.0), (5.0, 1.0)]
        {
            let commits = steady(period_ms, jitter_ms, 400);
            let expected = Duration::from_secs_f64(period_ms / 1e3);
            let (asked, delay_ms) = run(Poll::Adaptive { expected }, &commits, 1_000_000);
            let (_, fixed_delay_ms) = run(Poll::Fixed { interval: expected / 10 }, &commits, 1_000_000);
            assert!(asked <= 3.0, "{asked} questions a commit at {period_ms} ms");
            assert!(delay_ms <= fixed_delay_ms, "{delay_ms} against {fixed_delay_ms} at {period_ms} ms");
            // Half a round trip is the answer's; the rest is waiting to be asked for.
            assert!(delay_ms <= 0.5 + jitter_ms.max(1.0), "{delay_ms} at {period_ms} ms");
        }
    }

    #[test]
    fn adaptive_learns_an_interval_other_than_expected() {
        let commits = steady(250.0, 1.0, 400);
        let (asked, delay_ms) =
            run(Poll::Adaptive { expected: Duration::from_millis(1000) }, &commits, 1_000_000);
        assert!(asked <= 3.0 && delay_ms < 2.0, "{asked} questions, {delay_ms} ms");
    }

    /// The longest that a commit waited to be found, in milliseconds, and questions a commit.
    fn worst(policy: Poll, commits_ns: &[u64]) -> (f64, f64) {
        let (mut poller, mut now_ns, mut worst_ns, mut asked) = (policy.start(), 0, 0, 0u32);
        for &commit_ns in commits_ns {
            loop {
                let question = Asked { at_ns: now_ns, answered_ns: now_ns + 1_000_000 };
                (now_ns, asked) = (question.answered_ns, asked + 1);
                if commit_ns <= question.looked_ns() {
                    worst_ns = worst_ns.max(now_ns - commit_ns);
                    now_ns = poller.hit(question).max(now_ns);
                    break;
                }
                now_ns = poller.miss(question).max(now_ns);
            }
        }
        (worst_ns as f64 / 1e6, f64::from(asked) / commits_ns.len() as f64)
    }

    #[test]
    fn what_was_learned_of_sparse_commits_makes_no_later_one_wait_beyond_an_interval() {
        let policy = Poll::Adaptive { expected: Duration::from_secs(1) };
        for sparse_s in [7, 60, 600] {
            let sparse = (1..=10).map(|i| i * sparse_s * 1_000_000_000);
            let steady = (1..=300).map(|i| (10 * sparse_s + i) * 1_000_000_000 + 300_000_000);
            let (worst_ms, _) = worst(policy, &sparse.chain(steady).collect::<Vec<_>>());
            assert!(worst_ms <= 1_010.0, "{worst_ms} ms after gaps of {sparse_s} s");
        }
    }

    #[test]
    fn several_producers_cost_no_more_than_twice_the_questions_of_a_fixed_policy() {
        for producers in [2, 4, 8] {
            let mut commits: Vec<u64> = (0..producers)
                .flat_map(|producer| {
                    (1..200).map(move |i| (i * 1_000 + producer * producer * 23) * 1_000_000)
                })
                .collect();
            commits.sort_unstable();
            let expected = Duration::from_secs(1);
            let (adaptive_ms, asked) = worst(Poll::Adaptive { expected }, &commits);
            let (fixed_ms, fixed_asked) = worst(Poll::Fixed { interval: expected / 10 }, &commits);
            assert!(adaptive_ms <= 1_010.0, "{adaptive_ms} against {fixed_ms} with {producers} producers");
            assert!(
                asked <= 2.0 * fixed_asked,
                "{asked} against {fixed_asked} questions with {producers} producers"
            );
        }
    }

    #[test]
    fn idleness_after_any_interval_costs_a_question_an_interval() {
        let mut poller = Poll::Adaptive { expected: Duration::from_secs(1) }.start();
        let mut now_ns = 0;
        for i in 1..200u64 {
            poller.miss(at(now_ns.max(i * 10_000_000 - 100_000)));
            now_ns = poller.hit(at(i * 10_000_000));
        }
        let (mut asked, start_ns) = (0, now_ns);
        while now_ns < start_ns + 60_000_000_000 {
            now_ns = poller.miss(at(now_ns));
            asked += u32::from(now_ns > start_ns + 20_000_000_000);
        }
        assert!((35..=45).contains(&asked), "{asked} questions in forty idle seconds");
    }

    #[test]
    fn a_backlog_is_read_without_pauses() {
        let mut poller = Poll::Adaptive { expected: Duration::from_secs(1) }.start();
        for i in 0..50 {
            assert_eq!(poller.hit(at(i * 1_000)), i * 1_000);
        }
    }

    #[test]
    fn while_idle_adaptive_asks_once_a_period() {
        let mut poller = Poll::Adaptive { expected: Duration::from_millis(100) }.start();
        poller.miss(at(0));
        poller.hit(at(1_000_000));
        let (mut now_ns, mut asked_late) = (1_000_000, 0);
        while now_ns < 20_000_000_000 {
            now_ns = poller.miss(at(now_ns));
            asked_late += u32::from(now_ns > 10_000_000_000);
        }
        assert!((95..=105).contains(&asked_late), "{asked_late} questions in ten idle seconds");
    }

    #[test]
    fn fixed_asks_at_its_interval() {
        let mut poller = Poll::Fixed { interval: Duration::from_millis(7) }.start();
        assert_eq!(poller.miss(at(5)), 7_000_005);
        assert_eq!(poller.hit(at(9)), 9);
    }
}
