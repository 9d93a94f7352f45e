//! Exporters: what a run found out, as files and as a table.
//!
//! Each exporter turns numbers into bytes; [`PartialFile`] is the one that knows how a result file comes
//! to be: it grows as `….partial` and gets its name when its step has ended, so that a file without
//! `.partial` is always whole. To add an exporter: a file here, a line below, and its call where a step ends
//! (`bench::step`).

mod cost;
mod hlog;
mod intervals_csv;
mod log_age;
mod partial;
mod rate_csv;
mod raw_csv;
mod step;
mod summary_csv;
mod table;
#[cfg(test)]
mod tests;

pub use cost::{Cost, Prices, PricesError, Usage};
pub use hlog::{Hlog, HlogError, merge_hlogs};
pub use intervals_csv::{TimelineRow, intervals_csv, join};
pub use log_age::log_age_table;
pub use partial::{PartialFile, demote, discard, lock_directory, prepare_directory, prepare_file, promote};
pub use rate_csv::RateCsv;
pub use raw_csv::RawCsv;
pub use step::{
    Deadlines, FaultCount, FaultRules, Outcome, RssGrowth, RunInfo, StepReport, StoreModel, Verdict,
    step_json,
};
pub use summary_csv::summary_csv;
pub use table::{cost_table, percentile_ms, table};
