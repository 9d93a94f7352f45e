//! One table of a fault file, read key by key, so that what is wrong is named by rule and key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::Value;

/// What is wrong with a fault file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", .rule.as_ref().map(|rule| format!("{rule}: ")).unwrap_or_default())]
pub struct FaultsError {
    /// In which rule: its number, and its name where it has one.
    rule: Option<String>,
    /// What is wrong there, naming the key.
    problem: String,
}

impl FaultsError {
    /// Something that is wrong with the file as such.
    pub(super) fn of_file(problem: impl Into<String>) -> Self {
        Self { rule: None, problem: problem.into() }
    }
}

/// The keys of a table that have not been asked for yet.
pub(super) struct Fields {
    /// What the table is called in an error.
    rule: Option<String>,
    values: BTreeMap<String, Value>,
}

impl Fields {
    pub(super) fn new(values: BTreeMap<String, Value>) -> Self {
        Self { rule: None, values }
    }

    /// From now on errors say that it is this rule.
    pub(super) fn call(&mut self, rule: String) {
        self.rule = Some(rule);
    }

    pub(super) fn wrong(&self, problem: impl Into<String>) -> FaultsError {
        FaultsError { rule: self.rule.clone(), problem: problem.into() }
    }

    /// Whether a key is there and has not been asked for.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// A key that has not been asked for.
    pub(super) fn left(&self) -> Option<&str> {
        self.values.keys().next().map(String::as_str)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, FaultsError> {
        match self.values.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(self.wrong(format!("`{key}` must be a text that is not empty"))),
        }
    }

    /// One text or a list of them; empty where the key is absent.
    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>, FaultsError> {
        self.list(key, "a text or a list of texts", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn whole(
        &mut self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, FaultsError> {
        let what = format!("a whole number from {} to {}", range.start(), range.end());
        let value = self.values.remove(key);
        value
            .map(|value| value.as_u64().filter(|number| range.contains(number)))
            .map(|number| number.ok_or_else(|| self.wrong(format!("`{key}` must be {what}"))))
            .transpose()
    }

    /// One whole number from 1 or a list of them; empty where the key is absent.
    pub(super) fn wholes(&mut self, key: &str) -> Result<Vec<u64>, FaultsError> {
        self.list(key, "a whole number from 1, or a list of them", |value| {
            value.as_u64().filter(|number| *number > 0)
        })
    }

    pub(super) fn number(
        &mut self,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, FaultsError> {
        let what = format!("a number from {} to {}", range.start(), range.end());
        let value = self.values.remove(key);
        value
            .map(|value| value.as_f64().filter(|number| range.contains(number)))
            .map(|number| number.ok_or_else(|| self.wrong(format!("`{key}` must be {what}"))))
            .transpose()
    }

    fn list<T>(
        &mut self,
        key: &str,
        what: &str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, FaultsError> {
        let items = match self.values.remove(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values.iter().map(item).collect(),
            Some(value) => item(&value).map(|item| vec![item]),
        };
        let items = items.filter(|items: &Vec<T>| !items.is_empty());
        items.ok_or_else(|| self.wrong(format!("`{key}` must be {what}")))
    }
}
