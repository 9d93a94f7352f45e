//! What the program says of itself, `check`, and `serve`.

use rustix::process::Signal;

use crate::harness::s3mq;
use crate::store::{Store, VARIABLES};

const COMMANDS: [&str; 6] = ["bench", "producer", "consumer", "serve", "check", "preload"];

#[test]
fn the_version_names_its_commit() {
    let finished = s3mq("--version").run();
    finished.exits(0);
    let commit = finished
        .stdout
        .trim()
        .strip_prefix("s3mq ")
        .and_then(|text| text.split_once(" (")?.1.strip_suffix(')'));
    let known =
        commit.is_some_and(|commit| commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit()));
    finished.check(known || commit == Some("unknown commit"), "no commit is named");
}

#[test]
fn without_arguments_the_help_is_printed() {
    let finished = s3mq("").run();
    finished.exits(2);
    for command in COMMANDS {
        finished.check(
            finished.stderr.contains(&format!("\n  {command} ")),
            format_args!("{command} is missing"),
        );
    }
}

#[test]
fn each_commands_help_names_every_unit_default_and_variable() {
    for command in COMMANDS {
        let finished = s3mq(command).arg("--help").run();
        finished.exits(0);
        let text = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        // An option begins a line, indented by six.
        let options: Vec<_> = finished.stdout.split("\n      --").skip(1).collect();
        for option in &options {
            let name = option.split(|c: char| c != '-' && !c.is_ascii_alphanumeric()).next().unwrap();
            let variable = format!("[env: S3MQ_{}", name.to_uppercase().replace('-', "_"));
            // What an endpoint is set to is not shown.
            let is_named = ["=]", "]"].iter().any(|end| option.contains(&format!("{variable}{end}")));
            finished.check(is_named, format_args!("--{name} does not name its variable"));
            let unit = match option.split_whitespace().nth(1) {
                Some("<SECONDS>") => "seconds",
                Some("<MS>") => "milliseconds",
                _ => "",
            };
            finished.check(option.contains(unit), format_args!("--{name} does not say that it is in {unit}"));
        }
        finished.check(options.len() > 2, "the options could not be told apart");
        if command != "serve" {
            let aws = [
                "AWS_S3_BUCKET",
                "AWS_S3_ACCESS_KEY",
                "AWS_S3_SECRET_ACCESS_KEY",
                "AWS_REGION",
                "MINIO_S3_REGION",
            ];
            for variable in VARIABLES.iter().chain(&aws) {
                finished.check(text.contains(variable), format_args!("{variable} is not explained"));
            }
        }
    }
    let general = s3mq("--help").run();
    general.check(general.stdout.contains("RUST_LOG"), "RUST_LOG is not explained");
}

#[test]
fn a_check_says_what_it_tried_and_leaves_nothing() {
    let store = Store::start();
    let finished = store.s3mq("check --round-trips 3").run();
    finished.exits(0);
    let tried = finished.stdout.lines().filter(|line| line.starts_with("ok  ")).count();
    finished.check(tried == 7, "not every check has its line");
    for trip in ["PUT ", "conditional PUT ", "GET ", "absent GET ", "LIST "] {
        let line = finished.stdout.lines().find(|line| line.starts_with(trip));
        let figures =
            line.map(|line| line.split_whitespace().rev().take(2).all(|cell| cell.parse::<f64>().is_ok()));
        finished.check(figures == Some(true), format_args!("no figures of the round trip {trip}"));
    }
    assert!(store.keys().is_empty(), "{:?}", store.keys());
}

#[test]
fn a_server_says_how_to_reach_it_and_ends_when_asked_to() {
    // Keys of its own, in memory.
    let store = Store::of(s3mq("serve").spawn());
    store.s3mq("check --round-trips 1").run().exits(0);
    store.signal(Signal::TERM);
    let finished = store.finish();
    finished.exits(130);
    finished.check(finished.stderr.is_empty(), "it complains");
}

#[test]
fn a_server_on_a_taken_port_says_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    s3mq("serve --listen").arg(&address).run().exits(1).complains(&[&address]);
}
