//! A latency model: every request takes the time that it would take on a store whose figures are published
//! (`docs/store-models.md`), in which is what this server itself needs.
//! A write takes effect after its body and half of its time; a read looks after half of its time and sends its body
//! after all of it. A GET draws one deviate for both of its distributions, and looks after half of the shorter time.

mod times;

use std::collections::BTreeMap;
use std::future::Future;

use http::header::{CONTENT_LENGTH, IF_MATCH, IF_NONE_MATCH};
use http::{Method, Request, StatusCode};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use s3s::{Body, HttpError, HttpResponse};
use serde::Deserialize;

use super::faults::length;
use crate::toml_file::read_toml;
use s3mq_clock::{Timer, monotonic_ns};
use times::{Times, draw};

/// What a request is to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// GET of an object that is there.
    Get,
    /// GET of one that isn't.
    GetAbsent,
    Head,
    /// PUT without a condition; also what a multipart upload consists of.
    Put,
    /// PUT with `If-None-Match` or `If-Match`.
    PutConditional,
    /// A listing, and any other GET of a bucket.
    List,
    /// DELETE of one object or of many.
    Delete,
}

impl Operation {
    /// `Get` as long as it isn't known to find nothing.
    fn of<T>(request: &Request<T>) -> Self {
        let is_conditional =
            || [IF_MATCH, IF_NONE_MATCH].iter().any(|header| request.headers().contains_key(header));
        let path = request.uri().path().trim_start_matches('/');
        let has_key = path.split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let query = request.uri().query().unwrap_or_default();
        match *request.method() {
            Method::GET if has_key => Self::Get,
            Method::GET => Self::List,
            Method::HEAD => Self::Head,
            Method::PUT if is_conditional() => Self::PutConditional,
            Method::DELETE => Self::Delete,
            Method::POST if query == "delete" || query.starts_with("delete=") => Self::Delete,
            _ => Self::Put,
        }
    }
}

/// A latency model. Checked as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    name: String,
    seed: u64,
    written: BTreeMap<String, BTreeMap<String, f64>>,
    operations: Operations,
}

/// A model's file, with its operations as they are written or as they were checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    name: String,
    seed: Option<u64>,
    operations: T,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Operations {
    get: Times,
    get_absent: Times,
    head: Times,
    put: Times,
    put_conditional: Times,
    list: Times,
    delete: Times,
}

/// What is wrong with a model's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(String);

/// The models that this program has, by name.
const BUILT_IN: [(&str, &str); 3] = [
    ("s3-standard", include_str!("s3-standard.toml")),
    ("s3-express", include_str!("s3-express.toml")),
    ("minio-lan", include_str!("minio-lan.toml")),
];

impl Model {
    /// The names of the models that this program has.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// The one of this name; `None` where there is none.
    pub fn built_in(name: &str) -> Result<Option<Self>, ModelError> {
        let known = BUILT_IN.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, text)| Self::read(text)).transpose()
    }

    /// Reads somebody's own file, as `docs/store-models.md` describes it.
    ///
    /// # Errors
    /// What is wrong with it, on one line, by its key.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let model = Self::read(text)?;
        if Self::built_in_names().any(|name| name == model.name) {
            return Err(ModelError(format!(
                "`name` must not be that of a built-in model, `{}`: results would not tell them apart",
                model.name
            )));
        }
        Ok(model)
    }

    fn read(text: &str) -> Result<Self, ModelError> {
        let File { name, seed, operations } = read_toml(text).map_err(ModelError)?;
        let written = read_toml::<File<_>>(text).map_err(ModelError)?.operations;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(ModelError(
                "`name` must be up to 64 letters, digits, hyphens, underscores and dots".to_owned(),
            ));
        }
        Ok(Self { name, seed: seed.unwrap_or(1), written, operations })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its draws begin.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its table as its file has it: by operation, percentiles in milliseconds and bytes a second.
    pub fn operations(&self) -> &BTreeMap<String, BTreeMap<String, f64>> {
        &self.written
    }

    fn times(&self, operation: Operation) -> &Times {
        let Operations { get, get_absent, head, put, put_conditional, list, delete } = &self.operations;
        match operation {
            Operation::Get => get,
            Operation::GetAbsent => get_absent,
            Operation::Head => head,
            Operation::Put => put,
            Operation::PutConditional => put_conditional,
            Operation::List => list,
            Operation::Delete => delete,
        }
    }
}

/// A model at work.
#[derive(Debug)]
pub(super) struct Pacer {
    model: Model,
    random: Mutex<SmallRng>,
}

