//! How long a bench waits for its roles, in time in which the bench itself runs: its own pauses put every deadline off.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

/// A tick at the end of each second of the bench.
pub(super) struct Ticks {
    seconds: Interval,
    /// The longest that the bench stood still.
    pub(super) longest_pause: Duration,
}

/// A tick that is later than this says that the bench stood still.
const LATE: Duration = Duration::from_millis(500);

impl Ticks {
    pub(super) fn begin() -> Self {
        let second = Duration::from_secs(1);
        let mut seconds = tokio::time::interval_at(Instant::now() + second, second);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { seconds, longest_pause: Duration::ZERO }
    }

    /// Waits for the end of a second; gives how long the bench stood still in it. Cancel safe.
    pub(super) async fn next(&mut self) -> Duration {
        let due = self.seconds.tick().await;
        let late = Instant::now() - due;
        if late < LATE {
            return Duration::ZERO;
        }
        self.longest_pause = self.longest_pause.max(late);
        late
    }
}

/// How long a role has reported nothing, which it does every second unless it waits for the store.
pub(super) struct IdleTimeout {
    seconds: u64,
    max_seconds: u64,
}

impl IdleTimeout {
    pub(super) fn new(max: Duration) -> Self {
        Self { seconds: 0, max_seconds: max.as_secs() }
    }

    /// The role reported something.
    pub(super) fn reset(&mut self) {
        self.seconds = 0;
    }

    /// Another second is over; gives whether the role has been idle for too long.
    pub(super) fn tick(&mut self) -> bool {
        self.seconds += 1;
        self.seconds > self.max_seconds
    }
}

/// A consumer's time to catch up, or to end. Time in which the store doesn't answer is not counted, up to a limit.
pub(super) struct Drain {
    until: Instant,
    max_excluded: Duration,
    /// How long the store had not answered the consumer when it began.
    unanswered_before: Duration,
}

impl Drain {
    pub(super) fn begin(timeout: Duration, max_excluded: Duration, unanswered_before: Duration) -> Self {
        Self { until: Instant::now() + timeout, max_excluded, unanswered_before }
    }

    /// The bench stood still for this long.
    pub(super) fn put_off(&mut self, pause: Duration) {
        self.until += pause;
    }

    /// When it is over, the store not having answered for this long by now.
    pub(super) fn ends(&self, unanswered: Duration) -> Instant {
        self.until + unanswered.saturating_sub(self.unanswered_before).min(self.max_excluded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_longer_by_what_the_store_did_not_answer_up_to_a_limit() {
        let seconds = Duration::from_secs;
        let mut drain = Drain::begin(seconds(60), seconds(120), seconds(7));
        for (unanswered, longer) in [(7, 0), (0, 0), (37, 30), (127, 120), (500, 120)] {
            assert_eq!(drain.ends(seconds(unanswered)), drain.until + seconds(longer), "{unanswered}");
        }
        let until = drain.ends(seconds(37));
        drain.put_off(seconds(9));
        assert_eq!(drain.ends(seconds(37)), until + seconds(9), "the bench stood still meanwhile");
    }

    #[test]
    fn an_idle_timeout_is_over_after_its_seconds_without_a_report() {
        let mut idle = IdleTimeout::new(Duration::from_secs(3));
        assert!((0..3).all(|_| !idle.tick()));
        idle.reset();
        assert!((0..3).all(|_| !idle.tick()));
        assert!(idle.tick());
    }

    #[tokio::test]
    async fn a_pause_of_the_bench_is_one_late_tick() {
        let mut ticks = Ticks::begin();
        assert_eq!(ticks.next().await, Duration::ZERO);
        // Nothing of this runtime runs meanwhile.
        std::thread::sleep(Duration::from_millis(3_500));
        let late = ticks.next().await;
        assert!(late >= Duration::from_secs(2), "{late:?}");
        assert_eq!(ticks.longest_pause, late);
        assert_eq!(ticks.next().await, Duration::ZERO);
    }
}
