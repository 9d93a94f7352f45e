//! Producers and consumers on their own, against `s3mq serve`.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::Finished;
use crate::store::Store;

/// What a consumer that reads from the start until the stream's end has received, whole.
#[track_caller]
fn received(store: &Store, lake_path: &str) -> Value {
    let consumer = store.s3mq("consumer --lake-path").arg(lake_path).run();
    consumer.exits(0);
    let consumed = consumer.event("consumed");
    consumer.check(consumed["ended"] == "end_of_stream", "it did not end with the stream");
    consumed["received"].clone()
}

#[track_caller]
fn produce(store: &Store, arguments: &str) -> Finished {
    let producer = store.s3mq(&format!("producer --autocommit-duration-ms 100 {arguments}")).run();
    producer.exits(0);
    producer
}

#[test]
fn a_rate_times_its_seconds_is_rounded_once() {
    let store = Store::start();
    let runs = [("0.5", 4, 2), ("7", 3, 21), ("0.3", 5, 2)].map(|(rate, seconds, messages)| {
        let command = format!("producer --lake-path at/{rate} --rate {rate} --seconds-to-stream {seconds}");
        (rate, messages, store.s3mq(&command).spawn())
    });
    for (rate, messages, running) in runs {
        let producer = running.finish();
        producer.exits(0);
        producer.check(
            producer.event("produced")["committed"] == messages,
            format_args!("not {messages} committed"),
        );
        assert_eq!(received(&store, &format!("at/{rate}")), messages, "at {rate} a second");
    }
}

#[test]
fn a_single_message_does_not_wait_for_its_commit_interval() {
    let store = Store::start();
    // An hour, of which the deadline of these tests is a minute.
    store
        .s3mq("producer --lake-path one --rate 5 --messages 1 --autocommit-duration-ms 3600000")
        .run()
        .exits(0);
    assert_eq!(received(&store, "one"), 1);
}

#[test]
fn without_a_schedule_all_messages_are_sent_as_fast_as_the_queue_takes_them() {
    let store = Store::start();
    let producer = produce(&store, "--lake-path fast --rate max --messages 100000");
    let produced = producer.event("produced");
    producer.check(produced["committed"] == 100_000, "not all were committed");
    producer.check(produced["send_delay"].is_null(), "there is no schedule to be late for");
    assert_eq!(received(&store, "fast"), 100_000);
}

#[test]
fn messages_have_the_size_that_was_asked_for() {
    let store = Store::start();
    for payload in ["text", "random"] {
        let path = format!("sized/{payload}");
        let arguments =
            format!("--lake-path {path} --rate 2000 --messages 1000 --message-size 100 --payload {payload}");
        let producer = produce(&store, &arguments);
        let bytes = producer.event("produced")["file_bytes"].as_u64();
        // Neither compressed nor folded: the bytes are there.
        producer.check(bytes >= Some(1000 * 100), format_args!("{bytes:?} bytes for 1,000 messages of 100"));
        assert_eq!(received(&store, &path), 1000);
    }
}

#[test]
fn a_consumer_may_be_started_before_the_table_exists() {
    let store = Store::start();
    let mut consumer = store.s3mq("consumer --lake-path s3://s3mq/later --output-path out/later.csv").spawn();
    consumer.wait_for_event("ready", |_| true);
    produce(&store, "--lake-path later --rate 100 --messages 50");
    let consumer = consumer.finish();
    consumer.exits(0);
    consumer.check(consumer.event("consumed")["received"] == 50, "not all were received");
    consumer.check(consumer.files() == ["out/later.csv"], "expected one result file");
}

#[test]
fn a_consumer_ends_with_the_messages_it_expects() {
    let store = Store::start();
    produce(&store, "--lake-path some --rate max --messages 500");
    produce(&store, "--lake-path some --rate max --messages 500 --producer-id 1");
    for expected in [500, 1000] {
        let consumer = store.s3mq(&format!("consumer --lake-path some --expected-messages {expected}")).run();
        consumer.exits(0);
        let consumed = consumer.event("consumed");
        consumer.check(consumed["ended"] == "expected", "it ended for another reason");
        consumer.check(consumed["received"] == expected, format_args!("not {expected} received"));
    }
}

