//! Opening a table: its latest version, what it asks of readers and writers, and its schema.
//!
//! delta-rs does it, from the last checkpoint and the entries after it. It stops at a checkpoint that can't be read
//! and at a `_last_checkpoint` that names one which isn't there. Neither matters where the log itself is whole, and
//! so it is then read from its first entry on.

use std::time::Duration;

use deltalake::kernel::Snapshot;
use futures::{StreamExt, stream};

use super::entry::{Entry, Metadata, Protocol};
use super::error::QueueError;
use super::lake::Lake;
use crate::storage::{RequestFailed, one_line};
use s3mq_clock::monotonic_ns;

/// A table as it stands.
pub(super) struct Opened {
    /// Its latest version.
    pub version: u64,
    /// What it asks of readers and writers.
    pub protocol: Protocol,
    /// Its schema and properties.
    pub metadata: Metadata,
    /// How long it took to find that out.
    pub took: Duration,
}

/// Opens a table that is there. Which data files there are isn't asked: on an old table that is a list of many
/// thousands, and nobody here needs it.
pub(super) async fn open(lake: &Lake) -> Result<Opened, QueueError> {
    let started_ns = monotonic_ns();
    let what = || format!("opening the table at {}", lake.describe());
    let latest = lake.store().unless_stalled(what, latest(lake)).await;
    let (version, protocol, metadata) = match latest.map_err(|outage| lake.stalled(what(), outage))? {
        Ok(latest) => latest,
        Err(QueueError::Table { detail, .. }) => replay(lake, detail).await?,
        Err(error) => return Err(error),
    };
    let took = Duration::from_nanos(monotonic_ns() - started_ns);
    Ok(Opened { version, protocol, metadata, took })
}

type Latest = (u64, Protocol, Metadata);

/// As delta-rs sees it.
async fn latest(lake: &Lake) -> Result<Latest, QueueError> {
    let failed = |detail: String| QueueError::Table { action: "open", place: lake.describe(), detail };
    let snapshot =
        Snapshot::try_new(lake.log().as_ref(), None).await.map_err(
            |error| match RequestFailed::among_causes(&error) {
                Some(_) => lake.failed(format!("opening the table at {}", lake.describe()), &error),
                None => failed(one_line(&error)),
            },
        )?;
    // Through JSON, the form in which the log has them: one type and one check for both ways.
    let read = |value: Result<serde_json::Value, serde_json::Error>| {
        value.map_err(|error| failed(error.to_string()))
    };
    let protocol = read(serde_json::to_value(snapshot.protocol()))?;
    let metadata = read(serde_json::to_value(snapshot.metadata()))?;
    Ok((
        snapshot.version(),
        serde_json::from_value(protocol).map_err(|error| failed(error.to_string()))?,
        serde_json::from_value(metadata).map_err(|error| failed(error.to_string()))?,
    ))
}

/// Entries that are asked for at once.
const AT_ONCE: usize = 64;

/// An entry that the store lists and doesn't have is asked for this often, this far apart: it may be late.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

async fn listed(lake: &Lake, version: u64) -> Result<Option<bytes::Bytes>, QueueError> {
    for _ in 1..TRIES {
        if let Some(bytes) = lake.read_entry(version).await? {
            return Ok(Some(bytes));
        }
        tokio::time::sleep(PAUSE).await;
    }
    lake.read_entry(version).await
}

/// By every entry from the first on, where the log has them all; `problem` is why that is asked for.
async fn replay(lake: &Lake, problem: String) -> Result<Latest, QueueError> {
    let failed = |detail: String| QueueError::Table { action: "open", place: lake.describe(), detail };
    let Ok(versions) = lake.list_versions(None, usize::MAX).await else {
        return Err(failed(problem));
    };
    let gap_before = |next: u64, from: u64| QueueError::Gap { missing: from..=next - 1, next };
    match versions.first() {
        None => return Err(failed(problem)),
        Some(0) => {}
        // A log that was cleaned has a checkpoint for what is gone, if only one that can't be read.
        Some(&oldest) => match lake.list_checkpoints(None).await {
            Ok(none) if none.is_empty() => return Err(gap_before(oldest, 0)),
            _ => return Err(failed(format!("{problem}; {}", gap_before(oldest, 0)))),
        },
    }
    if let Some(gap) = versions.windows(2).find(|pair| pair[0] + 1 < pair[1]) {
        return Err(gap_before(gap[1], gap[0] + 1));
    }
    let (count, mut version) = (versions.len(), 0);
    let (mut protocol, mut metadata) = (None, None);
    let read = |version| async move { (version, listed(lake, version).await) };
    let mut entries = stream::iter(versions).map(read).buffered(AT_ONCE);
    while let Some((read, bytes)) = entries.next().await {
        version = read;
        let Some(bytes) = bytes? else {
            return Err(failed(problem));
        };
        let entry = Entry::parse(&bytes).map_err(|detail| QueueError::BadEntry { version, detail })?;
        protocol = entry.protocol.or(protocol);
        metadata = entry.metadata.or(metadata);
    }
    match (protocol, metadata) {
        (Some(protocol), Some(metadata)) => {
            tracing::warn!(
                "{}: {problem}; all {count} entries of its log were read instead",
                lake.describe()
            );
            Ok((version, protocol, metadata))
        }
        _ => Err(failed(problem)),
    }
}
