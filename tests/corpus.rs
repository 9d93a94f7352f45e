//! The corpus of the fuzz targets, fed to their checks without fuzzing: what was once found stays found.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[allow(unreachable_pub)]
#[path = "../fuzz/src/lib.rs"]
mod checks;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_check_holds_on_its_corpus() {
    for (target, check) in checks::TARGETS {
        let files = files(&fuzz().join("corpus").join(target));
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            // Where the check fails, this says on which file.
            println!("{}", file.display());
            check(&fs::read(file).unwrap());
        }
    }
}

#[test]
fn every_target_has_its_program_and_its_corpus() {
    let names = |directory: &str| -> BTreeSet<String> {
        let files = files(&fuzz().join(directory));
        files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let targets: BTreeSet<_> = checks::TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("corpus"), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let programs = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let programs: BTreeSet<_> = programs.map(|line| line.trim_end_matches(".rs\"").to_owned()).collect();
    assert_eq!(programs, targets);
}

#[test]
fn fuzzing_runs_with_the_versions_that_are_tested() {
    let versions = |lock: PathBuf| -> BTreeSet<String> {
        let text = fs::read_to_string(lock).unwrap();
        let packages = text.split("[[package]]\n").skip(1);
        packages.map(|package| package.lines().take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let tested = versions(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock"));
    let fuzzed = versions(fuzz().join("Cargo.lock"));
    let others: Vec<_> = fuzzed
        .difference(&tested)
        .filter(|package| {
            !["s3mq-fuzz", "libfuzzer-sys", "arbitrary"]
                .iter()
                .any(|name| package.contains(&format!("\"{name}\"")))
        })
        .collect();
    assert!(
        others.is_empty(),
        "{others:?}: after a change of Cargo.lock, `cp Cargo.lock fuzz/ && cargo metadata --manifest-path \
         fuzz/Cargo.toml >/dev/null`"
    );
}
