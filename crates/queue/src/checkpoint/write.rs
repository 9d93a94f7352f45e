//! Making one checkpoint.

use std::error::Error;
use std::iter;
use std::sync::{Arc, OnceLock};

use delta_kernel::checkpoint::LastCheckpointHintStats;
use delta_kernel::{Engine, Snapshot, SnapshotRef};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::data_files::{Base, EntriesRead};
use super::{CheckpointAnswer, CheckpointOptions};
use crate::entry::through_json;
use crate::error::QueueError;
use crate::lake::Lake;
use crate::ownership::check_writable;
use crate::storage::{ObservedReads, Requests, Store};

/// Below whatever commits: on a busy machine a checkpoint waits, not a commit.
const NICE: i32 = 10;

/// Makes the checkpoint of a version that is there, on a thread, a runtime and connections of its own, which are gone when
/// it is made. The table must be one that a producer would write to.
pub async fn make_checkpoint(lake: &Lake, version: u64, options: CheckpointOptions) -> CheckpointAnswer {
    let (done, answer) = oneshot::channel();
    let place = lake.clone();
    let thread = std::thread::Builder::new().name("checkpoint".to_owned());
    match thread.spawn(move || on_this_thread(&place, version, options, done)) {
        Ok(_) => answer.await.unwrap_or_else(|_| nothing("its thread ended".to_owned())),
        Err(error) => nothing(error.to_string()),
    }
}

fn nothing(problem: String) -> CheckpointAnswer {
    (Requests::default(), Err(QueueError::Checkpoint(problem)))
}

fn on_this_thread(
    lake: &Lake,
    version: u64,
    options: CheckpointOptions,
    done: oneshot::Sender<CheckpointAnswer>,
) {
    // Of this thread and those that it starts. Where it isn't allowed, the checkpoint is merely less polite.
    let _ = rustix::process::setpriority_process(None, NICE);
    // The kernel blocks the thread that it is called from while the worker does its requests.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = done.send(nothing(error.to_string()));
            return;
        }
    };
    let entries = Arc::new(EntriesRead::default());
    let reads = ObservedReads::new(options.requests_at_once.max(1), entries.clone());
    // Closed when no call into the kernel is left.
    let (call, mut calls) = mpsc::channel::<()>(1);
    runtime.block_on(async {
        let made = async move {
            let store = Store::connect_observed(lake.store().config().clone(), Some(reads)).await;
            let store = store.map_err(|error| nothing(error.to_string()))?;
            let made = match Lake::new(&store, lake.prefix().clone()) {
                Ok(lake) => write(lake, entries, version, options, call).await,
                Err(error) => Err(error),
            };
            Ok((store.requests(), made))
        };
        let _ = done.send(made.await.unwrap_or_else(|nothing| nothing));
        // One that was given up still waits for its request, and would panic if that went away with the runtime.
        calls.recv().await;
    });
    runtime.shutdown_background();
}

/// Has the kernel write it, until it is there or the store has not answered for too long.
async fn write(
    lake: Lake,
    entries: Arc<EntriesRead>,
    version: u64,
    options: CheckpointOptions,
    call: mpsc::Sender<()>,
) -> Result<(), QueueError> {
    let what = || format!("the checkpoint of version {version} of {}", lake.describe());
    let place = lake.clone();
    let written = spawn_blocking(move || {
        let written = write_with_kernel(&place, &entries, version, options);
        drop(call);
        written
    });
    let written = lake.store().unless_stalled(what, written).await;
    let written = written.map_err(|outage| lake.stalled(what(), outage))?;
    let Err(error) = written? else { return Ok(()) };
    match error.downcast::<QueueError>() {
        Ok(error) => Err(*error),
        Err(error) => match lake.failed(what(), &*error) {
            QueueError::Request { detail, .. } => {
                Err(QueueError::Checkpoint(why_absent(&lake, version).await.unwrap_or(detail)))
            }
            error => Err(error),
        },
    }
}

/// Of the queue, or of the kernel, which may say in words of its own that the store failed.
type AnyError = Box<dyn Error + Send + Sync>;

/// Writes the checkpoint with delta-rs's kernel, on a thread that may block. Unlike delta-rs's `create_checkpoint`, it
/// loads no table to name its version, asks whether the table may be written to, and counts the data files.
fn write_with_kernel(
    lake: &Lake,
    entries: &Arc<EntriesRead>,
    version: u64,
    options: CheckpointOptions,
) -> Result<(), AnyError> {
    let (engine, table) = (lake.log().engine(None), lake.log().root_url());
    let snapshot = Snapshot::builder_for(table).at_version(version).build(engine.as_ref())?;
    let configuration = snapshot.table_configuration();
    let protocol = through_json(configuration.protocol())?;
    let metadata = through_json(configuration.metadata())?;
    let writable = check_writable(lake, &protocol, &metadata, options.append_to_existing);
    Handle::current().block_on(writable)?;
    if snapshot.log_segment().checkpoint_version == Some(version) {
        return Ok(());
    }
    write_counted(lake, engine.as_ref(), snapshot, entries)
}

/// Writes the checkpoint of a snapshot, unless it would lack a data file.
fn write_counted(
    lake: &Lake,
    engine: &dyn Engine,
    snapshot: SnapshotRef,
    entries: &Arc<EntriesRead>,
) -> Result<(), AnyError> {
    let version = snapshot.version();
    let base = Handle::current().block_on(Base::read(entries, lake, snapshot.log_segment()))?;
    let writer = snapshot.create_checkpoint_writer(engine)?;
    let data = writer.checkpoint_data(engine)?;
    let (counted, problem) = (data.state(), Arc::new(OnceLock::new()));
    let compare = {
        let (entries, written, problem) = (entries.clone(), data.state(), problem.clone());
        move || {
            let written = usize::try_from(written.add_actions_count()).unwrap_or_default();
            let detail = match entries.data_files(&base, version) {
                Ok(expected) if expected == written => return None,
                Ok(expected) => format!("it would have {written} of the table's {expected} data files"),
                Err(detail) => format!("its data files can't be counted: {detail}"),
            };
            let _ = problem.set(detail.clone());
            Some(Err(delta_kernel::Error::generic(detail)))
        }
    };
    // The comparison comes when all entries were read and before the file is finished: where it fails, none appears.
    let batches = data.map(|batch| batch.and_then(|batch| batch.apply_selection_vector()));
    let batches = Box::new(batches.chain(iter::once_with(compare).flatten()));
    let path = writer.checkpoint_path()?;
    if let Err(error) = engine.parquet_handler().write_parquet_file(path.clone(), batches) {
        let Some(detail) = problem.get() else { return Err(error.into()) };
        return Err(lake.cannot("checkpoint", format!("{detail}; nothing was written")).into());
    }
    let size_bytes = engine.storage_handler().head(&path)?.size;
    let counted = Arc::into_inner(counted)
        .ok_or_else(|| delta_kernel::Error::generic("the checkpoint's data is still being read"))?;
    let stats = LastCheckpointHintStats::from_reconciliation_state(counted, size_bytes, 0)?;
    Ok(writer.finalize(engine, &stats)?)
}

/// Why a version that isn't there has no checkpoint, which the kernel says in words of its own.
async fn why_absent(lake: &Lake, version: u64) -> Option<String> {
    match lake.list_versions(None, usize::MAX).await.ok()?.last() {
        None => Some("there is no table".to_owned()),
        Some(&latest) if latest < version => Some(format!("the table's latest version is {latest}")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
