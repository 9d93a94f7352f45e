//! What a fault file says: its rules, read and checked as a whole before anything starts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::super::refusal::Refusal;
use crate::toml_file::{one_line, read_toml};

/// What is wrong with a fault file, naming the rule and the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FaultsError(String);

/// The rules of a fault file.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    pub(super) seed: u64,
    pub(super) rules: Vec<Rule>,
    written: Vec<serde_json::Value>,
}

/// One `[[rule]]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Which requests it is about, as the file has it.
    pub(super) matcher: String,
    /// `None` where any method will do.
    methods: Option<Vec<String>>,
    key: Option<Pattern>,
    /// When it holds, counted from the server's start.
    after: Duration,
    pub(super) until: Duration,
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
    Nth(Vec<Count>),
    Every(Count),
    Probability(f64),
}

/// What happens to a request. The names and fields are those of the file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Action {
    Delay {
        delay_ms: Whole<1, MAX_DELAY_MS>,
    },
    Bandwidth {
        bytes_per_second: Whole<1, MAX_BYTES>,
    },
    #[serde(deserialize_with = "refusal")]
    Status(Refusal),
    Reset {},
    ApplyThenReset {},
    #[serde(deserialize_with = "refusal")]
    ApplyThenStatus(Refusal),
    Truncate {
        bytes: Whole<0, MAX_BYTES>,
    },
    SlowBody {
        bytes_per_second: Whole<1, MAX_BYTES>,
    },
    Stall {
        seconds: Option<f64>,
    },
    IgnoreCondition {},
    Hide {
        reads: Whole<1, MAX_BYTES>,
    },
}

/// A whole number within limits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct Whole<const MIN: u64, const MAX: u64>(pub(super) u64);

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Whole<MIN, MAX> {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let is_within = (MIN..=MAX).contains(&number);
        is_within.then_some(Self(number)).ok_or_else(|| format!("must be a whole number from {MIN} to {MAX}"))
    }
}

type Count = Whole<1, { u64::MAX }>;

/// A text in which `*` stands for any characters, none too.
#[derive(Clone, Debug, PartialEq)]
struct Pattern(Vec<String>);

/// The methods a rule can name. `LIST` is a GET of a bucket, `GET` is one of an object.
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "LIST"];

/// Each action and the methods that it goes with.
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

const MATCHER: [&str; 8] = ["method", "key", "after", "until", "nth", "every", "probability", "times"];

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
            seed: Option<u64>,
            #[serde(default)]
            rule: Vec<Table>,
        }
        let File { seed, rule: tables } = read_toml(text).map_err(FaultsError)?;
        if tables.is_empty() {
            return Err(FaultsError("there is no [[rule]]".to_owned()));
        }
        let written = tables.iter().map(json).collect();
        let rules = (1..).zip(tables).map(|(number, rule)| Rule::read(number, rule));
        let rules = rules.collect::<Result<Vec<_>, _>>().map_err(FaultsError)?;
        let mut names = BTreeSet::new();
        if let Some(rule) = rules.iter().find(|rule| !names.insert(&rule.name)) {
            let name = rule.name.escape_debug();
            return Err(FaultsError(format!("two rules have the `name` `{name}`")));
        }
        Ok(Self { seed: seed.unwrap_or(1), rules, written })
    }

    /// Where the draws of `probability` begin.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The rules as they were written, key by key.
    pub fn written(&self) -> &[serde_json::Value] {
        &self.written
    }

    /// Whether these rules can be put in front of a store that is not this program's own.
    ///
    /// # Errors
    /// The rule that can't: a condition is signed, and a store refuses a request that lacks it.
    pub fn check_for_a_proxy(&self) -> Result<(), FaultsError> {
        let ignores = self.rules.iter().position(|rule| rule.action == Action::IgnoreCondition {});
        let Some(index) = ignores else { return Ok(()) };
        Err(FaultsError(format!(
            "rule {} (`{}`): the action `ignore-condition` does not go with --proxy, for the condition is signed",
            index + 1,
            self.rules[index].name.escape_debug()
        )))
    }
}

#[derive(Deserialize)]
struct Matcher {
    method: Option<Vec<String>>,
    key: Option<String>,
    after: Option<f64>,
    until: Option<f64>,
    nth: Option<Vec<Count>>,
    every: Option<Count>,
    probability: Option<f64>,
    times: Option<Count>,
}

impl Rule {
    fn read(number: usize, mut table: Table) -> Result<Self, String> {
        let place = format!("rule {number}");
        let (name, place) = match table.remove("name") {
            None => (place.clone(), place),
            Some(Value::String(name)) if !name.is_empty() => {
                let place = format!("{place} (`{}`)", name.escape_debug());
                (name, place)
            }
            Some(_) => return Err(format!("{place}: `name` must be a text that is not empty")),
        };
        Self::checked(name, table).map_err(|problem| format!("{place}: {problem}"))
    }

