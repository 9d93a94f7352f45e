//! What a reader makes of keys that the store refuses, or answers wrongly.

use std::time::Duration;

use s3mq_queue::storage::Purpose;
use s3mq_queue::{Consumer, LostFile, QueueError, Received};

use crate::common::streams::*;
use crate::{Faulty, six_batches};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_refused_to_a_lone_consumer_is_named_and_no_silence_of_the_store() {
    let key = "queue/_delta_log/00000000000000000003.json";
    let rules = format!("[[rule]]\nmethod = \"GET\"\nkey = \"{key}\"\naction = \"status\"\nstatus = 500");
    let faulty = Faulty::with_timeouts(&rules, Duration::from_secs(30), Duration::from_secs(2)).await;
    let mut consumer = Consumer::open(&faulty.lake, options()).await.unwrap();
    send_each(&faulty.lake, 5).await;
    // The producer is through: nothing else is asked of the store.
    let error = error_of(&mut consumer).await;
    assert!(matches!(&error, QueueError::Unreadable { lost, .. } if *lost == (3..=6)), "{error}");
    let text = error.to_string();
    let named = text.contains(&format!("GET of version 3, s3://s3mq/{key} failed"));
    assert!(named && text.contains("nothing but status 500 to it for 2 s"), "{text}");
    assert!(!text.contains("has not answered"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_refused_while_others_come_is_named() {
    let rules = "[[rule]]\nmethod = \"GET\"\nkey = \"*.parquet\"\naction = \"status\"\nstatus = 500";
    let faulty = Faulty::with_timeouts(rules, Duration::from_secs(2), Duration::from_secs(30)).await;
    let mut consumer = Consumer::open(&faulty.lake, options()).await.unwrap();
    send_each(&faulty.lake, 1).await;
    // Its own questions for the next version are answered. Somebody who would give up by now hears of it as well.
    consumer.ask();
    let error = consumer.next_or_nothing().await.unwrap_err();
    assert!(matches!(error, QueueError::Request { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("GET of data file queue/part-") && text.contains("500"), "{text}");
}

/// Six batches, and what comes of them where reads of their files meet these faults; and how many GETs that took.
async fn files_behind(faults: &str) -> (usize, Vec<LostFile>, u64) {
    let faulty = six_batches(&format!("[[rule]]\nmethod = \"GET\"\nkey = \"*.parquet\"\n{faults}\n")).await;
    let asked = || faulty.lake.store().requests().attempts(Purpose::DataGet);
    let before = asked();
    let mut consumer = Consumer::open(&faulty.lake, options()).await.unwrap();
    let (mut came, mut lost) = (0, Vec::new());
    loop {
        match next(&mut consumer).await.unwrap() {
            Received::Batch(batch) => came += batch.len(),
            Received::Lost(file) => lost.push(file),
            Received::End(_) => break,
        }
    }
    faulty.all_fired();
    (came, lost, asked() - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_one_answer_has_wrong_is_asked_for_once_more() {
    for wrong in [
        // Absent; another body than the file's; each file absent once.
        "nth = [2]\naction = \"status\"\nstatus = 404",
        "nth = [2]\naction = \"status\"\nstatus = 200",
        "action = \"hide\"\nreads = 1",
    ] {
        let (came, lost, asked) = files_behind(wrong).await;
        assert_eq!((came, lost.len()), (50, 0), "{wrong}: {lost:?}");
        assert!((6..=10).contains(&asked), "{wrong}: {asked} GETs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_every_answer_has_wrong_is_lost_after_two() {
    for (status, reason) in [(404, "no longer there"), (200, "")] {
        let (came, lost, asked) = files_behind(&format!("action = \"status\"\nstatus = {status}")).await;
        assert_eq!((came, lost.len(), asked), (0, 5, 10), "{lost:?}");
        assert!(lost.iter().all(|file| file.rows == Some(10) && file.reason.contains(reason)), "{lost:?}");
    }
}
