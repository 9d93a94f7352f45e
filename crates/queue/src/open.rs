//! Opening a table with delta-rs: from the last checkpoint and the entries after it, or, where that can't be read and
//! the log is whole, from all of its entries.

use std::time::Duration;

use deltalake::kernel::Snapshot;
use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::create::create_if_absent;
use super::entry::{Entry, Metadata, Protocol, through_json};
use super::error::QueueError;
use super::lake::Lake;
use super::ownership::check_writable;
use crate::storage::{RequestFailed, one_line};

/// A table as it stands when it was asked for.
pub(super) struct Opened {
    pub version: u64,
    pub protocol: Protocol,
    pub metadata: Metadata,
    pub asked: Instant,
    pub took: Duration,
}

/// Opens a table for appending, and creates it where it isn't there. It must be one that we may write to.
pub(super) async fn open_for_writing(lake: &Lake, append_to_existing: bool) -> Result<Opened, QueueError> {
    create_if_absent(lake, append_to_existing).await?;
    let opened = open(lake).await?;
    check_writable(lake, &opened.protocol, &opened.metadata, append_to_existing).await?;
    Ok(opened)
}

/// Opens a table that is there, without the list of its data files, which is long and nobody needs.
pub(super) async fn open(lake: &Lake) -> Result<Opened, QueueError> {
    let asked = Instant::now();
    let what = || format!("opening the table at {}", lake.describe());
    let latest = lake.store().unless_stalled(what, latest(lake)).await;
    let (version, protocol, metadata) = match latest.map_err(|outage| lake.stalled(what(), outage))? {
        Ok(latest) => latest,
        Err(QueueError::Table { detail, .. }) => without_hint(lake, detail).await?,
        Err(error) => return Err(error),
    };
    Ok(Opened { version, protocol, metadata, asked, took: asked.elapsed() })
}

type Latest = (u64, Protocol, Metadata);

async fn latest(lake: &Lake) -> Result<Latest, QueueError> {
    let snapshot = Snapshot::try_new(lake.log().as_ref(), None).await;
    let snapshot = snapshot.map_err(|error| match RequestFailed::among_causes(&error) {
        Some(_) => lake.failed(format!("opening the table at {}", lake.describe()), &error),
        None => lake.cannot("open", one_line(&error)),
    })?;
    let read = || Ok((through_json(snapshot.protocol())?, through_json(snapshot.metadata())?));
    let (protocol, metadata) =
        read().map_err(|error: serde_json::Error| lake.cannot("open", error.to_string()))?;
    Ok((snapshot.version(), protocol, metadata))
}

/// From a checkpoint that is whole, where `_last_checkpoint` names one that isn't; `problem` is why that is tried.
async fn without_hint(lake: &Lake, problem: String) -> Result<Latest, QueueError> {
    match latest(&Lake::new(&lake.store().hiding(LAST_CHECKPOINT), lake.prefix().clone())?).await {
        Ok(latest) => {
            tracing::warn!(
                "{}: {problem}; the log was listed without `_last_checkpoint` instead",
                lake.describe()
            );
            Ok(latest)
        }
        Err(QueueError::Table { .. }) => replay(lake, problem).await,
        Err(error) => Err(error),
    }
}

/// Names the last checkpoint (Delta protocol, "Last Checkpoint File").
const LAST_CHECKPOINT: &str = "_last_checkpoint";

const AT_ONCE: usize = 64;

/// By every entry from the first on, where the log has them all; `problem` is why that is asked for.
async fn replay(lake: &Lake, problem: String) -> Result<Latest, QueueError> {
    let failed = |detail: String| lake.cannot("open", detail);
    let versions = match lake.list_versions(None, usize::MAX).await {
        Ok(versions) if !versions.is_empty() => versions,
        _ => return Err(failed(problem)),
    };
    let gap_before = |next: u64, from: u64| QueueError::Gap { missing: from..=next - 1, next };
    if versions[0] > 0 {
        // A log that was cleaned has a checkpoint for what is gone, if only one that can't be read.
        let gap = gap_before(versions[0], 0);
        return Err(match lake.list_checkpoints(None).await {
            Ok(none) if none.is_empty() => gap,
            _ => failed(format!("{problem}; {gap}")),
        });
    }
    if let Some(gap) = versions.windows(2).find(|pair| pair[0] + 1 < pair[1]) {
        return Err(gap_before(gap[1], gap[0] + 1));
    }
    let (count, mut version) = (versions.len(), 0);
    let (mut protocol, mut metadata) = (None, None);
    let read = |version| async move { (version, lake.read_listed_entry(version).await) };
    let mut entries = stream::iter(versions).map(read).buffered(AT_ONCE);
    while let Some((read, bytes)) = entries.next().await {
        version = read;
        let bytes = bytes?.ok_or_else(|| failed(problem.clone()))?;
        let entry = Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version, detail })?;
        protocol = entry.protocol.or(protocol);
        metadata = entry.metadata.or(metadata);
    }
    let (protocol, metadata) = protocol.zip(metadata).ok_or_else(|| failed(problem.clone()))?;
    tracing::warn!("{}: {problem}; all {count} entries of its log were read instead", lake.describe());
    Ok((version, protocol, metadata))
}
