//! Clocks that disagree: what they make impossible is counted, never hidden.

use serde_json::Value;

use crate::store::Store;

/// The clock anchor of this boot, with the wall clock put back by this many microseconds.
fn anchor_behind(us: i64) -> String {
    let anchor = s3mq_clock::Anchor::now().to_string();
    let (wall_us, rest) = anchor.split_once(':').unwrap();
    format!("{}:{rest}", wall_us.parse::<i64>().unwrap() - us)
}

fn consume(store: &Store, behind_us: i64) -> Value {
    let consumer =
        store.s3mq("consumer --lake-path clocks --clock-anchor").arg(anchor_behind(behind_us)).run();
    consumer.exits(0);
    consumer.event("consumed")
}

#[test]
fn messages_that_seem_to_come_before_they_were_due_are_counted_apart() {
    let store = Store::start();
    store
        .s3mq("producer --lake-path clocks --rate 1000 --messages 300 --autocommit-duration-ms 50")
        .run()
        .exits(0);
    // An hour behind, everything came before it was due.
    let consumed = consume(&store, 3_600_000_000);
    assert_eq!((&consumed["received"], &consumed["negative_latencies"]), (&300.into(), &300.into()));
    assert_eq!(consumed["latency"], Value::Null);
    assert!(consumed["wall_clock_step_us"].as_i64().unwrap() > 3_500_000_000, "{consumed}");
    // And with a clock that is right, nothing did.
    let consumed = consume(&store, 0);
    assert_eq!((&consumed["negative_latencies"], &consumed["latency"]["count"]), (&0.into(), &300.into()));
}

#[test]
fn each_role_tells_how_far_its_clock_is_from_the_stores() {
    let store = Store::start();
    let producer = store
        .s3mq("producer --lake-path offsets --rate 100 --messages 300 --autocommit-duration-ms 50")
        .run();
    producer.exits(0);
    let clock = producer.event("produced")["store_clock"].clone();
    let (offset_us, uncertainty_us) =
        (clock["offset_us"].as_i64().unwrap(), clock["uncertainty_us"].as_i64().unwrap());
    // The same clock: the true offset is 0, give or take how promptly the server makes its header.
    producer.check(offset_us.abs() <= uncertainty_us + 20_000, format_args!("{clock}"));
    producer.check(uncertainty_us <= 500_000, format_args!("{clock}"));
}

#[test]
fn a_warning_in_a_file_has_no_colours() {
    let store = Store::start();
    let producer =
        store.s3mq("producer --lake-path plain --rate max --messages 1 --clock-anchor 1:2:3").run();
    producer.exits(0).check(producer.stderr.contains("another host"), "no warning");
    producer.check(!producer.stderr.contains('\x1b'), "it is coloured");
}
