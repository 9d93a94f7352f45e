//! The one direction in which the parts of the crate know each other, as ARCHITECTURE.md draws it.
//!
//! Reads the source rather than the compiler's view of it: a name that is used is written down as
//! `crate::part`, in an import or in a path.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each part of `src/`, and what it may know of the others. Knowing itself is free.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("units", &[]),
    ("stop", &[]),
    ("exit", &[]),
    ("machine", &["clock"]),
    ("measure", &[]),
    ("toml", &[]),
    // Pauses and time stamps; time is read nowhere else.
    ("server", &["clock", "machine", "toml"]),
    ("storage", &["clock"]),
    ("queue", &["clock", "storage"]),
    ("events", &["machine", "measure", "queue", "storage"]),
    // Roles reach the store through the queue's lake only.
    ("producer", &["clock", "events", "machine", "measure", "queue", "stop", "storage::Purpose", "units"]),
    ("consumer", &["clock", "events", "machine", "measure", "queue", "stop"]),
    // A door for the benches.
    ("hot", &["consumer", "producer", "queue"]),
    ("report", &["events", "machine", "measure", "storage::Purpose", "storage::Requests", "toml", "units"]),
    // It starts the roles as processes and knows them by what they say.
    ("bench", &["clock", "events", "exit", "measure", "queue", "report", "stop", "storage", "units"]),
    (
        "layers",
        &[
            "clock", "consumer", "events", "machine", "measure", "producer", "queue", "stop", "storage",
            "units",
        ],
    ),
    (
        "cli",
        &[
            "bench", "clock", "consumer", "events", "exit", "layers", "machine", "measure", "producer",
            "queue", "report", "server", "stop", "storage", "units",
        ],
    ),
    // A door for the fuzz targets.
    ("fuzz", &["cli", "queue"]),
];

#[test]
fn no_part_knows_more_of_the_others_than_it_may() {
    let mut wrong = Vec::new();
    for (part, file, line, used) in uses() {
        let may = MAY_KNOW.iter().find(|(name, _)| *name == part).map_or(&[][..], |(_, may)| may);
        let allowed = used.split("::").next() == Some(&*part)
            || may.iter().any(|name| used == *name || used.starts_with(&format!("{name}::")));
        if !allowed {
            wrong.push(format!("{}:{line}: {part} must not know {used}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_part_is_listed_and_every_arrow_is_needed() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (part, _, _, name) in uses() {
        used.entry(part).or_default().insert(name);
    }
    let parts: BTreeSet<_> = sources().into_iter().map(|(part, _)| part).collect();
    let listed: BTreeSet<_> = MAY_KNOW.iter().map(|(part, _)| (*part).to_owned()).collect();
    assert_eq!(parts, listed);
    for (part, may) in MAY_KNOW {
        for name in *may {
            let needed = used.get(*part).is_some_and(|used| {
                used.iter().any(|used| used == name || used.starts_with(&format!("{name}::")))
            });
            assert!(needed, "{part} does not need {name} any more: take it off the list");
        }
    }
}

/// The parts only go down: without a cycle there is an order in which each knows earlier ones only.
#[test]
fn the_list_itself_has_no_arrow_back() {
    let mut known: Vec<&str> = Vec::new();
    for (part, may) in MAY_KNOW {
        for name in *may {
            let name = name.split("::").next().unwrap();
            assert!(known.contains(&name), "{part} may know {name}, which is listed after it");
        }
        known.push(part);
    }
}

/// Every `crate::…` outside comments and tests: part, file, line, and what is used (`storage::Purpose`).
/// Tests may know anything: they need a server to run against.
fn uses() -> Vec<(String, PathBuf, usize, String)> {
    let mut found = Vec::new();
    for (part, file) in sources() {
        let text = fs::read_to_string(&file).unwrap();
        let text = without_tests(&text);
        // A line comment becomes blanks; the text keeps its lines, so that one import may span several.
        let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let code = code.join("\n");
        for (at, _) in code.match_indices("crate::") {
            // `pub(in crate::x)` counts too; `mycrate::` would not be ours.
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let line = code[..at].lines().count().max(1);
            for name in names(&code[at + "crate::".len()..]) {
                found.push((part.clone(), file.clone(), line, name));
            }
        }
    }
    assert!(
        found.len() > 50,
        "only {} uses found: does this test still read the source rightly?",
        found.len()
    );
    found
}

/// A file without its module of tests, whose brace is the next that closes at the margin. Its lines stay as
/// blanks.
fn without_tests(text: &str) -> String {
    let Some((before, rest)) = text.split_once("#[cfg(test)]\nmod tests {") else {
        return text.to_owned();
    };
    let (tests, after) = rest.split_once("\n}").unwrap_or((rest, ""));
    let blanks = "\n".repeat(1 + tests.lines().count());
    format!("{before}{blanks}{after}")
}

/// What a path after `crate::` names: two segments deep, a group being all that is in it.
fn names(path: &str) -> Vec<String> {
    match path.strip_prefix('{') {
        Some(group) => items(group).flat_map(names).collect(),
        None => {
            let part: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            match path[part.len()..].strip_prefix("::") {
                Some(rest) => match rest.strip_prefix('{') {
                    Some(group) => items(group).map(|item| format!("{part}::{}", first_word(item))).collect(),
                    None => vec![format!("{part}::{}", first_word(rest))],
                },
                None => vec![part],
            }
        }
    }
}

/// The items of a group whose opening brace has been read, up to its closing one.
fn items(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = group.find(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    let mut depth = 0;
    group[..end.unwrap_or(group.len())]
        .split(move |c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '*').collect()
}

/// Every source file of a part, with the part's name.
fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut left) = (Vec::new(), vec![root.clone()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let inside = path.strip_prefix(&root).unwrap();
            let part = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            match (path.is_dir(), part.as_str()) {
                (true, _) => left.push(path),
                // They name the parts, or start one.
                (false, "lib" | "main") => {}
                (false, _) if inside.iter().any(|name| name == "tests" || name == "tests.rs") => {}
                (false, _) => files.push((part, path)),
            }
        }
    }
    files
}

#[test]
fn names_are_read_out_of_every_kind_of_path() {
    assert_eq!(names("clock;"), ["clock"]);
    assert_eq!(names("storage::Config::resolve(x)"), ["storage::Config"]);
    assert_eq!(names("queue::{Lake, Start as S};"), ["queue::Lake", "queue::Start"]);
    assert_eq!(names("bench::{self, Config};"), ["bench::self", "bench::Config"]);
    assert_eq!(
        names("{clock, queue::{self, x::Y}, stop::Stop};"),
        ["clock", "queue::self", "queue::x", "stop::Stop"]
    );
}
