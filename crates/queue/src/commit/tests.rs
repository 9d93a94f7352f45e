use super::*;
use crate::entry::{EndOfStream, ProducerEpoch, commit_of_end};
use crate::storage::{Config, Store};
use crate::{Producer, ProducerOptions};
use s3mq_server::Server;

async fn table() -> (Server, Lake) {
    table_on(s3mq_server::Config::in_memory("s3mq")).await
}

async fn table_on(config: s3mq_server::Config) -> (Server, Lake) {
    let server = Server::start(config).await.unwrap();
    let keys = server.credentials();
    let config = Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
    let lake = Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap();
    // Versions 0 (the table) and 1 (an end of stream).
    Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
    (server, lake)
}

fn entry() -> (Uuid, Bytes) {
    let commit_id = Uuid::new_v4();
    let by = ProducerEpoch { producer: 0, epoch: Uuid::new_v4() };
    (commit_id, Bytes::from(commit_of_end(commit_id, EndOfStream { by, count: 0, committed_us: None }, 0)))
}

async fn versions(lake: &Lake) -> Vec<u64> {
    lake.list_versions(None, usize::MAX).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committer_far_behind_catches_up_at_once() {
    let (_server, lake) = table().await;
    let mut other = Committer::after(lake.clone(), 1, Instant::now());
    for _ in 0..60 {
        let (commit_id, bytes) = entry();
        other.commit(bytes, commit_id).await.unwrap();
    }
    let (commit_id, bytes) = entry();
    let committed = Committer::after(lake.clone(), 1, Instant::now()).commit(bytes, commit_id).await.unwrap();
    assert_eq!(committed, Committed { version: 62, retries: 1, conflicts: 60 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_recognised_as_ours() {
    let (_server, lake) = table().await;
    let (commit_id, bytes) = entry();
    // It was applied; only the answer got lost, so the committer PUTs the same bytes again.
    assert!(matches!(lake.write_entry(2, bytes.clone(), commit_id).await.unwrap(), (Written::Yes, 1)));
    let committed = Committer::after(lake.clone(), 1, Instant::now()).commit(bytes, commit_id).await.unwrap();
    assert_eq!(committed, Committed { version: 2, retries: 0, conflicts: 0 });
    assert_eq!(versions(&lake).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_others_are_passed_without_a_gap() {
    let (_server, lake) = table().await;
    for version in 2..5 {
        let (commit_id, bytes) = entry();
        assert!(matches!(lake.write_entry(version, bytes, commit_id).await.unwrap(), (Written::Yes, 1)));
    }
    let (commit_id, bytes) = entry();
    let mut committer = Committer::after(lake.clone(), 1, Instant::now());
    let committed = committer.commit(bytes, commit_id).await.unwrap();
    assert_eq!(committed, Committed { version: 5, retries: 1, conflicts: 3 });
    let (commit_id, bytes) = entry();
    assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, 6);
    assert_eq!(versions(&lake).await, [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_pause_the_tip_is_looked_up_before_writing() {
    let (_server, lake) = table().await;
    let mut committer = Committer::after(lake.clone(), 1, Instant::now());
    for _ in 0..3 {
        Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
    }
    // The log is checkpointed and cleaned up to version 3 while this producer is stopped: a PUT of
    // version 2 would succeed, and no reader would ever look there.
    let mut table = deltalake::DeltaTable::new(lake.log().clone());
    table.load().await.unwrap();
    deltalake::checkpoints::create_checkpoint(&table, None).await.unwrap();
    for version in 0..4 {
        use object_store::ObjectStoreExt;
        let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
        lake.store().objects().delete(&path).await.unwrap();
    }
    committer.tip_seen = Instant::now() - TIP_MAY_BE_STALE * 2;
    let (commit_id, bytes) = entry();
    assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, 5);
    assert_eq!(versions(&lake).await, [4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_and_names_the_version() {
    let (server, lake) = table().await;
    let mut config = lake.store().config().clone();
    let crate::storage::Credentials::Static { secret_key, .. } = &mut config.credentials else {
        panic!("static keys")
    };
    *secret_key = "wrong".to_owned();
    let lake = Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap();
    let (commit_id, bytes) = entry();
    let error = Committer::after(lake, 1, Instant::now()).commit(bytes, commit_id).await.unwrap_err();
    assert!(matches!(error, QueueError::Commit { version: 2, attempts: 1, .. }), "{error}");
    server.shutdown().await;
}

/// Versions 2 to 4 appear, a checkpoint of the last one, and those before it are cleaned away.
async fn cleaned_meanwhile(lake: &Lake) {
    use object_store::ObjectStoreExt;
    for _ in 0..3 {
        Producer::open(lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
    }
    crate::make_checkpoint(lake, 4, Default::default()).await.1.unwrap();
    for version in 0..4 {
        let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
        lake.store().objects().delete(&path).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_may_have_been_cleaned_away_is_not_sent_again() {
    let (_server, lake) = table().await;
    let mut committer =
        Committer { stale_after: Duration::ZERO, ..Committer::after(lake.clone(), 1, Instant::now()) };
    cleaned_meanwhile(&lake).await;
    // After a PUT of version 2 that nobody answered: it may have been one of those that are gone.
    let unknown = committer.look_up_tip(true).await.unwrap().unwrap_err();
    assert!(unknown.contains("may be committed"), "{unknown}");
    assert_eq!(versions(&lake).await, [4]);
    // Without one there is nothing to be unsure of.
    assert_eq!(committer.look_up_tip(false).await.unwrap(), Ok(()));
    assert_eq!(committer.next, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_below_a_cleaned_log_is_never_acknowledged() {
    let (_server, lake) = table().await;
    let mut committer = Committer::after(lake.clone(), 1, Instant::now());
    cleaned_meanwhile(&lake).await;
    // Stopped between its look at the log's end and the PUT, which the store has taken.
    let (commit_id, bytes) = entry();
    assert!(matches!(lake.write_entry(2, bytes, commit_id).await.unwrap(), (Written::Yes, 1)));
    committer.stale_after = Duration::ZERO;
    let error = committer.landed(Instant::now(), 0, 0).await.unwrap_err();
    assert!(matches!(error, QueueError::Commit { version: 2, attempts: 1, .. }), "{error}");
    assert!(error.to_string().contains("cleaned"), "{error}");
}

/// The same, where nothing but the checkpoint is left, of a later version or of the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_below_a_checkpoint_is_never_acknowledged() {
    use object_store::ObjectStoreExt;
    for others in [1, 3] {
        let (_server, lake) = table().await;
        let mut committer = Committer::after(lake.clone(), 1, Instant::now());
        for _ in 0..others {
            Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
        }
        crate::make_checkpoint(&lake, 1 + others, Default::default()).await.1.unwrap();
        for version in 0..=1 + others {
            let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
            lake.store().objects().delete(&path).await.unwrap();
        }
        let (commit_id, bytes) = entry();
        assert!(matches!(lake.write_entry(2, bytes, commit_id).await.unwrap(), (Written::Yes, 1)));
        committer.stale_after = Duration::ZERO;
        let error = committer.landed(Instant::now(), 0, 0).await.unwrap_err();
        assert!(error.to_string().contains("cleaned"), "{others}: {error}");
    }
}

/// Its checkpoint stands for the version before it, whose entry is gone for good.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_commit_after_a_checkpoint_stands() {
    use object_store::ObjectStoreExt;
    let (_server, lake) = table().await;
    crate::make_checkpoint(&lake, 1, Default::default()).await.1.unwrap();
    for version in 0..=1 {
        let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
        lake.store().objects().delete(&path).await.unwrap();
    }
    let mut committer =
        Committer { stale_after: Duration::ZERO, ..Committer::after(lake.clone(), 1, Instant::now()) };
    for version in 2..4 {
        let (commit_id, bytes) = entry();
        assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, version);
    }
}

/// While an answer is on its way, the log may be cleaned.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_late_answer_shows_is_as_old_as_the_question() {
    let mut config = s3mq_server::Config::in_memory("s3mq");
    let late = Duration::from_millis(300);
    let rule = "[[rule]]\nmethod = 'GET'\nkey = '*/_delta_log/*.json'\naction = 'delay'\ndelay_ms = 300";
    config.faults = Some(s3mq_server::Faults::parse(rule).unwrap());
    let (_server, lake) = table_on(config).await;
    // Another's version 2 is read, which takes its time.
    Producer::open(&lake, ProducerOptions::default()).await.unwrap().finish().await.unwrap();
    let mut committer = Committer::after(lake.clone(), 1, Instant::now());
    let (commit_id, _) = entry();
    assert!(matches!(committer.winner(commit_id).await.unwrap(), Winner::Another));
    assert!(committer.tip_seen.elapsed() >= late);
    // So is the version before ours.
    (committer.next, committer.stale_after) = (3, Duration::ZERO);
    assert!(committer.sees_the_tip().await.unwrap());
    assert!(committer.tip_seen.elapsed() >= late);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_to_a_slow_store_is_looked_into_and_stands() {
    let (_server, lake) = table().await;
    let mut committer =
        Committer { stale_after: Duration::ZERO, ..Committer::after(lake.clone(), 1, Instant::now()) };
    for version in 2..5 {
        let (commit_id, bytes) = entry();
        assert_eq!(committer.commit(bytes, commit_id).await.unwrap().version, version);
    }
    assert_eq!(versions(&lake).await, [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_gone_gets_no_stray_version() {
    use object_store::ObjectStoreExt;
    let (_server, lake) = table().await;
    let mut committer =
        Committer { stale_after: Duration::ZERO, ..Committer::after(lake.clone(), 1, Instant::now()) };
    for version in 0..2 {
        let path = object_store::path::Path::from(format!("queue/_delta_log/{version:020}.json"));
        lake.store().objects().delete(&path).await.unwrap();
    }
    let (commit_id, bytes) = entry();
    let error = committer.commit(bytes, commit_id).await.unwrap_err();
    assert!(matches!(error, QueueError::MadeAnew { known: 1, .. }), "{error}");
    assert!(versions(&lake).await.is_empty());
}
