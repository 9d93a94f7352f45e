//! What a fault file says: its rules, read and checked as a whole before anything starts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::super::refusal::Refusal;
use super::fields::{FaultsError, Fields};
use crate::toml_file::read_toml;

/// The rules of a fault file.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Where the draws of `probability` begin.
    pub(super) seed: u64,
    pub(super) rules: Vec<Rule>,
    written: Vec<BTreeMap<String, Value>>,
}

/// One `[[rule]]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) name: String,
    /// Which requests it is about, as the file has it.
    pub(super) matcher: String,
    /// Empty where any method will do.
    methods: Vec<&'static str>,
    key: Option<Pattern>,
    /// When it holds, counted from the server's start.
    after: Duration,
    until: Duration,
    pub(super) when: When,
    /// How often it fires, at most.
    pub(super) times: u64,
    pub(super) action: Action,
}

/// Which of the requests that a rule matches it fires on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum When {
    Always,
    /// Counted from 1.
    Nth(Vec<u64>),
    Every(u64),
    Probability(f64),
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Delay(Duration),
    Bandwidth { bytes_per_second: u64 },
    Status(Refusal),
    Reset,
    ApplyThenReset,
    ApplyThenStatus(Refusal),
    Truncate { bytes: u64 },
    SlowBody { bytes_per_second: u64 },
    Stall(Stall),
    IgnoreCondition,
    Hide { reads: u64 },
}

/// How long nothing happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stall {
    For(Duration),
    /// Counted from the server's start, as the rule's own end.
    Until(Duration),
    ForEver,
}

/// A text in which `*` stands for any characters, none too.
#[derive(Clone, Debug, PartialEq)]
struct Pattern(Vec<String>);

/// The methods a rule can name. `LIST` is a GET of a bucket, `GET` is one of an object.
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "LIST"];

/// Each action, the methods that it goes with, and those that are meant where none is given.
const ACTIONS: [(&str, &[&str]); 11] = [
    ("delay", &METHODS),
    ("bandwidth", &METHODS),
    ("status", &METHODS),
    ("reset", &METHODS),
    ("apply-then-reset", &METHODS),
    ("apply-then-status", &METHODS),
    ("truncate", &["GET", "LIST"]),
    ("slow-body", &["GET", "LIST"]),
    ("stall", &METHODS),
    ("ignore-condition", &["PUT", "POST", "DELETE"]),
    ("hide", &["GET", "HEAD"]),
];

/// The keys that say which requests a rule is about.
const MATCHER: [&str; 8] = ["method", "key", "after", "until", "nth", "every", "probability", "times"];

/// The keys that only some actions have.
const VALUES: [&str; 7] = ["delay_ms", "bytes_per_second", "status", "code", "bytes", "seconds", "reads"];

/// Longer than that, and every client would have given up.
const MAX_DELAY_MS: u64 = 600_000;

/// A year, or as good as for ever.
const MAX_SECONDS: f64 = 31_536_000.0;

const MAX_BYTES: u64 = 1 << 40;

impl Faults {
    /// Reads a fault file, as `docs/faults.md` describes it.
    ///
    /// # Errors
    /// What is wrong with it, on one line, by rule and key.
    pub fn parse(text: &str) -> Result<Self, FaultsError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default)]
            seed: Option<Value>,
            #[serde(default)]
            rule: Vec<BTreeMap<String, Value>>,
        }
        let file: File = read_toml(text).map_err(FaultsError::of_file)?;
        if file.rule.is_empty() {
            return Err(FaultsError::of_file("there is no [[rule]]"));
        }
        let seed = file.seed.map(|seed| ("seed".to_owned(), seed));
        let seed = Fields::new(seed.into_iter().collect()).whole("seed", 0..=u64::MAX)?;
        let written = file.rule.clone();
        let rules = file.rule.into_iter().zip(1..).map(|(rule, number)| Rule::read(rule, number));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(rule) = rules.iter().find(|rule| !names.insert(&rule.name)) {
            let name = rule.name.escape_debug();
            return Err(FaultsError::of_file(format!("two rules have the `name` `{name}`")));
        }
        Ok(Self { seed: seed.unwrap_or(1), rules, written })
    }
}

impl Faults {
    /// Where the draws of `probability` begin.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The rules as they were written, key by key.
    pub fn written(&self) -> &[BTreeMap<String, Value>] {
        &self.written
    }

