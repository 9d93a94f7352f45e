//! When the store last answered, and its outages.
//!
//! While somebody waits for an answer ([`Availability::ask`]) and none comes, or only "not now" (5xx, 429, 408), the
//! store has an outage. So has one whose only transfer takes long. Who waits for something of *others*, such as a
//! consumer for messages, must not count that time ([`AvailableTime`]).

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use s3mq_clock::monotonic_ns;

const MIN_OUTAGE_NS: u64 = 1_000_000_000;
/// An outage of this length is warned of while it goes on, and is a stall in any result.
pub(super) const WARN_AFTER: Duration = Duration::from_secs(5);
/// Between two looks at a stopwatch that may stand still.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The outages of one [`super::Store`].
#[derive(Debug, Default)]
pub struct Availability {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    asking: u32,
    /// While there are any: since when none has come, in nanoseconds of the monotonic clock.
    unanswered_since_ns: u64,
    is_warned_of: bool,
    /// How the last attempt failed, where none was answered since.
    failure: Option<Failure>,
    kept: Vec<Outage>,
    kept_ns: u64,
}

/// How an attempt failed that may be made again.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer came; what the connection said.
    NoAnswer(String),
    /// The answer was this status: "not now".
    Refused(u16),
}

/// A span in which the store was asked and did not answer, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The answer before it, or the first request that was not answered.
    pub from_ns: u64,
    /// The first answer after it.
    pub until_ns: u64,
}

impl Outage {
    fn length(self) -> Duration {
        Duration::from_nanos(self.until_ns - self.from_ns)
    }
}

/// The spans in which the store did not answer for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreStalls {
    /// How many.
    pub count: u64,
    /// The longest, in seconds.
    pub longest_seconds: f64,
    /// All together, in seconds.
    pub total_seconds: f64,
}

impl StoreStalls {
    /// A longer outage is a stall, where commits come this often: ten intervals, between a second and five.
    pub fn threshold(commit_interval: Duration) -> Duration {
        (commit_interval * 10).clamp(Duration::from_nanos(MIN_OUTAGE_NS), WARN_AFTER)
    }
}

/// Somebody waits for an answer, until this is dropped.
#[derive(Debug)]
pub(super) struct Asking<'a>(&'a Availability);

impl Availability {
    /// From now on, an answer is waited for.
    pub(super) fn ask(&self) -> Asking<'_> {
        self.state.lock().ask(monotonic_ns());
        Asking(self)
    }

    pub(super) fn answered(&self) {
        let ended = self.state.lock().answered(monotonic_ns());
        if let Some(outage) = ended {
            tracing::warn!("the store answers again, after {:.1} s", outage.length().as_secs_f64());
        }
    }

    /// An attempt failed: no answer came, or one that says "not now".
    pub(super) fn failed(&self, how: Failure) {
        self.state.lock().failure = Some(how);
    }

    /// What the store did instead of answering, and in brackets what the connection said, if it said anything.
    pub(crate) fn failure(&self) -> (String, String) {
        match &self.state.lock().failure {
            Some(Failure::Refused(status)) => {
                (format!("has answered nothing but status {status}"), String::new())
            }
            Some(Failure::NoAnswer(said)) => ("has not answered".to_owned(), format!(" ({said})")),
            None => ("has not answered".to_owned(), String::new()),
        }
    }

    /// For how long it has not answered, though it was asked.
    pub(super) fn outage(&self) -> Duration {
        self.state.lock().outage(monotonic_ns())
    }

    /// Whether the outage that is going on is still to be warned of: once.
    pub(super) fn take_warning(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_warned_of, true)
    }

    /// All outages so far together, with the one that is going on, however short that is as yet.
    pub fn unanswered(&self) -> Duration {
        self.state.lock().unanswered(monotonic_ns())
    }

    /// The outages of more than `threshold`, with the one that is going on.
    pub fn stalls(&self, threshold: Duration) -> StoreStalls {
        self.state.lock().stalls(threshold, monotonic_ns())
    }

    /// The outages of more than `threshold` that have ended, without the first `seen`; and how many have ended.
    pub fn ended_since(&self, seen: usize, threshold: Duration) -> (usize, Vec<Outage>) {
        let state = self.state.lock();
        let new = state.kept.iter().skip(seen).filter(|outage| outage.length() > threshold);
        (state.kept.len(), new.copied().collect())
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.state.lock().leave(monotonic_ns());
    }
}

impl State {
    fn ask(&mut self, now_ns: u64) {
        if self.asking == 0 {
            self.unanswered_since_ns = now_ns;
            self.is_warned_of = false;
        }
        self.asking += 1;
    }

    fn leave(&mut self, now_ns: u64) {
        self.asking -= 1;
        if self.asking == 0 {
            // Without an answer, where somebody gave up: it was an outage all the same.
            self.keep(now_ns);
        }
    }

    /// The outage that this ends, where it was warned of.
    fn answered(&mut self, now_ns: u64) -> Option<Outage> {
        let was_warned_of = std::mem::take(&mut self.is_warned_of);
        self.failure = None;
        if self.asking == 0 {
            return None;
        }
        let outage = self.keep(now_ns);
        self.unanswered_since_ns = now_ns;
        was_warned_of.then_some(outage)
    }

    fn keep(&mut self, now_ns: u64) -> Outage {
        let outage = Outage { from_ns: self.unanswered_since_ns, until_ns: now_ns };
        let length_ns = now_ns.saturating_sub(outage.from_ns);
        if length_ns > MIN_OUTAGE_NS {
            self.kept.push(outage);
            self.kept_ns += length_ns;
        }
        outage
    }

