//! `s3mq merge` adds up what goes together, and refuses the rest.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::s3mq;

const BENCH: &str = "bench --range-start 200 --range-end 400 --range-step 200 --seconds-to-stream 1 --quiet";

/// The same histograms twice would be a lie, and those of unlike runs none of either.
#[test]
fn logs_that_do_not_go_together_are_refused() {
    let bench = s3mq(&format!("{BENCH} --autocommit-duration-ms 50")).run();
    bench.exits(0);
    let merge = |logs: &str| s3mq(&format!("merge {logs}")).in_directory_of(&bench).run();
    let (one, two) = ("benchmark-results/200.hlog", "benchmark-results/400.hlog");
    merge(&format!("{one} {two}")).exits(0);

    fs::copy(bench.path(one), bench.path("copy.hlog")).unwrap();
    symlink(bench.path(one), bench.path("link.hlog")).unwrap();
    for again in [one, "copy.hlog", "link.hlog"] {
        merge(&format!("{one} {two} {again}")).exits(2).complains(&[one, again, "the same log"]);
    }

    for (options, named) in [
        ("--autocommit-duration-ms 50 --message-size 100", "message_bytes"),
        ("--autocommit-duration-ms 40", "autocommit_duration_ms"),
    ] {
        let other = s3mq(&format!("{BENCH} {options}")).run();
        other.exits(0);
        for kind in ["hlog", "json"] {
            let file = other.path(&format!("benchmark-results/200.{kind}"));
            fs::copy(file, bench.path(&format!("other.{kind}"))).unwrap();
        }
        merge(&format!("{one} other.hlog")).exits(2).complains(&["200.hlog", "other.hlog", named]);
    }

    let text = bench.read(one).replace("microseconds", "nanoseconds");
    fs::write(bench.path("foreign.hlog"), text).unwrap();
    merge(&format!("{two} foreign.hlog")).exits(2).complains(&["foreign.hlog", "microseconds"]);
}
