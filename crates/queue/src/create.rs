//! Creating the table: version 0, by one conditional PUT like any other commit (`docs/decisions/0001`).

use bytes::Bytes;
use serde_json::json;
use uuid::Uuid;

use super::commit::FIRST_PAUSE;
use super::entry::ENGINE_INFO;
use super::error::QueueError;
use super::lake::{Lake, Written};
use super::ownership::refuse_foreign_files;
use super::table::{CREATED_BY, DATA, PRODUCER, SEQ};
use crate::storage::{Backoff, MAX_BACKOFF};
use s3mq_clock::wall_us;

/// Creates the table if it isn't there. Where others have files, none is created unless it may be.
pub(super) async fn create_if_absent(lake: &Lake, append_to_existing: bool) -> Result<(), QueueError> {
    if !lake.list_versions(None, 1).await?.is_empty() {
        return Ok(());
    }
    if !append_to_existing {
        refuse_foreign_files(lake).await?;
    }
    create(lake).await
}

pub(super) async fn create(lake: &Lake) -> Result<(), QueueError> {
    let commit_id = Uuid::new_v4();
    let entry = Bytes::from(first_entry(commit_id));
    let store = lake.store().clone();
    let tried = store.available_time();
    let mut backoff = Backoff(FIRST_PAUSE);
    loop {
        let refusal = match lake.write_entry(0, entry.clone(), commit_id).await?.0 {
            Written::Yes => return Ok(()),
            Written::Exists => None,
            Written::Refused(problem) => Some(problem),
        };
        // Whoever made it, the table is there, and is looked at next. A refusal may be of the answer alone.
        match (lake.read_entry(0).await, refusal) {
            (Ok(Some(_)), _) => return Ok(()),
            (_, Some(problem)) => return Err(lake.cannot("create", problem)),
            (Err(error), None) => return Err(error),
            (Ok(None), None) if tried.elapsed() > store.config().retry_timeout => {
                let detail = "the store says that version 0 exists, but it can't be read";
                return Err(lake.cannot("create", detail.to_owned()));
            }
            (Ok(None), None) => backoff.pause(MAX_BACKOFF).await,
        }
    }
}

fn first_entry(commit_id: Uuid) -> String {
    let now_ms = wall_us().div_euclid(1_000);
    let column =
        |name: &str, kind: &str| json!({ "name": name, "type": kind, "nullable": true, "metadata": {} });
    let schema = json!({
        "type": "struct",
        "fields": [column(DATA, "binary"), column(PRODUCER, "integer"), column(SEQ, "long")],
    });
    let actions = [
        json!({ "commitInfo": {
            "timestamp": now_ms,
            "operation": "CREATE TABLE",
            "operationParameters": {},
            "engineInfo": ENGINE_INFO,
            "s3mq.commitId": commit_id,
        }}),
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }),
        json!({ "metaData": {
            "id": Uuid::new_v4(),
            "format": { "provider": "parquet", "options": {} },
            "schemaString": schema.to_string(),
            "partitionColumns": [],
            "createdTime": now_ms,
            "configuration": {
                CREATED_BY: ENGINE_INFO,
                "delta.appendOnly": "true",
                // The log is what consumers follow; nobody but the operator may shorten it.
                "delta.enableExpiredLogCleanup": "false",
            },
        }}),
    ];
    actions.map(|action| action.to_string()).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::storage::{Config, Store};
    use crate::table::Access;
    use s3mq_server::Server;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_created_may_be_written_to_and_is_created_once() {
        let server = Server::start(s3mq_server::Config::in_memory("s3mq")).await.unwrap();
        let keys = server.credentials();
        let config =
            Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
        let lake = Lake::new(&Store::connect(config).await.unwrap(), "queue".parse().unwrap()).unwrap();
        let created = futures::future::join_all((0..8).map(|_| create_if_absent(&lake, false))).await;
        assert!(created.iter().all(Result::is_ok), "{created:?}");
        assert_eq!(lake.list_versions(None, usize::MAX).await.unwrap(), [0]);
        let entry = Entry::parse(&lake.read_entry(0).await.unwrap().unwrap()).unwrap();
        assert!(entry.protocol.is_some() && entry.metadata.is_some());
        Access::Write.check(&lake, entry.protocol.as_ref(), entry.metadata.as_ref()).unwrap();
        let opened = super::super::open::open(&lake).await.unwrap();
        assert_eq!((opened.version, Some(opened.metadata)), (0, entry.metadata));
    }
}