    /// Whether these rules can be put in front of a store that is not this program's own.
    ///
    /// # Errors
    /// The rule that can't: a condition is signed, and a store refuses a request that lacks it.
    pub fn check_for_a_proxy(&self) -> Result<(), FaultsError> {
        match self.rules.iter().position(|rule| rule.action == Action::IgnoreCondition) {
            None => Ok(()),
            Some(index) => {
                let mut fields = Fields::new(BTreeMap::new());
                fields.call(format!("rule {} (`{}`)", index + 1, self.rules[index].name.escape_debug()));
                Err(fields.wrong(
                    "the action `ignore-condition` does not go with --proxy, for the condition is signed",
                ))
            }
        }
    }
}

impl Rule {
    fn read(values: BTreeMap<String, Value>, number: usize) -> Result<Self, FaultsError> {
        let matcher = matcher(&values);
        let mut fields = Fields::new(values);
        fields.call(format!("rule {number}"));
        let name = fields.text("name")?;
        if let Some(name) = &name {
            fields.call(format!("rule {number} (`{}`)", name.escape_debug()));
        }
        let Some(action) = fields.text("action")? else {
            return Err(fields.wrong(format!("there is no `action`; it is one of {}", names())));
        };
        let Some((_, possible)) = ACTIONS.iter().find(|(name, _)| *name == action) else {
            let action = action.escape_debug();
            return Err(fields.wrong(format!("there is no `action` `{action}`; it is one of {}", names())));
        };
        let methods = methods(&mut fields, &action, possible)?;
        let key = fields.text("key")?.map(|key| Pattern::new(&key));
        let after =
            fields.number("after", 0.0..=MAX_SECONDS)?.map_or(Duration::ZERO, Duration::from_secs_f64);
        let until = fields.number("until", 0.0..=MAX_SECONDS)?.map_or(Duration::MAX, Duration::from_secs_f64);
        if until <= after {
            return Err(fields.wrong("`until` must be later than `after`"));
        }
        let when = when(&mut fields, &action)?;
        let times = fields.whole("times", 1..=u64::MAX)?.unwrap_or(u64::MAX);
        let read = Action::read(&mut fields, &action, until)?;
        match fields.left() {
            Some(key) if VALUES.contains(&key) => {
                Err(fields.wrong(format!("`{key}` does not go with the action `{action}`")))
            }
            Some(key) => Err(fields.wrong(format!("there is no key `{}`", key.escape_debug()))),
            None => {
                let name = name.unwrap_or_else(|| format!("rule {number}"));
                Ok(Self { name, matcher, methods, key, after, until, when, times, action: read })
            }
        }
    }

    /// Whether a request is one of this rule's, `since_start` after the server's start.
    pub(super) fn matches(&self, method: &str, key: &str, since_start: Duration) -> bool {
        (self.methods.is_empty() || self.methods.contains(&method))
            && (self.after..self.until).contains(&since_start)
            && self.key.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

/// What a rule says of the requests that it is about, in one order whatever that of the file.
fn matcher(values: &BTreeMap<String, Value>) -> String {
    // A value of these keys is written alike in JSON and in TOML.
    let given = MATCHER.iter().filter_map(|key| values.get(*key).map(|value| format!("{key} = {value}")));
    match given.collect::<Vec<_>>() {
        given if given.is_empty() => "every request".to_owned(),
        given => given.join(", "),
    }
}

/// Every word a rule's value or action can be.
#[cfg(test)]
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    ACTIONS.map(|(name, _)| name).into_iter().chain(METHODS).chain(VALUES)
}

fn names() -> String {
    ACTIONS.map(|(name, _)| name).join(", ")
}

fn methods(
    fields: &mut Fields,
    action: &str,
    possible: &'static [&'static str],
) -> Result<Vec<&'static str>, FaultsError> {
    let given = fields.texts("method")?;
    if given.is_empty() {
        return Ok(if possible.len() == METHODS.len() { Vec::new() } else { possible.to_vec() });
    }
    let known = given.iter().map(|given| possible.iter().find(|method| *method == given).copied());
    known.collect::<Option<Vec<_>>>().ok_or_else(|| {
        fields.wrong(format!("`method` of the action `{action}` must be of {}", possible.join(", ")))
    })
}