#[test]
fn a_consumer_whose_messages_never_come_gives_up_and_says_how_many_did() {
    let store = Store::start();
    produce(&store, "--lake-path few --rate 100 --messages 30");
    // The one stream there is has ended. Others may still come, until it has been quiet for too long.
    let consumer =
        store.s3mq("consumer --lake-path few --expected-messages 50 --drain-timeout-seconds 1").run();
    consumer.exits(1).complains(&["30 of 50 messages", "--drain-timeout-seconds"]);
    let consumed = consumer.event("consumed");
    consumer.check(
        consumed["ended"] == "drain_timeout" && consumed["received"] == 30,
        "the event says otherwise",
    );

    let consumer = store.s3mq("consumer --lake-path few --producers 2 --drain-timeout-seconds 1").run();
    consumer.exits(1).complains(&["30 of", "--drain-timeout-seconds"]);
}

#[test]
fn a_consumer_that_starts_at_the_latest_version_receives_only_what_comes_then() {
    let store = Store::start();
    produce(&store, "--lake-path live --rate 100 --messages 10");
    let mut consumer = store.s3mq("consumer --lake-path live --start latest").spawn();
    consumer.wait_for_event("ready", |_| true);
    produce(&store, "--lake-path live --rate 100 --messages 7 --producer-id 1");
    let consumer = consumer.finish();
    consumer.exits(0);
    consumer.check(consumer.event("consumed")["received"] == 7, "not 7 received");
}

#[test]
fn a_consumer_that_starts_at_a_version_receives_what_is_there_from_it_on() {
    let store = Store::start();
    // Version 0 creates the table; then each producer commits one version of messages and its end.
    for producer in 0..3 {
        produce(&store, &format!("--lake-path log --rate max --messages 5 --producer-id {producer}"));
    }
    for (version, producers, messages) in [(0, 3, 15), (3, 2, 10), (5, 1, 5)] {
        let command = format!("consumer --lake-path log --start {version} --producers {producers}");
        let consumer = store.s3mq(&command).run();
        consumer.exits(0);
        let consumed = consumer.event("consumed");
        consumer.check(consumed["received"] == messages, format_args!("not {messages} received"));
        consumer.check(consumed["first_version"] == version, format_args!("it did not start at {version}"));
    }
}

#[test]
fn what_a_stream_held_before_the_version_that_a_consumer_starts_at_is_not_lost() {
    let store = Store::start();
    let mut producer = store
        .s3mq("producer --lake-path midway --rate 1000 --messages 5000 --autocommit-duration-ms 20")
        .spawn();
    producer.wait_for_event("progress", |event| event["messages"].as_u64() > Some(500));
    let mut late = store.s3mq("consumer --lake-path midway --start latest").spawn();
    late.wait_for_event("ready", |_| true);
    producer.finish().exits(0);
    let second = store.s3mq("consumer --lake-path midway --start 2").run();
    for consumer in [late.finish(), second] {
        consumer.exits(0);
        let consumed = consumer.event("consumed");
        let stream = &consumed["integrity"]["streams"][0];
        consumer.check(consumed["received"].as_u64() < Some(5000), "it did not start midway");
        consumer.check(consumed["received"] == stream["received"] && stream["lost"] == 0, stream);
    }
}

#[test]
fn a_consumer_that_finds_nothing_but_lost_files_gives_up_too() {
    let store = Store::start();
    produce(&store, "--lake-path gone --rate 100 --messages 30");
    assert!(store.spoil(".parquet") > 0, "no data file to spoil");
    // What is lost counts as expected; it is told as lost whether the stream's end is read or not.
    for (expected, ended) in [(30, "expected"), (31, "drain_timeout")] {
        let consumer =
            format!("consumer --lake-path gone --expected-messages {expected} --drain-timeout-seconds 1");
        // Without the log lines that name each file.
        let consumer = store.s3mq(&consumer).env("RUST_LOG", "off").run();
        consumer.exits(3).complains(&["30 lost"]);
        consumer.check(consumer.event("consumed")["ended"] == ended, "it ended for another reason");
    }
}

