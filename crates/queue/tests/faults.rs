//! Exactly once in spite of everything that a store may do to a request: the faults of the embedded server, and
//! an account of every message that was sent through them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
#[path = "faults/reads.rs"]
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::streams::*;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use s3mq_queue::storage::{Config, Store};
use s3mq_queue::{
    Appended, Batch, Consumer, Lake, Notice, Producer, ProducerEpoch, ProducerOptions, QueueError, Received,
};
use s3mq_server::{Faults, Server};
use tokio::sync::mpsc;

/// A server that does wrong, and a table on it.
struct Faulty {
    server: Server,
    lake: Lake,
}

impl Faulty {
    async fn new(rules: &str, retry_timeout: Duration) -> Self {
        Self::with_timeouts(rules, retry_timeout, retry_timeout).await
    }

    async fn with_timeouts(rules: &str, retry_timeout: Duration, stall_timeout: Duration) -> Self {
        let faults = Some(Faults::parse(rules).unwrap_or_else(|error| panic!("{error}\n{rules}")));
        let server = Server::start(s3mq_server::Config { faults, ..s3mq_server::Config::in_memory("s3mq") })
            .await
            .unwrap();
        let keys = server.credentials();
        let config =
            Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
        // A request that isn't answered is soon given up.
        let config = config.with_timeouts(Duration::from_secs(2), retry_timeout);
        let config = Config { stall_timeout, ..config };
        let store = Store::connect(config).await.unwrap();
        Self { lake: Lake::new(&store, "queue".parse().unwrap()).unwrap(), server }
    }

    fn all_fired(&self) {
        for count in self.server.fault_counts() {
            assert!(count.fired > 0, "{count:?} never fired");
        }
    }

    /// The log, entry by entry, read until it is had.
    async fn log(&self) -> Vec<serde_json::Value> {
        let objects = self.lake.store().objects();
        let log = Path::from("queue/_delta_log");
        let listed: Vec<_> = retried(|| objects.list(Some(&log)).try_collect::<Vec<_>>()).await;
        let names: BTreeSet<_> = listed.iter().filter_map(|object| object.location.filename()).collect();
        let mut actions = Vec::new();
        for (version, name) in names.iter().enumerate() {
            assert_eq!(
                *name,
                format!("{version:020}.json"),
                "the log has a gap, or what doesn't belong there"
            );
            let path = log.clone().join(*name);
            let bytes = retried(|| async { objects.get(&path).await?.bytes().await }).await;
            for line in bytes.split(|&byte| byte == b'\n') {
                let mut action: serde_json::Value = serde_json::from_slice(line).unwrap();
                action["version"] = version.into();
                actions.push(action);
            }
        }
        actions
    }

    /// What the table holds: each stream's numbers, in the order of the log, as its data files have them.
    async fn table(&self) -> BTreeMap<ProducerEpoch, Vec<i64>> {
        let mut streams: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let objects = self.lake.store().objects();
        for action in self.log().await {
            let Some(add) = action.get("add") else { continue };
            let (tags, path) = (&add["tags"], Path::from("queue").join(add["path"].as_str().unwrap()));
            let bytes = retried(|| async { objects.get(&path).await?.bytes().await }).await;
            let by = ProducerEpoch {
                producer: tags["s3mq.producer"].as_str().unwrap().parse().unwrap(),
                epoch: tags["s3mq.epoch"].as_str().unwrap().parse().unwrap(),
            };
            let rows = SerializedFileReader::new(bytes).unwrap();
            let numbers = rows.get_row_iter(None).unwrap().map(|row| row.unwrap().get_long(2).unwrap());
            streams.entry(by).or_default().extend(numbers);
        }
        streams
    }
}

