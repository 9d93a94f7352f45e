//! A message queue over a Delta Lake table, without a broker.
//!
//! A [`Producer`] appends batches: each becomes one small Parquet file, and its commit one conditional
//! PUT of a log entry. A [`Consumer`] follows the table's versions with one GET each. Any number of
//! producers and consumers may use one table; the store's conditional PUT is the only thing that
//! orders them.
//!
//! Guarantees: a batch is committed exactly once or its producer reports an error; messages of one
//! producer come in order; no committed message is skipped silently. Not guaranteed: an order between
//! producers other than that of their commits, and that nobody else changes the table in ways that a
//! queue can't follow (which is detected and refused).
//!
//! ```no_run
//! use s3mq_queue::{Batch, Consumer, ConsumerOptions, Lake, Producer, ProducerOptions, Received};
//! use s3mq_queue::storage::{Backend, Config, Overrides, Store};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::resolve(Backend::Minio, &Overrides::default(), |name| std::env::var(name).ok())?;
//! let lake = Lake::new(&Store::connect(config).await?, "queues/orders".parse()?)?;
//!
//! let mut producer = Producer::open(&lake, ProducerOptions::default()).await?;
//! producer.append(Batch::from_iter(["first", "second"])).await?;
//! producer.finish().await?;
//!
//! let mut consumer = Consumer::open(&lake, ConsumerOptions::default()).await?;
//! loop {
//!     match consumer.next().await? {
//!         Received::Batch(batch) => {
//!             batch.messages().for_each(|message| println!("{}", String::from_utf8_lossy(message)));
//!         }
//!         Received::Lost(file) => eprintln!("{file}"),
//!         Received::End(_) => break,
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod blocking;
mod checkpoint;
mod commit;
mod consumer;
mod create;
mod entry;
mod error;
mod fetch;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod hot;
mod inflight;
mod lake;
mod open;
mod ownership;
mod parquet_file;
mod phase_lock;
mod poll;
mod preload;
mod producer;
mod stamps;
pub mod storage;
mod table;
mod tail;

pub use batch::Batch;
pub use checkpoint::{
    Checkpoint, CheckpointAnswer, CheckpointBy, CheckpointOptions, CheckpointOutcome, Notice, make_checkpoint,
};
pub use consumer::{Consumer, ConsumerOptions, LostFile, Received, ReceivedBatch, Start};
pub use deltalake::crate_version as deltalake_version;
pub use entry::{EndOfStream, Origin, ProducerEpoch};
pub use error::QueueError;
pub use lake::Lake;
pub use ownership::{Foreign, empty_directory, mark_directory, refuse_foreign};
pub use parquet_file::DataEncoding;
pub use poll::Poll;
pub use preload::{PreloadOptions, Preloaded, preload};
pub use producer::{Appended, Producer, ProducerOptions};
pub use stamps::{ProducerStamps, Stamps};
pub use tail::IDLE_LIST_INTERVAL;
