//! Credentials that come to their end in the middle of a run, and those that are renewed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::gateway::{Gateway, refusal};
use crate::harness::{Finished, S3mq};
use crate::processes::{children, wait_for};
use crate::store::{ACCESS_KEY, SECRET_KEY, Store};

/// None of these is retried for the ten minutes that retrying is allowed.
const AT_ONCE: Duration = Duration::from_secs(20);

/// A bench whose credentials expire for some requests once its first rate is finished.
fn expire_in_the_second_rate(status: &'static str, of: fn(&str) -> bool) -> Finished {
    let store = Store::start();
    let expired = Arc::new(AtomicBool::new(false));
    let gateway = Gateway::before(store.endpoint(), {
        let expired = expired.clone();
        move |head| {
            let refused = expired.load(SeqCst) && of(head);
            refused.then(|| refusal(status, "ExpiredToken", "The provided token has expired."))
        }
    });
    let bench = store.s3mq(
        "bench --range-start 100 --range-end 200 --range-step 100 --seconds-to-stream 3 --autocommit-duration-ms 100 \
         --warmup-seconds 0 --retry-timeout-seconds 600 --quiet",
    );
    let bench = bench.env("MINIO_S3_ENDPOINT", &gateway.endpoint()).spawn();
    wait_for("rows of the second rate", || {
        let text = fs::read_to_string(bench.path("benchmark-results/200.csv.partial")).ok()?;
        (text.lines().count() > 1).then_some(())
    });
    let roles = children(bench.pid());
    expired.store(true, SeqCst);
    let finished = bench.finish_within(AT_ONCE);
    finished.exits(1);
    finished.check(roles.len() == 2 && roles.iter().all(|role| role.is_gone()), "a role is left");
    for name in ["100.csv", "100.json", "summary.csv", "200.csv.partial"] {
        finished.read(&format!("benchmark-results/{name}"));
    }
    finished
}

/// The last line of its standard error; what the store no longer lets it tidy up may be said before.
#[track_caller]
fn last_line_says(finished: &Finished, words: &[&str]) {
    let last = finished.stderr.lines().last().unwrap_or_default();
    finished.check(last.starts_with("error: "), "no error in the end");
    for word in words {
        finished.check(last.contains(word), format_args!("the last line does not say `{word}`"));
    }
}

#[test]
fn credentials_that_expire_in_the_middle_of_a_run_end_it_at_once_by_name() {
    // AWS answers 400, others 403.
    for status in ["403 Forbidden", "400 Bad Request"] {
        let finished = expire_in_the_second_rate(status, |_| true);
        last_line_says(&finished, &["rate 200", "credentials", "have expired (ExpiredToken)", "renew"]);
        // Beside it, at most that the table couldn't be deleted; and nothing of what AWS alone has.
        let lines = finished.stderr.lines().count();
        finished.check(lines <= 2 && !finished.stderr.contains("SSO"), format_args!("{lines} lines"));
    }
}

#[test]
fn each_role_says_that_the_credentials_have_expired() {
    let is_get_of_log = |head: &str| head.starts_with("GET ") && head.contains("/_delta_log/0");
    let is_get_of_data = |head: &str| head.starts_with("GET ") && head.contains(".parquet");
    let is_commit = |head: &str| head.starts_with("PUT ") && head.contains("/_delta_log/0");
    let is_data = |head: &str| head.starts_with("PUT ") && head.contains(".parquet");
    for (role, of) in [
        ("consumer", is_get_of_log as fn(&str) -> bool),
        ("consumer", is_get_of_data),
        ("producer", is_commit),
        ("producer", is_data),
    ] {
        let finished = expire_in_the_second_rate("400 Bad Request", of);
        last_line_says(&finished, &["rate 200", role, "have expired (ExpiredToken)"]);
    }
}

/// Makes the default chain of a command find keys that are good for `seconds`, by a process that notes each call
/// and, once a file `refuse` is there, gives none.
fn with_process(command: S3mq, seconds: u32) -> S3mq {
    let script = format!(
        "echo >> calls\nif [ -e refuse ]; then echo no keys today >&2; exit 1; fi\n\
         at=$(/bin/date -u -d '+{seconds} seconds' +%Y-%m-%dT%H:%M:%SZ)\n\
         printf '{{\"Version\":1,\"AccessKeyId\":\"{ACCESS_KEY}\",\"SecretAccessKey\":\"{SECRET_KEY}\",\
         \"SessionToken\":\"a-token-that-nobody-may-see\",\"Expiration\":\"%s\"}}' \"$at\"\n"
    );
    fs::create_dir_all(command.path(".aws")).unwrap();
    fs::write(command.path("keys.sh"), script).unwrap();
    let process = command.path("keys.sh").display().to_string();
    fs::write(command.path(".aws/config"), format!("[default]\ncredential_process = /bin/sh {process}\n"))
        .unwrap();
    command
}

fn calls(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn credentials_are_renewed_while_a_run_goes_on() {
    let store = Store::start();
    let bench = store.s3mq(
        "bench --s3-backend s3 --bucket s3mq --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 6 \
         --autocommit-duration-ms 100 --quiet --endpoint",
    );
    // Good for 2 s beyond the 10 s before their end in which they are renewed.
    let bench = with_process(bench.arg(store.endpoint()), 12).env("RUST_LOG", "trace").spawn();
    wait_for("rows", || {
        let text = fs::read_to_string(bench.path("benchmark-results/100.csv.partial")).ok()?;
        (text.lines().count() > 1).then_some(())
    });
    let before = calls(&bench.path("calls"));
    let finished = bench.finish();
    finished.exits(0);
    let renewed = calls(&finished.path("calls")) - before;
    // Two roles, each at least twice.
    finished.check(renewed >= 4, format_args!("renewed {renewed} times"));
    for secret in [SECRET_KEY, "a-token-that-nobody-may-see"] {
        let said = finished.stdout.contains(secret) || finished.stderr.contains(secret);
        finished.check(!said, format_args!("`{secret}` was said"));
    }
}

#[test]
fn credentials_that_can_not_be_renewed_are_used_to_their_end_and_named() {
    let store = Store::start();
    let producer = store.s3mq(
        "producer --s3-backend s3 --bucket s3mq --lake-path queue --rate 100 --seconds-to-stream 50 \
         --autocommit-duration-ms 100 --endpoint",
    );
    let mut producer = with_process(producer.arg(store.endpoint()), 14).spawn();
    producer.wait_for_progress();
    fs::write(producer.path("refuse"), "").unwrap();
    let before = calls(&producer.path("calls"));
    let finished = producer.finish_within(Duration::from_secs(40));
    finished.exits(1);
    last_line_says(&finished, &["credentials could not be renewed", "no keys today"]);
    // Before, while they were still good, it went on, and asked once in a while.
    let asked = calls(&finished.path("calls")) - before;
    finished.check((2..=40).contains(&asked), format_args!("asked {asked} times"));
    finished.check(finished.stderr.contains("could not be renewed yet"), "no warning came before");
}