/// The verifying reads meet the faults too.
async fn retried<T, F: Future<Output = object_store::Result<T>>>(read: impl Fn() -> F) -> T {
    for _ in 0..100 {
        if let Ok(read) = read().await {
            return read;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it can't be read");
}

/// Sends batches of ten, each a commit of its own, and the end.
async fn stream(lake: &Lake, producer_id: i32, batches: usize) -> (ProducerEpoch, Appended) {
    let (notices, mut told) = mpsc::unbounded_channel();
    let options = ProducerOptions {
        producer_id,
        checkpoint_interval: 0,
        notices: Some(notices),
        ..ProducerOptions::default()
    };
    let mut producer = Producer::open(lake, options).await.unwrap();
    append_one_by_one(&mut producer, &mut told, batches).await;
    (producer.epoch(), producer.finish().await.unwrap())
}

/// `producers` of one id send at once while a consumer receives, and everything is held against everything else.
async fn exactly_once(rules: &str, producers: usize, batches: usize) -> Vec<Appended> {
    let faulty = Faulty::new(rules, Duration::from_secs(30)).await;
    let lake = &faulty.lake;
    let mut consumer = Consumer::open(lake, options()).await.unwrap();
    let sending = (0..producers).map(|_| {
        let lake = lake.clone();
        tokio::spawn(async move { stream(&lake, 7, batches).await })
    });
    let (sent, (received, others)) =
        tokio::join!(futures::future::join_all(sending), receive(&mut consumer, producers));
    assert!(others.is_empty(), "{others:?}");
    let sent: Vec<_> = sent.into_iter().map(Result::unwrap).collect();

    let numbers: Vec<i64> = (0..batches as i64 * 10).collect();
    let table = faulty.table().await;
    assert_eq!((table.len(), received.len()), (producers, producers));
    for (by, appended) in &sent {
        assert_eq!(table[by], numbers, "each number once in the table");
        assert_in_order(&received[by]);
        assert_eq!(received[by].len(), numbers.len(), "each number once at the consumer");
        assert_eq!((appended.messages, appended.commits), (numbers.len() as u64, batches as u64 + 1));
    }
    let versions = faulty.log().await.last().unwrap()["version"].as_u64().unwrap();
    let commits: u64 = sent.iter().map(|(_, appended)| appended.commits).sum();
    assert_eq!(versions, commits, "each commit is one version, after that of the table");
    faulty.all_fired();
    sent.into_iter().map(|(_, appended)| appended).collect()
}

/// A rule for commits; the first match is the table's own.
fn commits(action: &str) -> String {
    format!("[[rule]]\nmethod = \"PUT\"\nkey = \"*/_delta_log/*.json\"\n{action}\n")
}

macro_rules! exactly_once {
    ($($name:ident: $rules:expr,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for producers in [1, 2] {
                exactly_once(&$rules, producers, 12).await;
            }
        })+
    };
}

exactly_once!(
    commits_that_are_reset_before: commits("nth = [1, 3, 4, 8]\naction = \"reset\""),
    commits_that_are_reset_after: commits("nth = [1, 3, 5, 6, 9]\naction = \"apply-then-reset\""),
    commits_that_are_answered_500_after: commits("nth = [1, 3, 5, 6]\naction = \"apply-then-status\"\nstatus = 500"),
    commits_that_are_answered_503_after: commits("nth = [3, 5, 6]\naction = \"apply-then-status\"\nstatus = 503"),
    commits_that_are_answered_409_after: commits("nth = [3, 5, 6]\naction = \"apply-then-status\"\nstatus = 409"),
    commits_that_are_answered_412_after: commits("nth = [3, 5, 6]\naction = \"apply-then-status\"\nstatus = 412"),
    commits_that_are_answered_304_after: commits("nth = [3, 5, 6]\naction = \"apply-then-status\"\nstatus = 304"),
    commits_that_are_answered_400_after: commits("nth = [1, 3, 5, 6]\naction = \"apply-then-status\"\nstatus = 400"),
    conflicts_that_are_answered_304: commits("after = 0.0\nevery = 2\naction = \"apply-then-status\"\nstatus = 304"),
    conflicts_that_are_answered_409: commits("every = 3\naction = \"apply-then-status\"\nstatus = 409"),
    commits_that_are_answered_409_and_not_made: commits("nth = [3, 5, 6, 9]\naction = \"status\"\nstatus = 409"),
    commits_that_are_answered_412_and_not_made: commits("nth = [3, 5, 6, 9]\naction = \"status\"\nstatus = 412"),
    commits_that_are_answered_304_and_not_made: commits("nth = [3, 5, 6, 9]\naction = \"status\"\nstatus = 304"),
    commits_that_are_throttled: commits("nth = [2, 3, 4, 9]\naction = \"status\"\nstatus = 429"),
    commits_that_meet_a_storm: commits("probability = 0.5\ntimes = 40\naction = \"status\"\nstatus = 503"),
    commits_that_stall_beyond_their_timeout: commits("nth = [3, 6]\naction = \"stall\"\nseconds = 3"),
    commits_that_come_late: commits("every = 3\naction = \"delay\"\ndelay_ms = 200"),
    entries_that_are_seen_late: "[[rule]]\nmethod = \"GET\"\nkey = \"*/_delta_log/*.json\"\naction = \"hide\"\nreads = 3",
    entries_that_cannot_be_read_at_first:
        "[[rule]]\nmethod = \"GET\"\nkey = \"*/_delta_log/*.json\"\nevery = 4\naction = \"status\"\nstatus = 500",
    entries_that_are_cut_off:
        "[[rule]]\nmethod = \"GET\"\nkey = \"*/_delta_log/*.json\"\nevery = 5\naction = \"truncate\"\nbytes = 100",
    an_entry_that_is_cut_off_and_then_not_there:
        "[[rule]]\nmethod = \"GET\"\nkey = \"*/00000000000000000002.json\"\ntimes = 1\naction = \"truncate\"\nbytes = 100\n\
         [[rule]]\nmethod = \"GET\"\nkey = \"*/00000000000000000002.json\"\naction = \"hide\"\nreads = 1",
    files_that_are_cut_off: "[[rule]]\nmethod = \"GET\"\nkey = \"*.parquet\"\nevery = 3\naction = \"truncate\"\nbytes = 50",
    files_that_are_reset:
        "[[rule]]\nmethod = \"GET\"\nkey = \"*.parquet\"\nevery = 3\naction = \"reset\"\n[[rule]]\nmethod = \"PUT\"\nkey = \"*.parquet\"\nevery = 4\naction = \"apply-then-reset\"",
    listings_that_fail: "[[rule]]\nmethod = \"LIST\"\nevery = 2\naction = \"status\"\nstatus = 503",
    everything_at_once:
        "[[rule]]\nmethod = [\"GET\", \"PUT\", \"LIST\"]\nprobability = 0.15\naction = \"status\"\nstatus = 503\n\
         [[rule]]\nmethod = \"PUT\"\nprobability = 0.2\naction = \"apply-then-reset\"\n\
         [[rule]]\nprobability = 0.1\naction = \"reset\"",
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_producers_whose_answers_get_lost_commit_everything_once() {
    let rules = [
        commits("probability = 0.15\naction = \"apply-then-reset\""),
        commits("probability = 0.1\naction = \"reset\""),
        commits("probability = 0.1\naction = \"apply-then-status\"\nstatus = 500"),
        commits("probability = 0.1\naction = \"status\"\nstatus = 409"),
    ];
    let appended = exactly_once(&rules.concat(), 8, 25).await;
    for one in &appended {
        assert!(one.conflicts > 0 && one.commit_retries > 0, "{one:?}");
    }
}

/// What a producer was told of before it failed, and what is in the table then.
async fn until_it_fails(rules: &str) -> (usize, Vec<i64>, QueueError) {
    let faulty = Faulty::new(rules, Duration::from_secs(2)).await;
    let (notices, mut told) = mpsc::unbounded_channel();
    let options =
        ProducerOptions { checkpoint_interval: 0, notices: Some(notices), ..ProducerOptions::default() };
    let mut producer = Producer::open(&faulty.lake, options).await.unwrap();
    let by = producer.epoch();
    let mut committed = 0;
    let error = loop {
        if let Err(error) = producer.append(Batch::from_iter(["x"])).await {
            break error;
        }
        match tokio::time::timeout(DEADLINE, told.recv()).await.unwrap() {
            Some(Notice::Committed { version, .. }) => {
                committed += 1;
                assert_eq!(version, committed as u64);
            }
            Some(Notice::Checkpoint(_)) => panic!("no checkpoint"),
            None => break producer.finish().await.unwrap_err(),
        }
    };
    faulty.all_fired();
    let numbers = faulty.table().await.remove(&by).unwrap();
    assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<_>>());
    (committed, numbers, error)
}

/// Whether it says that the store was asked in vain; which of the two depends on what else it answered.
fn gave_up(error: &QueueError) -> bool {
    matches!(
        error,
        QueueError::Commit { version: 5, .. } | QueueError::Stalled { .. } | QueueError::Request { .. }
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_gives_up_has_told_the_truth() {
    let from_the_sixth_on: Vec<_> = (6..400).collect();
    let rule = |action: &str| commits(&format!("nth = {from_the_sixth_on:?}\n{action}"));
    // The first match is the table's, so four batches came through.
    for refused in
        ["action = \"status\"\nstatus = 503", "action = \"reset\"", "action = \"status\"\nstatus = 409"]
    {
        let (committed, numbers, error) = until_it_fails(&rule(refused)).await;
        assert_eq!((committed, numbers.len()), (4, 4), "{refused}: {error}");
        assert!(gave_up(&error), "{refused}: {error}");
    }
    let (committed, numbers, error) = until_it_fails(&rule("action = \"status\"\nstatus = 403")).await;
    assert_eq!((committed, numbers.len()), (4, 4), "{error}");
    assert!(matches!(error, QueueError::Commit { version: 5, attempts: 1, .. }), "{error}");
    // Where what is there can't be read either, it isn't known.
    let unreadable = "[[rule]]\nmethod = \"GET\"\nkey = \"*/00000000000000000005.json\"\ntimes = 1\naction = \"status\"\nstatus = 403\n";
    let lost = rule("action = \"apply-then-status\"\nstatus = 400");
    let (committed, numbers, error) = until_it_fails(&(lost + unreadable)).await;
    assert_eq!((committed, numbers.len()), (4, 5), "{error}");
    assert!(error.to_string().contains("it can't be read whether it is there all the same"), "{error}");
    // The fifth is in the table without the producer's ever being told so: it says that it doesn't know.
    for lost in ["action = \"apply-then-reset\"", "action = \"apply-then-status\"\nstatus = 500"] {
        let (committed, numbers, error) = until_it_fails(&rule(lost)).await;
        assert_eq!((committed, numbers.len()), (4, 5), "{lost}: {error}");
        assert!(gave_up(&error), "{lost}: {error}");
    }
}

/// A table of the versions 0 to 6, behind these rules.
async fn six_batches(rules: &str) -> Faulty {
    let faulty = Faulty::new(rules, Duration::from_secs(1)).await;
    let (mut producer, mut told) = telling(&faulty.lake).await;
    append_one_by_one(&mut producer, &mut told, 5).await;
    producer.finish().await.unwrap();
    faulty
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_can_never_be_read_ends_the_queue_with_what_is_lost() {
    let rules = "[[rule]]\nmethod = \"GET\"\nkey = \"*/_delta_log/00000000000000000003.json\"\naction = \"status\"\nstatus = 500";
    let faulty = Faulty::new(rules, Duration::from_secs(1)).await;
    // It follows while they come, for opening the table later reads that entry too.
    let mut consumer = Consumer::open(&faulty.lake, options()).await.unwrap();
    let (mut producer, mut told) = telling(&faulty.lake).await;
    append_one_by_one(&mut producer, &mut told, 5).await;
    producer.finish().await.unwrap();
    for version in 1..3 {
        let Received::Batch(batch) = next(&mut consumer).await.unwrap() else { panic!("a batch") };
        assert_eq!(batch.version, version);
    }
    let error = next(&mut consumer).await.unwrap_err();
    assert!(matches!(&error, QueueError::Unreadable { lost, .. } if *lost == (3..=6)), "{error}");
    assert!(error.is_loss() && error.to_string().starts_with("versions 3-6 are not delivered"), "{error}");
    assert!(faulty.server.fault_counts()[0].fired > 1, "it was asked for again");
    let error = Consumer::open(&faulty.lake, options()).await.unwrap_err();
    // Both deadlines are a second: the entry is given up, or the store that gives no other answer.
    let is_stalled = matches!(error, QueueError::Stalled { .. });
    assert!(is_stalled || error.to_string().contains("version 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_comes_after_a_file_that_the_store_does_not_give() {
    // The files' names are drawn; the third that is asked for, and every attempt at it, fails.
    let third_and_later: Vec<_> = (3..200).collect();
    let rules = format!(
        "[[rule]]\nmethod = \"GET\"\nkey = \"*.parquet\"\nnth = {third_and_later:?}\naction = \"status\"\nstatus = 500"
    );
    let faulty = six_batches(&rules).await;
    let mut consumer = Consumer::open(&faulty.lake, options()).await.unwrap();
    let mut came = 0;
    let error = loop {
        match next(&mut consumer).await {
            Ok(Received::Batch(_)) => came += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(
        came <= 2 && matches!(error, QueueError::Request { .. } | QueueError::Stalled { .. }),
        "{came}: {error}"
    );
    // The store may be well again, but what follows would be a gap.
    for _ in 0..3 {
        assert!(matches!(next(&mut consumer).await.unwrap_err(), QueueError::TaskEnded(_)));
    }
}
