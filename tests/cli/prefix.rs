//! A bench touches what is below its own tables, and nothing beside them.

use rustix::process::Signal;

use crate::processes::{children, wait_for};
use crate::store::Store;

const SWEEP: &str = "bench --range-start 200 --range-end 200 --range-step 1 --seconds-to-stream 1 \
                     --autocommit-duration-ms 100";

#[test]
fn what_lies_beside_a_benchs_tables_is_left_alone() {
    let store = Store::start();
    // Each begins like one of the bench's own places.
    let beside = ["runs/2000", "runs/20", "runs/200-old", "runs0/200", "runs-old"];
    for path in beside {
        store.s3mq("producer --rate max --messages 5 --lake-path").arg(path).run().exits(0);
    }
    let before = store.keys();
    store.s3mq(SWEEP).arg("--prefix=runs").run().exits(0);
    // Neither a table nor what was tried out with is left.
    assert_eq!(store.keys(), before);
    for path in beside {
        let consumer = store.s3mq("consumer --lake-path").arg(path).run();
        consumer.exits(0);
        consumer.check(consumer.event("consumed")["received"] == 5, "it is not whole any more");
    }
}

#[test]
fn kept_tables_can_be_read_and_do_not_pollute_the_next_run() {
    let store = Store::start();
    store.s3mq(SWEEP).arg("--prefix=kept").arg("--keep-data").run().exits(0);
    let keys = store.keys();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("kept/200/")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.contains(".s3mq")), "{keys:?}");
    let consumer = store.s3mq("consumer --lake-path kept/200").run();
    consumer.exits(0);
    consumer.check(consumer.event("consumed")["received"] == 200, "not all of it was kept");

    let again = store.s3mq(SWEEP).arg("--prefix=kept").run();
    again.exits(0);
    again.check(
        again.read("benchmark-results/200.json").contains("\"received\": 200,"),
        "old messages were received",
    );
    assert_eq!(store.keys(), Vec::<String>::new());
}

#[test]
fn a_second_bench_on_one_prefix_is_refused_and_told_who_is_there() {
    let store = Store::start();
    let long = "bench --range-start 10 --range-end 10 --range-step 1 --seconds-to-stream 50 --prefix shared";
    let first = store.s3mq(long).spawn();
    wait_for("the first bench's children", || (!children(first.pid()).is_empty()).then_some(()));
    let second = store.s3mq(SWEEP).arg("--prefix=shared").run();
    second.exits(1).complains(&["another bench", "shared", &format!("process {} ", first.pid()), "--prefix"]);
    // Another prefix is free.
    store.s3mq(SWEEP).arg("--prefix=shared-not").run().exits(0);

    first.signal(Signal::INT);
    first.finish().exits(130);
    // The lock was given back by its holder, and the prefix is free again.
    store.s3mq(SWEEP).arg("--prefix=shared").run().exits(0);
}