fn when(fields: &mut Fields, action: &str) -> Result<When, FaultsError> {
    let given = ["nth", "every", "probability"].map(|key| fields.has(key));
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(fields.wrong("only one of `nth`, `every` and `probability` can be given"));
    }
    if action == "hide" && (given[0] || given[1]) {
        return Err(fields.wrong("`nth` and `every` do not go with the action `hide`, which counts `reads`"));
    }
    let nth = fields.wholes("nth")?;
    if !nth.is_empty() {
        return Ok(When::Nth(nth));
    }
    if let Some(every) = fields.whole("every", 1..=u64::MAX)? {
        return Ok(When::Every(every));
    }
    Ok(fields.number("probability", 0.0..=1.0)?.map_or(When::Always, When::Probability))
}

impl Action {
    fn read(fields: &mut Fields, name: &str, until: Duration) -> Result<Self, FaultsError> {
        let needed = |value: Option<u64>, key: &str, fields: &Fields| {
            value.ok_or_else(|| fields.wrong(format!("the action `{name}` needs `{key}`")))
        };
        let mut whole = |key: &str, most: u64, least: u64| {
            let value = fields.whole(key, least..=most)?;
            needed(value, key, fields)
        };
        Ok(match name {
            "delay" => Self::Delay(Duration::from_millis(whole("delay_ms", MAX_DELAY_MS, 1)?)),
            "bandwidth" => Self::Bandwidth { bytes_per_second: whole("bytes_per_second", MAX_BYTES, 1)? },
            "slow-body" => Self::SlowBody { bytes_per_second: whole("bytes_per_second", MAX_BYTES, 1)? },
            "truncate" => Self::Truncate { bytes: whole("bytes", MAX_BYTES, 0)? },
            "hide" => Self::Hide { reads: whole("reads", MAX_BYTES, 1)? },
            "status" => Self::Status(refusal(fields, name)?),
            "apply-then-status" => Self::ApplyThenStatus(refusal(fields, name)?),
            "reset" => Self::Reset,
            "apply-then-reset" => Self::ApplyThenReset,
            "ignore-condition" => Self::IgnoreCondition,
            // What is left of `ACTIONS`.
            _ => Self::Stall(match fields.number("seconds", 0.001..=MAX_SECONDS)? {
                Some(seconds) => Stall::For(Duration::from_secs_f64(seconds)),
                None if until < Duration::MAX => Stall::Until(until),
                None => Stall::ForEver,
            }),
        })
    }

    /// As it is written in a file.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Bandwidth { .. } => "bandwidth",
            Self::Status(_) => "status",
            Self::Reset => "reset",
            Self::ApplyThenReset => "apply-then-reset",
            Self::ApplyThenStatus(_) => "apply-then-status",
            Self::Truncate { .. } => "truncate",
            Self::SlowBody { .. } => "slow-body",
            Self::Stall(_) => "stall",
            Self::IgnoreCondition => "ignore-condition",
            Self::Hide { .. } => "hide",
        }
    }
}

/// What every answer that a rule gives says beside its code.
pub(super) const MESSAGE: &str = "A fault rule answers this.";

fn refusal(fields: &mut Fields, action: &str) -> Result<Refusal, FaultsError> {
    let Some(status) = fields.whole("status", 200..=599)? else {
        return Err(fields.wrong(format!("the action `{action}` needs `status`")));
    };
    let code = fields.text("code")?;
    let is_code = |code: &String| {
        code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if code.as_ref().is_some_and(|code| !is_code(code)) {
        return Err(fields.wrong("`code` must be at most 64 letters, digits, dots and dashes"));
    }
    let status = StatusCode::from_u16(status as u16).map_err(|error| fields.wrong(error.to_string()))?;
    let code = code.unwrap_or_else(|| usual_code(status).to_owned());
    Ok(Refusal { status, code, message: MESSAGE })
}

/// The code that S3 most often says with a status.
fn usual_code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "InvalidRequest",
        403 => "AccessDenied",
        404 => "NoSuchKey",
        409 => "ConditionalRequestConflict",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        500 => "InternalError",
        501 => "NotImplemented",
        503 => "SlowDown",
        _ => "FaultRule",
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    fn matches(&self, text: &str) -> bool {
        let (Some((first, rest)), Some(last)) = (self.0.split_first(), self.0.last()) else { return false };
        let Some(mut text) = text.strip_prefix(first.as_str()) else { return false };
        let Some((_, middle)) = rest.split_last() else { return text.is_empty() };
        // The earliest place of each piece leaves most room for the next.
        for piece in middle {
            let Some(at) = text.find(piece.as_str()) else { return false };
            text = &text[at + piece.len()..];
        }
        text.ends_with(last.as_str())
    }
}