#[test]
fn two_producers_that_start_at_once_share_a_table_and_lose_nothing() {
    let store = Store::start();
    let consumer = store.s3mq("consumer --lake-path shared --producers 2").spawn();
    let producers = [0, 1].map(|id| {
        let command = format!(
            "producer --lake-path shared --rate 500 --seconds-to-stream 2 --autocommit-duration-ms 20 --producer-id {id}"
        );
        store.s3mq(&command).spawn()
    });
    for producer in producers {
        producer.finish().exits(0);
    }
    let consumer = consumer.finish();
    consumer.exits(0);
    let consumed = consumer.event("consumed");
    consumer.check(consumed["received"] == 2000, "not 2,000 received");
    consumer.check(consumed["lost_files"] == 0, "files were lost");
}

#[test]
fn eight_producers_on_one_table_say_what_their_contention_costs() {
    let store = Store::start();
    let consumer =
        store.s3mq("consumer --lake-path crowded --producers 8 --autocommit-duration-ms 50").spawn();
    let producers = [0, 1, 2, 3, 4, 5, 6, 7].map(|id| {
        let command = format!(
            "producer --lake-path crowded --rate 100 --seconds-to-stream 5 --autocommit-duration-ms 50 --producer-id {id}"
        );
        store.s3mq(&command).spawn()
    });
    let (mut conflicts, mut wasted) = (0, 0);
    for producer in producers {
        let producer = producer.finish();
        producer.exits(0);
        let produced = producer.event("produced");
        let count = |name: &str| produced[name].as_u64().unwrap();
        producer.check(count("committed") == 500, "not all were committed");
        producer.check(count("wasted_data_puts") == 0, "a data file was stored and not committed");
        // Each is a PUT that somebody else's commit was faster than; there were no others.
        producer.check(
            count("wasted_commit_puts") == count("commit_retries"),
            "the PUTs on the wire are not those that were sent again",
        );
        producer
            .check(count("conflicts") >= count("commit_retries"), "a PUT was sent again without a conflict");
        conflicts += count("conflicts");
        wasted += count("wasted_commit_puts");
    }
    let consumer = consumer.finish();
    consumer.exits(0);
    consumer.check(consumer.event("consumed")["received"] == 4_000, "not 4,000 received");
    consumer.check(conflicts > 0 && wasted > 0, format_args!("{conflicts} conflicts, {wasted} PUTs wasted"));
}

/// Two producers and a consumer that knows of one: the rest of the table is no success.
#[test]
fn an_end_while_another_producer_sends_is_no_success() {
    let store = Store::start();
    let producer = |id: u8, messages: u32| {
        let command = "producer --lake-path two --rate 400 --autocommit-duration-ms 50";
        store.s3mq(&format!("{command} --producer-id {id} --messages {messages}")).spawn()
    };
    let (long, short) = (producer(1, 2000), producer(0, 400));
    let consumer = "consumer --lake-path two --autocommit-duration-ms 50";
    let ended = store.s3mq(consumer).run();
    ended.exits(1).complains(&["producer 1 (epoch ", "--producers 2"]);
    let open = ended.event("consumed")["open_streams"][0].clone();
    ended.check(open["producer"] == 1, &open);
    short.finish().exits(0);
    long.finish().exits(0);
    let whole = store.s3mq(&format!("{consumer} --producers 2")).run();
    whole.exits(0).check(whole.event("consumed")["received"] == 2400, "not all came");
}

/// A producer that was killed and started again leaves an epoch that never ends.
#[test]
fn an_epoch_that_was_left_open_before_is_a_warning() {
    let store = Store::start();
    let command = "producer --lake-path again --rate 400 --autocommit-duration-ms 50 --messages";
    let mut killed = store.s3mq(&format!("{command} 100000")).spawn();
    killed.wait_for_progress();
    killed.signal(Signal::KILL);
    killed.finish();
    // At once: what tells the two apart is that nothing came of the first when the second had begun.
    store.s3mq(&format!("{command} 400")).run().exits(0);
    let ended = store.s3mq("consumer --lake-path again --autocommit-duration-ms 50").run();
    ended.exits(0);
    ended.check(ended.stderr.contains("warning: ") && ended.stderr.contains("never ended"), "no warning");
}
