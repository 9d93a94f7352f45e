use bytes::Bytes;
use delta_kernel::checkpoint::{CheckpointSpec, V2CheckpointConfig};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::json;

use super::*;
use crate::storage::Config;
use s3mq_server::Server;

/// A table of a writer that has `v2Checkpoint`: a checkpoint of version 10 with its ten data files in a sidecar, of
/// which the hint's schema knows nothing, four files after it, and no entry before it.
async fn table_with_a_sidecar() -> (Server, Lake) {
    let server = Server::start(s3mq_server::Config::in_memory("s3mq")).await.unwrap();
    let keys = server.credentials();
    let config = Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
    let lake = Lake::new(&Store::connect(config).await.unwrap(), "table".parse().unwrap()).unwrap();
    let column =
        |name: &str, kind: &str| json!({ "name": name, "type": kind, "nullable": true, "metadata": {} });
    let columns = [column("data", "binary"), column("producer", "integer"), column("seq", "long")];
    let first = [
        json!({ "commitInfo": { "timestamp": 0, "operation": "CREATE TABLE" } }),
        json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint", "appendOnly"] } }),
        json!({ "metaData": { "id": "3f0e9a52-8c1e-4a57-9d3c-0b7a3f0e9a52", "partitionColumns": [], "configuration": {},
                "format": { "provider": "parquet", "options": {} },
                "schemaString": json!({ "type": "struct", "fields": columns }).to_string() } }),
    ];
    put(&lake, &entry(0), first.map(|line| line.to_string()).join("\n")).await;
    for version in 1..=14 {
        let add = json!({ "add": { "path": format!("f{version}.parquet"), "partitionValues": {}, "size": 1,
                "modificationTime": 0, "dataChange": true } });
        put(&lake, &entry(version), add.to_string()).await;
    }
    let place = lake.clone();
    let checkpoint = spawn_blocking(move || {
        let engine = place.log().engine(None);
        let snapshot =
            Snapshot::builder_for(place.log().root_url()).at_version(10).build(engine.as_ref()).unwrap();
        let sidecar = V2CheckpointConfig::WithSidecar { file_actions_per_sidecar_hint: None };
        snapshot.checkpoint(engine.as_ref(), Some(&CheckpointSpec::V2(sidecar))).map(drop).unwrap();
    });
    checkpoint.await.unwrap();
    let actions = |names: [&str; 3]| {
        let fields: Vec<_> = names
            .iter()
            .map(|name| {
                json!({ "name": name, "nullable": true, "metadata": {},
                    "type": { "type": "struct", "fields": [] } })
            })
            .collect();
        json!({ "type": "struct", "fields": fields })
    };
    let hint = json!({ "version": 10, "size": 4, "checkpointSchema": actions(["txn", "add", "remove"]) });
    put(&lake, "_delta_log/_last_checkpoint", hint.to_string()).await;
    for version in 0..10 {
        lake.store().objects().delete(&lake.prefix().join(&entry(version))).await.unwrap();
    }
    (server, lake)
}

fn entry(version: u64) -> String {
    format!("_delta_log/{version:020}.json")
}

async fn put(lake: &Lake, key: &str, body: String) {
    lake.write_file(key, Bytes::from(body)).await.unwrap();
}

async fn log_of(lake: &Lake) -> Vec<(Path, Option<String>)> {
    use futures::TryStreamExt;
    let log = lake.store().objects().list(Some(lake.prefix().child("_delta_log").path()));
    let mut log: Vec<_> = log.map_ok(|object| (object.location, object.e_tag)).try_collect().await.unwrap();
    log.sort();
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_producer_refuses_gets_no_checkpoint() {
    let (_server, lake) = table_with_a_sidecar().await;
    let before = log_of(&lake).await;
    let problem = make_checkpoint(&lake, 14, CheckpointOptions::default()).await.1.unwrap_err().to_string();
    assert!(problem.contains("v2Checkpoint"), "{problem}");
    assert_eq!(log_of(&lake).await, before);
}

/// What is counted stands in the way even if nobody asked whether the table may be written to.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_would_lack_files_does_not_appear() {
    let (_server, lake) = table_with_a_sidecar().await;
    let before = log_of(&lake).await;
    let entries = Arc::new(EntriesRead::default());
    let reads = ObservedReads::new(1, entries.clone());
    let store = Store::connect_observed(lake.store().config().clone(), Some(reads)).await.unwrap();
    let place = Lake::new(&store, lake.prefix().clone()).unwrap();
    let refused = spawn_blocking(move || {
        let engine = place.log().engine(None);
        let snapshot =
            Snapshot::builder_for(place.log().root_url()).at_version(14).build(engine.as_ref()).unwrap();
        write_counted(&place, engine.as_ref(), snapshot, &entries)
    });
    let error = refused.await.unwrap().unwrap_err().downcast::<QueueError>().unwrap();
    assert!(error.to_string().contains("4 of the table's 14 data files; nothing was written"), "{error}");
    assert_eq!(log_of(&lake).await, before);
}
