//! What a consumer makes of a log and of data files that others wrote, changed, cleaned or broke.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[macro_use]
#[path = "../crates/queue/tests/common/mod.rs"]
mod common;

#[path = "reading/files.rs"]
mod files;
#[path = "reading/foreign.rs"]
mod foreign;
#[path = "reading/log.rs"]
mod log;
#[path = "reading/slow_readers.rs"]
mod slow_readers;
#[path = "reading/tables.rs"]
mod tables;
#[path = "reading/vanished.rs"]
mod vanished;
