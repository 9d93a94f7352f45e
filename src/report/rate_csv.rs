//! `{rate}.csv`: percentiles over time, in the format of the field's known benchmark. All values in seconds with six
//! decimals; `time_from_start` counts from the consumer's start, percentiles are cumulative since the warm-up.

use std::io::{self, Write};

use csv::Writer;

use crate::measure::PercentileRow;

/// Writes the rows of one rate.
#[derive(Debug)]
pub(crate) struct RateCsv<W: Write> {
    writer: Writer<W>,
}

impl<W: Write> RateCsv<W> {
    /// Writes the header.
    pub(crate) fn new(inner: W) -> io::Result<Self> {
        let mut writer = Writer::from_writer(inner);
        writer.write_record(["time_from_start", "p50", "p75", "p85", "p95", "p99"])?;
        Ok(Self { writer })
    }

    /// Writes a row. It reaches the file at once, so that a run can be watched.
    pub(crate) fn row(&mut self, row: &PercentileRow) -> io::Result<()> {
        let values = std::iter::once(row.time_from_start_seconds).chain(row.percentiles_seconds);
        self.writer.write_record(values.map(|value| format!("{value:.6}")))?;
        self.writer.flush()
    }

    /// Gives the file back, for finishing.
    pub(crate) fn into_inner(self) -> io::Result<W> {
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
