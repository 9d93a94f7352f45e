//! What must hold of everything that s3mq reads from outside, whatever it is: one `check` a fuzz target, which panics
//! where it doesn't hold. `tests/corpus.rs` of s3mq includes this file and feeds the corpus to the same checks.

pub mod arguments;
pub mod entry;
pub mod faults;
pub mod memory;
pub mod message;
pub mod models;
pub mod parquet;
pub mod prices;
pub mod values;

/// Panics where something doesn't hold of an input.
pub type Check = fn(&[u8]);

/// Every target and its check.
pub const TARGETS: [(&str, Check); 8] = [
    ("arguments", arguments::check),
    ("entry", entry::check),
    ("faults", faults::check),
    ("message", message::check),
    ("models", models::check),
    ("parquet", parquet::check),
    ("prices", prices::check),
    ("values", values::check),
];

/// What is wrong is said on one line, for people.
fn is_one_line(error: &str) -> bool {
    !error.is_empty() && !error.contains('\n')
}
