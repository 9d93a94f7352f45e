//! `{rate}.csv`: cumulative percentiles over time, in the format of the field's known benchmark.
//!
//! Header `time_from_start,p50,p75,p85,p95,p99`; all values in seconds with six decimals, whatever the
//! locale. `time_from_start` counts from the consumer's start; percentiles are nearest-rank and
//! cumulative since the warm-up.

use std::io::{self, Write};

use csv::Writer;

use crate::measure::PercentileRow;

/// Writes the rows of one rate.
#[derive(Debug)]
pub struct RateCsv<W: Write> {
    writer: Writer<W>,
}

impl<W: Write> RateCsv<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn new(inner: W) -> io::Result<Self> {
        let mut writer = Writer::from_writer(inner);
        writer.write_record(["time_from_start", "p50", "p75", "p85", "p95", "p99"])?;
        Ok(Self { writer })
    }

    /// Writes a row. It reaches the file at once, so that a run can be watched.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn row(&mut self, row: &PercentileRow) -> io::Result<()> {
        let values = std::iter::once(row.time_from_start_seconds).chain(row.percentiles_seconds);
        self.writer.write_record(values.map(|value| format!("{value:.6}")))?;
        self.writer.flush()
    }

    /// Gives the file back, for finishing.
    ///
    /// # Errors
    /// When what is buffered can't be written.
    pub fn into_inner(self) -> io::Result<W> {
        self.writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_exactly_this() {
        let mut csv = RateCsv::new(Vec::new()).unwrap();
        csv.row(&PercentileRow {
            time_from_start_seconds: 12.5,
            percentiles_seconds: [0.05, 0.075, 0.085, 0.1, 1.234_567_8],
        })
        .unwrap();
        let text = String::from_utf8(csv.into_inner().unwrap()).unwrap();
        assert_eq!(
            text,
            "time_from_start,p50,p75,p85,p95,p99\n12.500000,0.050000,0.075000,0.085000,0.100000,1.234568\n"
        );
    }
}
