//! Secrets go from process to process by environment and are said nowhere, whatever fails.

use std::fs;

use crate::gateway::{Gateway, refusal};
use crate::processes::{children, wait_for};
use crate::store::{SECRET_KEY, Store};

#[test]
fn a_bench_keeps_its_secret() {
    let store = Store::start();
    let command = "bench --range-start 100 --range-end 100 --range-step 1 --seconds-to-stream 3 \
                   --autocommit-duration-ms 100 --raw-output --verbose";
    // The loudest log, of every library too.
    let bench = store.s3mq(command).env("RUST_LOG", "trace").spawn();
    let children =
        wait_for("both children", || Some(children(bench.pid())).filter(|children| children.len() == 2));
    for child in &children {
        assert!(child.command.contains("--lake-path"), "not a role's command: {}", child.command);
        assert!(!child.command.contains(SECRET_KEY), "the secret is on a command line: {}", child.command);
    }
    let finished = bench.finish();
    finished.exits(0);
    finished.check(!finished.stdout.contains(SECRET_KEY), "standard output says the secret");
    finished.check(!finished.stderr.contains(SECRET_KEY), "standard error says the secret");
    for name in finished.files() {
        let bytes = fs::read(finished.path(&name)).unwrap();
        let said = String::from_utf8_lossy(&bytes).contains(SECRET_KEY);
        finished.check(!said, format_args!("{name} has the secret"));
    }
}

/// Failing in every way that has to do with them, and saying all that there is to say.
#[test]
fn nothing_that_fails_says_a_secret() {
    const SECRET: &str = "wJalrXUtnFEMI-a-secret-that-nobody-may-see";
    const TOKEN: &str = "FwoGZXIvYXdzE-a-token-that-nobody-may-see";
    let store = Store::start();
    let refusing =
        Gateway::alone(|_| refusal("403 Forbidden", "ExpiredToken", "The provided token has expired."));
    let commands = [
        "check",
        "bench --range-start 1 --range-end 1 --range-step 1 --seconds-to-stream 1 --verbose",
        "producer --lake-path queue --rate 1 --messages 1",
        "producer --lake-path queue --rate 1 --messages 1 --no-preflight",
        "consumer --lake-path queue",
        "consumer --lake-path queue --no-preflight",
        "preload --lake-path queue --versions 1",
        "checkpoint --lake-path queue --at-version 1",
    ];
    // A wrong key, one that has expired, one that nobody listens to, a value that isn't an endpoint.
    for endpoint in
        [store.endpoint(), &refusing.endpoint(), "http://127.0.0.1:1", "http://user:password@host"]
    {
        let runs = commands.map(|command| {
            let deadlines = "--request-timeout-seconds 1 --retry-timeout-seconds 1 --stall-timeout-seconds 1";
            let command = store
                .s3mq(&format!("{command} {deadlines} --s3-backend s3 --bucket s3mq --endpoint {endpoint}"))
                .env("RUST_LOG", "trace")
                .env("RUST_BACKTRACE", "1");
            // As the default chain finds them, which is the only way to have a token.
            command
                .env("AWS_ACCESS_KEY_ID", "nobody")
                .env("AWS_SECRET_ACCESS_KEY", SECRET)
                .env("AWS_SESSION_TOKEN", TOKEN)
                .spawn()
        });
        for run in runs {
            let finished = run.finish();
            finished.check(!finished.stderr.is_empty(), "it is silent");
            for secret in [SECRET, TOKEN, SECRET_KEY, "user:password"] {
                let said = finished.stdout.contains(secret) || finished.stderr.contains(secret);
                finished.check(!said, format_args!("`{secret}` was said"));
            }
        }
    }
}