impl Pacer {
    pub(super) fn new(model: Model) -> Self {
        let random = Mutex::new(SmallRng::seed_from_u64(model.seed));
        Self { model, random }
    }

    pub(super) fn name(&self) -> &str {
        &self.model.name
    }

    /// Does the work of a request in the time that the model has for it.
    pub(super) async fn around<F>(
        &self,
        request: Request<Body>,
        work: impl FnOnce(Request<Body>) -> F,
    ) -> Result<HttpResponse, HttpError>
    where
        F: Future<Output = Result<HttpResponse, HttpError>>,
    {
        let (mut timer, begun_ns) = (Timer::new(), monotonic_ns());
        let operation = Operation::of(&request);
        let deviate = draw(&mut *self.random.lock());
        let times = self.model.times(operation);
        let time_ns = times.at_ns(deviate);
        if matches!(operation, Operation::Put | Operation::PutConditional | Operation::Delete) {
            let arrived_ns = begun_ns + times.of_body_ns(sent_bytes(&request));
            timer.until_ns(arrived_ns + time_ns / 2).await;
            let answer = work(request).await?;
            timer.until_ns(arrived_ns + time_ns).await;
            return Ok(answer);
        }
        let absent = self.model.times(Operation::GetAbsent);
        let absent_ns = if operation == Operation::Get { absent.at_ns(deviate) } else { time_ns };
        timer.until_ns(begun_ns + time_ns.min(absent_ns) / 2).await;
        let answer = work(request).await?;
        let is_absent = operation == Operation::Get && answer.status() == StatusCode::NOT_FOUND;
        let (times, time_ns) = if is_absent { (absent, absent_ns) } else { (times, time_ns) };
        // A HEAD says how long a body would be, and sends none.
        let received = if operation == Operation::Head { 0 } else { length(&answer).unwrap_or(0) };
        timer.until_ns(begun_ns + time_ns + times.of_body_ns(received)).await;
        Ok(answer)
    }
}

