//! The program from outside: command lines, exit codes, files, signals.
//!
//! Every test runs the built binary in a directory of its own, with an environment of its own, against
//! the embedded server. Nothing is asserted about how long something takes, except where ending in time
//! is what is promised; what a test has to wait for it waits for, rather than sleeping.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "cli/checkpoints.rs"]
mod checkpoints;
#[path = "cli/clocks.rs"]
mod clocks;
#[path = "cli/containers.rs"]
mod containers;
#[path = "cli/credentials.rs"]
mod credentials;
#[path = "cli/endpoints.rs"]
mod endpoints;
#[path = "cli/faults.rs"]
mod faults;
#[path = "cli/frozen.rs"]
mod frozen;
#[path = "cli/gateway.rs"]
mod gateway;
#[path = "cli/harness.rs"]
mod harness;
#[path = "cli/interruption.rs"]
mod interruption;
#[path = "cli/log_age.rs"]
mod log_age;
#[path = "cli/manual.rs"]
mod manual;
#[path = "cli/merge.rs"]
mod merge;
#[path = "cli/metadata_service.rs"]
mod metadata_service;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/phases.rs"]
mod phases;
#[path = "cli/prefix.rs"]
mod prefix;
#[path = "cli/processes.rs"]
mod processes;
#[path = "cli/roles.rs"]
mod roles;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/stalls.rs"]
mod stalls;
#[path = "cli/store.rs"]
mod store;
#[path = "cli/store_failures.rs"]
mod store_failures;
#[path = "cli/store_models.rs"]
mod store_models;
#[path = "cli/stores.rs"]
mod stores;
#[path = "cli/surroundings.rs"]
mod surroundings;
#[path = "cli/sweep.rs"]
mod sweep;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/verdicts.rs"]
mod verdicts;
