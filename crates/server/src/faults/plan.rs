//! Which rules fire on a request: the counts and draws that all connections share. Each rule that a request matches
//! counts it, whether or not any rule fires, and draws from a generator of its own, once a match: so the nth match of a
//! rule is the same request whatever the other rules do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::bodies::Bandwidth;
use super::rules::{Action, Faults, Rule, When, Whole};
use s3mq_clock::monotonic_ns;

/// How often a rule matched and fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCount {
    /// Its place in the file, counted from 1.
    pub position: usize,
    /// Its name; `rule 2` where the second has none.
    pub rule: String,
    /// Which requests it is about, as in the file.
    pub matcher: String,
    /// What it does, as in the file.
    pub action: &'static str,
    /// Requests that it matched.
    pub matched: u64,
    /// Requests that it had an effect on.
    pub fired: u64,
}

/// A request, as far as a rule looks at it.
pub(super) struct Asked {
    /// `LIST` for a GET of a bucket.
    pub(super) method: String,
    /// The object's key; the prefix of a listing; else empty.
    pub(super) key: String,
}

#[derive(Debug)]
pub(in super::super) struct Plan {
    rules: Vec<Rule>,
    start_ns: u64,
    states: Mutex<Vec<State>>,
}

#[derive(Debug)]
struct State {
    matched: u64,
    fired: u64,
    random: SmallRng,
    /// By key, how many reads were answered as if it were absent.
    hidden: HashMap<String, u64>,
    /// Of `bandwidth`, what all its requests share.
    line: Option<Arc<Bandwidth>>,
}

#[derive(Default)]
pub(super) struct Decision<'a> {
    pub(super) delay: Duration,
    pub(super) bandwidths: Vec<Arc<Bandwidth>>,
    /// The first rule that fired, of those that do not combine.
    pub(super) hit: Option<Hit<'a>>,
}

#[derive(Clone, Copy)]
pub(super) struct Hit<'a> {
    index: usize,
    nth: u64,
    pub(super) rule: &'a Rule,
}

impl Plan {
    pub(in super::super) fn new(faults: Faults) -> Self {
        let state = |(index, rule): (u64, &Rule)| State {
            matched: 0,
            fired: 0,
            random: SmallRng::seed_from_u64(faults.seed.wrapping_add(index << 32)),
            hidden: HashMap::new(),
            line: match rule.action {
                Action::Bandwidth { bytes_per_second: Whole(speed) } => Some(Arc::new(Bandwidth::new(speed))),
                _ => None,
            },
        };
        let states = (0..).zip(&faults.rules).map(state).collect();
        Self { start_ns: monotonic_ns(), states: Mutex::new(states), rules: faults.rules }
    }

    pub(super) fn since_start(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns))
    }

    /// Counts a request, and says what is to happen to it.
    pub(super) fn decide(&self, asked: &Asked) -> Decision<'_> {
        let since_start = self.since_start();
        let mut decision = Decision::default();
        let mut states = self.states.lock();
        for (index, (rule, state)) in self.rules.iter().zip(states.iter_mut()).enumerate() {
            if !rule.matches(&asked.method, &asked.key, since_start) {
                continue;
            }
            state.matched += 1;
            let is_due = state.is_due(&rule.when) && state.fired < rule.times;
            if !is_due || !state.still_hides(&rule.action, &asked.key) {
                continue;
            }
            let hit = Hit { index, nth: state.matched, rule };
            match &rule.action {
                Action::Delay { delay_ms: Whole(ms) } => decision.delay += Duration::from_millis(*ms),
                Action::Bandwidth { .. } => decision.bandwidths.extend(state.line.clone()),
                _ if decision.hit.is_some() => continue,
                _ => decision.hit = Some(hit),
            }
            state.fired += 1;
            if let Action::Hide { .. } = rule.action {
                *state.hidden.entry(asked.key.clone()).or_default() += 1;
            }
            // The others may find nothing to change.
            if !matches!(rule.action, Action::Truncate { .. } | Action::SlowBody { .. } | Action::Hide { .. })
            {
                self.log(hit, asked);
            }
        }
        decision
    }

    /// A rule had no effect on a request after all: there was nothing to hide, or nothing to cut.
    pub(super) fn withdraw(&self, hit: Hit<'_>, asked: &Asked) {
        let state = &mut self.states.lock()[hit.index];
        state.fired -= 1;
        if let Some(reads) = state.hidden.get_mut(&asked.key) {
            *reads -= 1;
            if *reads == 0 {
                state.hidden.remove(&asked.key);
            }
        }
    }

    pub(in super::super) fn counts(&self) -> Vec<FaultCount> {
        let states = self.states.lock();
        let count = |(position, (rule, state)): (usize, (&Rule, &State))| FaultCount {
            position,
            rule: rule.name.clone(),
            matcher: rule.matcher.clone(),
            action: rule.kind,
            matched: state.matched,
            fired: state.fired,
        };
        (1..).zip(self.rules.iter().zip(states.iter())).map(count).collect()
    }

    /// Logs that a rule had its effect.
    pub(super) fn log(&self, hit: Hit<'_>, asked: &Asked) {
        let (rule, action, nth) = (&hit.rule.name, hit.rule.kind, hit.nth);
        tracing::info!(rule = ?rule, action, nth, method = %asked.method, key = ?asked.key, "fault");
    }
}

impl State {
    /// Whether a rule fires on the match that was just counted.
    fn is_due(&mut self, when: &When) -> bool {
        match when {
            When::Always => true,
            When::Nth(nth) => nth.contains(&Whole(self.matched)),
            When::Every(every) => self.matched.is_multiple_of(every.0),
            When::Probability(probability) => self.random.random_bool(*probability),
        }
    }

    fn still_hides(&self, action: &Action, key: &str) -> bool {
        match action {
            Action::Hide { reads: Whole(reads) } => self.hidden.get(key).is_none_or(|hidden| hidden < reads),
            _ => true,
        }
    }
}
