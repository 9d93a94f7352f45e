//! The secret key goes from process to process by environment and is said nowhere.

use std::fs;

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
