//! Tables that go away or have holes, under those who are about to give up or to finish.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use object_store::ObjectStoreExt;
use s3mq_queue::{Consumer, Lake, Received, make_checkpoint};
use tokio::process::Child;

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    a_gap_is_told_before_a_consumer_gives_up,
    a_log_made_anew_is_told_before_a_consumer_gives_up,
    a_log_made_anew_with_as_many_versions_is_no_quiet_one,
    a_quiet_log_has_nothing_more_and_goes_on,
    a_producer_whose_table_was_deleted_exits_with_1,
);

/// A role that does not outlive its test.
fn role(store: &TestStore, lake: &Lake, arguments: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mq"));
    command.args(arguments.split(' ')).args(["--lake-path", &prefix(lake)]).envs(store.environment());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap()
}

async fn ends(role: Child, code: i32, says: &str) {
    let ended = tokio::time::timeout(DEADLINE, role.wait_with_output()).await.expect("it ended");
    let Output { status, stdout, stderr } = ended.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(code), "{stdout}\n{stderr}");
    assert!(stderr.contains(says) && !stderr.contains("may have died"), "{stderr}");
}

async fn until_there(store: &TestStore, lake: &Lake, version: u64) {
    while store.store.objects().head(&entry(lake, version)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_gap_is_told_before_a_consumer_gives_up(store: &TestStore) {
    let lake = lake(store, "gap-and-giving-up");
    send_each(&lake, 5).await;
    // The table can be opened all the same.
    make_checkpoint(&lake, 5, Default::default()).await.1.unwrap();
    clean(store, &lake, 3..4).await;
    // Of its own accord it would list the log after ten seconds.
    for arguments in [
        "consumer --drain-timeout-seconds 0.5",
        "consumer --drain-timeout-seconds 0.5 --expected-messages 1000",
        // Where the gap is what comes first, nothing was received yet.
        "consumer --wait-timeout-seconds 0.5 --start 3",
    ] {
        ends(role(store, &lake, arguments), 3, "version 3 is missing, while 4 exists").await;
    }
}

async fn a_log_made_anew_is_told_before_a_consumer_gives_up(store: &TestStore) {
    let lake = lake(store, "anew-and-giving-up");
    send_each(&lake, 5).await;
    let consumer = role(store, &lake, "consumer --expected-messages 1000 --drain-timeout-seconds 3");
    tokio::time::sleep(Duration::from_secs(1)).await;
    clean(store, &lake, 0..7).await;
    send(&lake, 2, 1).await;
    ends(consumer, 3, "was deleted or made anew: its version 6").await;
}

async fn a_log_made_anew_with_as_many_versions_is_no_quiet_one(store: &TestStore) {
    let lake = lake(store, "anew-with-as-many");
    send_each(&lake, 3).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    receive(&mut consumer, 1).await;
    clean(store, &lake, 0..5).await;
    send_each(&lake, 3).await;
    consumer.ask();
    let error = consumer.next_or_nothing().await.unwrap_err();
    assert!(error.to_string().contains("version 4 is gone or another one"), "{error}");
}

async fn a_quiet_log_has_nothing_more_and_goes_on(store: &TestStore) {
    let lake = lake(store, "quiet");
    send(&lake, 1, 1).await;
    let mut consumer = Consumer::open(&lake, options()).await.unwrap();
    receive(&mut consumer, 1).await;
    for producer in 2..4 {
        consumer.ask();
        let nothing = tokio::time::timeout(DEADLINE, consumer.next_or_nothing()).await.unwrap();
        assert!(nothing.unwrap().is_none());
        let by = send(&lake, producer, 2).await;
        assert_in_order(&receive(&mut consumer, 1).await.0[&by]);
    }
    // What there is comes before the answer that there is nothing more.
    send_each(&lake, 3).await;
    consumer.ask();
    let mut came = 0;
    while let Some(received) = consumer.next_or_nothing().await.unwrap() {
        came += usize::from(matches!(received, Received::Batch(_)));
    }
    assert_eq!(came, 3);
}

async fn a_producer_whose_table_was_deleted_exits_with_1(store: &TestStore) {
    let lake = lake(store, "deleted-under-a-producer");
    let arguments = "producer --rate 20 --messages 60 --autocommit-duration-ms 100";
    let producer = role(store, &lake, arguments);
    tokio::time::timeout(DEADLINE, until_there(store, &lake, 3)).await.unwrap();
    clean(store, &lake, 0..4).await;
    ends(producer, 1, "the log was deleted or made anew while it ran").await;
}