    fn outage(&self, now_ns: u64) -> Duration {
        let is_asked = self.asking > 0;
        Duration::from_nanos(if is_asked { now_ns.saturating_sub(self.unanswered_since_ns) } else { 0 })
    }

    fn unanswered(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.kept_ns) + self.outage(now_ns)
    }

    fn stalls(&self, threshold: Duration, now_ns: u64) -> StoreStalls {
        let lengths = self.kept.iter().map(|outage| outage.length()).chain([self.outage(now_ns)]);
        let stalls = lengths.filter(|&length| length > threshold).map(|length| length.as_secs_f64());
        stalls.fold(StoreStalls::default(), |all, seconds| StoreStalls {
            count: all.count + 1,
            longest_seconds: all.longest_seconds.max(seconds),
            total_seconds: all.total_seconds + seconds,
        })
    }
}

/// A stopwatch that stands still while the store doesn't answer, for a maximum in all, so that it goes on in the end.
#[derive(Clone, Copy, Debug)]
pub struct AvailableTime<'a> {
    availability: &'a Availability,
    max_left_out: Duration,
    began_ns: u64,
    unanswered_before: Duration,
}

impl<'a> AvailableTime<'a> {
    pub(super) fn begin(availability: &'a Availability, max_left_out: Duration) -> Self {
        let unanswered_before = availability.unanswered();
        Self { availability, max_left_out, began_ns: monotonic_ns(), unanswered_before }
    }

    /// How much has gone by.
    pub fn elapsed(&self) -> Duration {
        let passed = Duration::from_nanos(monotonic_ns() - self.began_ns);
        let unanswered = self.availability.unanswered().saturating_sub(self.unanswered_before);
        passed.saturating_sub(unanswered.min(self.max_left_out))
    }

    /// Waits until this much has gone by.
    pub async fn until(&self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            // In an outage, what is left may be next to nothing for long.
            tokio::time::sleep(left.max(MIN_PAUSE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_time_in_which_somebody_waits_is_an_outage() {
        let mut state = State::default();
        assert_eq!(state.outage(100 * SECOND), Duration::ZERO);
        state.ask(100 * SECOND);
        assert_eq!(state.outage(103 * SECOND), seconds(3));
        assert_eq!(state.answered(103 * SECOND), None, "nobody was warned of it");
        state.leave(103 * SECOND);
        // An hour in which nothing is asked.
        state.ask(3_703 * SECOND);
        assert_eq!(state.unanswered(3_703 * SECOND), seconds(3));
        assert_eq!(state.kept, [Outage { from_ns: 100 * SECOND, until_ns: 103 * SECOND }]);
    }

    #[test]
    fn any_answer_ends_the_outage_of_all_who_wait() {
        let mut state = State::default();
        state.ask(0);
        state.ask(5 * SECOND);
        state.answered(6 * SECOND);
        state.leave(6 * SECOND);
        assert_eq!(state.outage(8 * SECOND), seconds(2), "the other one still waits");
        assert_eq!(state.unanswered(8 * SECOND), seconds(8), "the one that is going on counts");
        state.answered(8 * SECOND + SECOND / 2);
        let stalls = state.stalls(seconds(4), 9 * SECOND);
        assert_eq!(stalls, StoreStalls { count: 1, longest_seconds: 6.0, total_seconds: 6.0 });
        assert_eq!(state.stalls(seconds(1), 9 * SECOND).count, 2);
    }

    #[test]
    fn short_waits_are_not_kept() {
        let mut state = State::default();
        for second in 0..1_000 {
            state.ask(second * SECOND);
            state.answered(second * SECOND + SECOND / 2);
            state.leave(second * SECOND + SECOND / 2);
        }
        assert!(state.kept.is_empty() && state.unanswered(2_000 * SECOND).is_zero());
    }

    #[test]
    fn whoever_gives_up_leaves_the_outage_behind() {
        let mut state = State::default();
        state.ask(0);
        state.leave(7 * SECOND);
        assert_eq!(state.unanswered(7 * SECOND), seconds(7));
        assert_eq!(state.outage(9 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_stall_is_ten_intervals_and_whatever_is_warned_of_is_one() {
        assert_eq!(StoreStalls::threshold(Duration::from_millis(10)), seconds(1));
        assert_eq!(StoreStalls::threshold(Duration::from_millis(300)), seconds(3));
        assert_eq!(StoreStalls::threshold(seconds(1)), WARN_AFTER);
        assert_eq!(StoreStalls::threshold(seconds(60)), WARN_AFTER);
    }

    #[test]
    fn time_without_answers_does_not_count_up_to_a_limit() {
        let availability = Availability::default();
        let clock = |max_left_out| AvailableTime {
            availability: &availability,
            max_left_out,
            began_ns: 0,
            unanswered_before: Duration::ZERO,
        };
        let passed = Duration::from_nanos(monotonic_ns());
        availability.state.lock().kept_ns = 20 * SECOND;
        let (all, some) = (clock(seconds(60)).elapsed(), clock(seconds(5)).elapsed());
        assert!((passed - seconds(20)..passed - seconds(19)).contains(&all), "{all:?} of {passed:?}");
        assert!((passed - seconds(5)..passed - seconds(4)).contains(&some), "{some:?} of {passed:?}");
    }
}