    fn checked(name: String, mut table: Table) -> Result<Self, String> {
        let written = written_matcher(&table);
        let names = || ACTIONS.map(|(name, _)| name).join(", ");
        let (kind, possible) = match table.remove("action") {
            None => return Err(format!("there is no `action`; it is one of {}", names())),
            Some(Value::String(action)) => {
                *ACTIONS.iter().find(|(name, _)| *name == action).ok_or_else(|| {
                    format!("there is no `action` `{}`; it is one of {}", action.escape_debug(), names())
                })?
            }
            Some(_) => return Err("`action` must be a text".to_owned()),
        };
        for key in ["method", "nth"] {
            if let Some(single) = table.get_mut(key).filter(|value| !value.is_array()) {
                *single = Value::Array(vec![single.clone()]);
            }
        }
        let (matcher, values) = table.into_iter().partition(|(key, _)| MATCHER.contains(&key.as_str()));
        let action = Table::from_iter([(kind.to_owned(), Value::Table(values))]).try_into();
        let action = action.map_err(|error| format!("of the action `{kind}`: {}", one_line(&error)))?;
        let Matcher { method, key, after, until, nth, every, probability, times } =
            Table::try_into(matcher).map_err(|error| one_line(&error))?;

        let is_any = method.is_none() && possible.len() == METHODS.len();
        let methods = method.unwrap_or_else(|| possible.iter().copied().map(str::to_owned).collect());
        if methods.is_empty() || methods.iter().any(|method| !possible.contains(&method.as_str())) {
            let possible = possible.join(", ");
            return Err(format!("`method` of the action `{kind}` must be of {possible}"));
        }
        if key.as_ref().is_some_and(String::is_empty) || nth.as_ref().is_some_and(Vec::is_empty) {
            return Err("`key` and `nth` must not be empty".to_owned());
        }
        if let Action::Stall { seconds } = action {
            check("seconds", seconds, 0.001..=MAX_SECONDS)?;
        }
        let seconds =
            |key, value| check(key, value, 0.0..=MAX_SECONDS).map(|s| s.map(Duration::from_secs_f64));
        let after = seconds("after", after)?.unwrap_or(Duration::ZERO);
        let until = seconds("until", until)?.unwrap_or(Duration::MAX);
        if until <= after {
            return Err("`until` must be later than `after`".to_owned());
        }
        let when = match (nth, every, check("probability", probability, 0.0..=1.0)?) {
            (None, None, None) => When::Always,
            (None, None, Some(probability)) => When::Probability(probability),
            (Some(_), None, None) | (None, Some(_), None) if kind == "hide" => {
                return Err(
                    "`nth` and `every` do not go with the action `hide`, which counts `reads`".to_owned()
                );
            }
            (Some(nth), None, None) => When::Nth(nth),
            (None, Some(every), None) => When::Every(every),
            _ => return Err("only one of `nth`, `every` and `probability` can be given".to_owned()),
        };
        let (key, times) = (key.map(|key| Pattern::new(&key)), times.map_or(u64::MAX, |times| times.0));
        let methods = (!is_any).then_some(methods);
        Ok(Self { name, kind, matcher: written, methods, key, after, until, when, times, action })
    }

    /// Whether a request is one of this rule's, `since_start` after the server's start.
    pub(super) fn matches(&self, method: &str, key: &str, since_start: Duration) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|name| name == method))
            && (self.after..self.until).contains(&since_start)
            && self.key.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

/// A number that was given, if it is within a range.
fn check(key: &str, value: Option<f64>, range: RangeInclusive<f64>) -> Result<Option<f64>, String> {
    match value {
        Some(number) if !range.contains(&number) => {
            Err(format!("`{key}` must be a number from {} to {}", range.start(), range.end()))
        }
        value => Ok(value),
    }
}

fn json(value: impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// What a rule says of the requests that it is about, in one order whatever that of the file.
fn written_matcher(table: &Table) -> String {
    // A value of these keys is written alike in JSON and in TOML.
    let given = MATCHER.iter().filter_map(|key| Some(format!("{key} = {}", json(table.get(*key)?))));
    let given: Vec<_> = given.collect();
    if given.is_empty() { "every request".to_owned() } else { given.join(", ") }
}

/// Every word a rule's value or action can be.
#[cfg(test)]
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let values = ["delay_ms", "bytes_per_second", "status", "code", "bytes", "seconds", "reads"];
    ACTIONS.map(|(name, _)| name).into_iter().chain(METHODS).chain(values)
}

/// What every answer that a rule gives says beside its code.
pub(super) const MESSAGE: &str = "A fault rule answers this.";

/// Reads `status` and `code` of a rule.
fn refusal<'de, D: Deserializer<'de>>(values: D) -> Result<Refusal, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Values {
        status: Whole<200, 599>,
        code: Option<String>,
    }
    let Values { status: Whole(status), code } = Values::deserialize(values)?;
    let status = StatusCode::from_u16(status as u16).map_err(D::Error::custom)?;
    let is_code = |code: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=64).contains(&code.len()) && code.bytes().all(is_plain)
    };
    if code.as_deref().is_some_and(|code| !is_code(code)) {
        return Err(D::Error::custom("`code` must be 1 to 64 letters, digits, dots and dashes"));
    }
    Ok(Refusal { status, code: code.unwrap_or_else(|| usual_code(status).to_owned()), message: MESSAGE })
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
