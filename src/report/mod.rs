//! Exporters: what a run found out, as files and as tables. A file without `.partial` is always whole ([`PartialFile`]).

mod cost;
mod hlog;
mod intervals_csv;
mod partial;
mod rate_csv;
mod step;
mod summary_csv;
mod table;
#[cfg(test)]
mod tests;

pub use cost::{Cost, Prices};
pub(crate) use hlog::{Hlog, merge_hlogs};
pub(crate) use intervals_csv::{TimelineRow, intervals_csv, join};
pub use partial::{PartialFile, prepare_file};
pub(crate) use partial::{demote, discard, lock_directory, prepare_directory, promote};
pub(crate) use rate_csv::RateCsv;
pub use step::{
    Deadlines, FaultCount, FaultRules, Outcome, RssGrowth, RunInfo, StepReport, StoreModel, Verdict,
    step_json,
};
pub(crate) use summary_csv::summary_csv;
pub(crate) use table::{cost_table, log_age_table, percentile_ms, table};
