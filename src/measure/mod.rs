//! Pure numbers: histograms, percentiles, what a run's messages add up to. No storage, no files, no clock.

mod latency;
mod ledger;
mod meter;
mod percentiles;
mod run;
mod stages;
mod trend;

pub use latency::{Latencies, LatencySummary};
pub use ledger::{Integrity, Ledger, StreamIntegrity};
pub use meter::{Meter, PercentileRow, REPORTED_PERCENTILES, Sample};
pub use percentiles::{ChosenPercentile, Percentiles};
pub use run::Run;
pub use stages::{Stage, StageSummary, Waterfall};
pub use trend::theil_sen_slope;