fn sent_bytes(request: &Request<Body>) -> u64 {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    said.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sorted_by_method_key_and_condition() {
        for (method, uri, condition, operation) in [
            ("GET", "/bucket/q/_delta_log/0.json", None, Operation::Get),
            ("GET", "/bucket/key", Some("if-none-match"), Operation::Get),
            ("GET", "/bucket?list-type=2&prefix=q%2F", None, Operation::List),
            ("GET", "/bucket/?location", None, Operation::List),
            ("GET", "/", None, Operation::List),
            ("HEAD", "/bucket/key", None, Operation::Head),
            ("HEAD", "/bucket", None, Operation::Head),
            ("PUT", "/bucket/key", None, Operation::Put),
            ("PUT", "/bucket/key", Some("if-none-match"), Operation::PutConditional),
            ("PUT", "/bucket/key", Some("if-match"), Operation::PutConditional),
            ("PUT", "/bucket/key?partNumber=1&uploadId=x", None, Operation::Put),
            ("POST", "/bucket/key?uploads", None, Operation::Put),
            ("POST", "/bucket?delete", None, Operation::Delete),
            ("POST", "/bucket?delete=", None, Operation::Delete),
            ("DELETE", "/bucket/key", Some("if-match"), Operation::Delete),
        ] {
            let request = Request::builder().method(method).uri(uri);
            let request = condition.into_iter().fold(request, |request, name| request.header(name, "*"));
            assert_eq!(Operation::of(&request.body(()).unwrap()), operation, "{method} {uri} {condition:?}");
        }
    }

    /// The built-in models are in the documentation, each figure of each in the section of its name.
    #[test]
    fn every_built_in_model_is_sound_and_every_figure_of_it_is_in_the_documentation() {
        let documentation = include_str!("../../../../docs/store-models.md");
        for name in Model::built_in_names() {
            let model = Model::built_in(name).unwrap().unwrap();
            assert_eq!((model.name(), model.seed()), (name, 1));
            let (_, section) = documentation.split_once(&format!("\n## {name}\n")).expect(name);
            let section = section.split("\n## ").next().unwrap();
            for (operation, table) in model.operations() {
                let row = section.lines().find(|line| line.starts_with(&format!("| `{operation}` |")));
                let row = row.unwrap_or_else(|| panic!("{name} has no row for {operation}"));
                let figures: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
                let said = format!("{name}, {operation}: {table:?} and `{row}`");
                assert_eq!(figures.len(), table.len(), "{said}");
                assert!(table.values().all(|value| figures.contains(value)), "{said}");
            }
        }
        assert_eq!(Model::built_in("s3"), Ok(None));
    }

    const TIMES: &str = "p50_ms = 1\np99_ms = 2.5\n";

    const OPERATIONS: [&str; 7] = ["get", "get-absent", "head", "put", "put-conditional", "list", "delete"];

    fn file(head: &str, other: impl Fn(&str) -> String) -> String {
        let tables = OPERATIONS.map(|name| format!("[operations.{name}]\n{}\n", other(name)));
        format!("{head}\n{}", tables.concat())
    }

    #[test]
    fn a_file_gives_what_it_says() {
        let model = Model::parse(&file("name = 'mine'\nseed = 7", |_| TIMES.to_owned())).unwrap();
        assert_eq!((model.name(), model.seed()), ("mine", 7));
        assert_eq!(model.operations().len(), OPERATIONS.len());
        assert_eq!(model.operations()["list"], [("p50_ms".into(), 1.0), ("p99_ms".into(), 2.5)].into());
        assert_eq!(Model::parse(&file("name = 'mine'", |_| TIMES.to_owned())).unwrap().seed(), 1);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_by_key() {
        let in_list = |times: &str| {
            file("name = 'mine'", |name| if name == "list" { times.to_owned() } else { TIMES.to_owned() })
        };
        for (text, said) in [
            (String::new(), &["`name`"][..]),
            ("name = 'mine'".to_owned(), &["`operations`"]),
            ("not TOML".to_owned(), &["line 1"]),
            (file("name = ''", |_| TIMES.to_owned()), &["`name`"]),
            (file("name = \"a\\nb\"", |_| TIMES.to_owned()), &["`name`"]),
            (file("name = 's3-express'", |_| TIMES.to_owned()), &["`name`", "built-in"]),
            (file("name = 'mine'\nseed = -1", |_| TIMES.to_owned()), &["seed"]),
            (file("name = 'mine'\nsede = 1", |_| TIMES.to_owned()), &["`sede`"]),
            (in_list("p50_ms = 1\np99_ms = 2\np98_ms = 2"), &["operations.list", "`p98_ms`", "p99_ms"]),
            (in_list("p50_ms = 1\n\"p99\\nms\" = 2"), &["operations.list", r"`p99\nms`"]),
            (in_list("p50_ms = 1\np99_ms = 'two'"), &["operations.list.p99_ms"]),
            (in_list("p50_ms = 1\np99_ms = nan"), &["operations.list", "`p99_ms`"]),
            (in_list("p50_ms = 0\np99_ms = 1"), &["operations.list", "`p50_ms`"]),
            (in_list("p50_ms = 1\np99_ms = 60001"), &["operations.list", "`p99_ms`", "60000"]),
            (in_list("p50_ms = 3\np99_ms = 2"), &["operations.list", "`p99_ms`", "`p50_ms`"]),
            (in_list("p50_ms = 3"), &["operations.list", "another"]),
            (in_list("p90_ms = 3\np99_ms = 4"), &["operations.list", "`p50_ms`"]),
            (in_list(&format!("{TIMES}bytes_per_second = 0")), &["operations.list", "`bytes_per_second`"]),
            (file("name = 'mine'", |_| TIMES.to_owned()).replace("list", "lists"), &["`lists`", "`list`"]),
            (
                file("name = 'mine'", |_| TIMES.to_owned())
                    .replace("operations.list", r#"operations."li\nst""#),
                &["`li st`", "operations"],
            ),
            (
                file("name = 'mine'", |_| TIMES.to_owned())
                    .replace("[operations.head]", "[other]\n[operations.head]"),
                &["`other`"],
            ),
            (
                format!("name = 'mine'\n[operations.get]\n{TIMES}"),
                &["missing", "`get-absent`", "`operations`"],
            ),
        ] {
            let error = Model::parse(&text).expect_err(&text).to_string();
            assert!(said.iter().all(|said| error.contains(said)), "{error:?} lacks one of {said:?}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_seed_draws_the_same_times_again_and_another_draws_others() {
        let draws = |seed: u64| {
            let model = Model::parse(&file(&format!("name = 'mine'\nseed = {seed}"), |_| TIMES.to_owned()));
            let pacer = Pacer::new(model.unwrap());
            (0..50)
                .map(|_| pacer.model.times(Operation::Put).at_ns(draw(&mut *pacer.random.lock())))
                .collect::<Vec<_>>()
        };
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
    }
}
