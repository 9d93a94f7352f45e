//! Readers that are held up while the log is cleaned.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use s3mq_queue::{Consumer, ConsumerOptions, QueueError, Received, Start, make_checkpoint};
use tokio::task::block_in_place;

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    a_reader_held_up_by_its_permits_is_told_what_is_gone,
    a_stopped_process_is_told_what_is_gone_and_exits_with_3,
    a_start_that_is_gone_is_refused,
);

async fn a_reader_held_up_by_its_permits_is_told_what_is_gone(store: &TestStore) {
    let lake = lake(store, "slow-permits");
    for _ in 0..10 {
        send(&lake, 0, 1).await;
    }
    let narrow = ConsumerOptions { max_inflight_messages: 10, ..options() };
    let mut slow = Consumer::open(&lake, narrow).await.unwrap();
    // While this batch is held, nothing after it is fetched; only the next entry with a file is read ahead.
    let Received::Batch(held) = next(&mut slow).await.unwrap() else { panic!("a batch") };
    assert!(matches!(next(&mut slow).await.unwrap(), Received::End(_)));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    make_checkpoint(&lake, 15, Default::default()).await.1.unwrap();
    clean(store, &lake, 0..15).await;
    drop(held);
    assert!(matches!(next(&mut slow).await.unwrap(), Received::Batch(batch) if batch.version == 3));
    let error = error_of(&mut slow).await;
    assert!(matches!(&error, QueueError::CleanedAway { gone, oldest: 15 } if *gone == (4..=14)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("versions 4-14 are gone, the oldest that is left is 15"), "{text}");
}

async fn a_stopped_process_is_told_what_is_gone_and_exits_with_3(store: &TestStore) {
    let lake = lake(store, "slow-process");
    // Versions 1 to 50 and no end of stream.
    let (mut producer, mut committed) = telling(&lake).await;
    append_one_by_one(&mut producer, &mut committed, 50).await;

    let mut consumer = Killed(
        Command::new(env!("CARGO_BIN_EXE_s3mq"))
            .args(["consumer", "--autocommit-duration-ms", "20", "--lake-path", &prefix(&lake)])
            .envs(store.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(consumer.0.stdout.take().unwrap()).lines();
    let all = r#""messages":500"#;
    let said = block_in_place(|| lines.by_ref().any(|line| line.unwrap().contains(all)));
    assert!(said, "it never said {all}");
    let pid = Pid::from_raw(consumer.0.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();

    append_one_by_one(&mut producer, &mut committed, 50).await;
    make_checkpoint(&lake, 100, Default::default()).await.1.unwrap();
    clean(store, &lake, 0..100).await;
    kill_process(pid, Signal::CONT).unwrap();

    let (mut stderr, mut pipe) = (String::new(), consumer.0.stderr.take().unwrap());
    block_in_place(|| pipe.read_to_string(&mut stderr)).unwrap();
    let exit = consumer.0.wait().unwrap();
    assert_eq!(exit.code(), Some(3), "{stderr}");
    assert!(stderr.contains("versions 51-99 are gone, the oldest that is left is 100"), "{stderr}");
    let last = lines.map_while(Result::ok).last().unwrap_or_default();
    assert!(last.contains(r#""event":"failed""#) && last.contains(r#""exit_code":3"#), "{last}");
}

/// A process that doesn't outlive its test, stopped or not.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn a_start_that_is_gone_is_refused(store: &TestStore) {
    let lake = lake(store, "start-gone");
    send_each(&lake, 5).await;
    make_checkpoint(&lake, 5, Default::default()).await.1.unwrap();
    clean(store, &lake, 0..5).await;
    let at = |version| ConsumerOptions { start: Start::Version(version), ..options() };
    let error = Consumer::open(&lake, at(2)).await.unwrap_err();
    assert!(matches!(&error, QueueError::CleanedAway { gone, oldest: 5 } if *gone == (2..=4)), "{error}");
    assert!(Consumer::open(&lake, at(5)).await.is_ok());
}
