//! `{rate}.hlog`: an HdrHistogram interval log, which the tools of that family read. One line an interval and tag:
//! `tag=e2e` is from due to delivered, and one tag a stage, in microseconds; the warm-up is left out. Format:
//! <https://github.com/HdrHistogram/HdrHistogram>, `HistogramLogWriter`, version 1.3.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, IntervalLogWriterError, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::measure::{Latencies, Sample, Stage};
use strum::VariantArray;

/// What a log says of its values.
const UNIT: &str = "latencies in microseconds";
/// The tag of the whole latency of a message.
const WHOLE: &str = "e2e";

/// Writes the intervals of one run.
pub(crate) struct Hlog<W: Write> {
    inner: W,
    serializer: V2DeflateSerializer,
    begun: bool,
}

impl<W: Write> Hlog<W> {
    /// Writes the first lines.
    pub(crate) fn new(mut inner: W) -> io::Result<Self> {
        writeln!(inner, "#[{UNIT}, s3mq {}]", env!("CARGO_PKG_VERSION"))?;
        writeln!(inner, "#[Histogram log format version 1.3]")?;
        Ok(Self { inner, serializer: V2DeflateSerializer::new(), begun: false })
    }

    /// Writes what was measured in an interval that began at `start_us` (Unix microseconds) and was
    /// `length_us` long; nothing where nothing was measured.
    pub(crate) fn interval(&mut self, start_us: i64, length_us: i64, sample: &Sample) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            writeln!(self.inner, "#[StartTime: {:.3} (seconds since epoch)]", start_us as f64 / 1e6)?;
            writeln!(
                self.inner,
                "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
            )?;
        }
        self.line(WHOLE, start_us, length_us, &sample.latencies)?;
        for &stage in Stage::VARIANTS {
            self.line(stage.into(), start_us, length_us, sample.stages.stage(stage))?;
        }
        self.inner.flush()
    }

    fn line(&mut self, tag: &str, start_us: i64, length_us: i64, latencies: &Latencies) -> io::Result<()> {
        let histogram = latencies.histogram();
        if histogram.is_empty() {
            return Ok(());
        }
        let [start, length] = [start_us, length_us].map(|us| Duration::from_micros(us.max(0) as u64));
        IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.inner, &mut self.serializer)?
            .write_histogram(histogram, start, length, Tag::new(tag))
            .map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
            })
    }

    /// Gives the file back, for finishing.
    pub(crate) fn into_inner(self) -> W {
        self.inner
    }
}

/// Adds the histograms of several logs up, by tag, in the order of a message's stages; other tags follow.
pub(crate) fn merge_hlogs(logs: &[Vec<u8>]) -> Result<Vec<(String, Latencies)>, (usize, String)> {
    let mut merged: BTreeMap<String, Latencies> = BTreeMap::new();
    for (index, log) in logs.iter().enumerate() {
        add_log(log, &mut merged).map_err(|error| (index, error))?;
    }
    let rank = |tag: &str| match tag {
        WHOLE => 0,
        tag => {
            Stage::VARIANTS.iter().position(|&stage| tag == <&str>::from(stage)).map_or(usize::MAX, |i| i + 1)
        }
    };
    let mut merged: Vec<_> = merged.into_iter().collect();
    merged.sort_by_key(|(tag, _)| rank(tag));
    Ok(merged)
}

fn add_log(log: &[u8], merged: &mut BTreeMap<String, Latencies>) -> Result<(), String> {
    const NO_LOG: &str = "it is no HdrHistogram interval log";
    let mut deserializer = Deserializer::new();
    let mut any = false;
    for entry in IntervalLogIterator::new(log) {
        any = true;
        let LogEntry::Interval(interval) = entry.map_err(|_| NO_LOG)? else {
            continue;
        };
        let tag = interval.tag().map_or(WHOLE, |tag| tag.as_str());
        let unreadable = |detail: &dyn Display| format!("a histogram of tag {tag} can't be read: {detail}");
        let bytes = BASE64.decode(interval.encoded_histogram()).map_err(|error| unreadable(&error))?;
        let histogram: Histogram<u64> =
            deserializer.deserialize(&mut bytes.as_slice()).map_err(|error| unreadable(&error))?;
        let latencies = merged.entry(tag.to_owned()).or_default();
        latencies.add_histogram(&histogram).map_err(|error| unreadable(&error))?;
    }
    if !any {
        return Err(NO_LOG.to_owned());
    }
    // Those of other programs are mostly in nanoseconds.
    let is_in_us = log.windows(UNIT.len()).any(|text| text == UNIT.as_bytes());
    if is_in_us { Ok(()) } else { Err(format!("it doesn't say `{UNIT}`, as logs of s3mq do")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Meter;

    fn log_of(latencies_us: std::ops::Range<i64>) -> (Vec<u8>, Sample) {
        let mut meter = Meter::new(0..i64::MAX);
        let mut hlog = Hlog::new(Vec::new()).unwrap();
        let (middle, mut sum) = ((latencies_us.start + latencies_us.end) / 2, Sample::default());
        for (start_us, half) in
            [(5_000_000, latencies_us.start..middle), (6_000_000, middle..latencies_us.end)]
        {
            for latency_us in half {
                meter.record(0, latency_us, 1);
                meter.record_stage(Stage::Sealed, latency_us / 2, 1);
            }
            let interval = meter.end_interval();
            hlog.interval(start_us, 1_000_000, &interval).unwrap();
            sum.merge(&interval);
        }
        (hlog.into_inner(), sum)
    }

    #[test]
    fn intervals_have_their_start_and_length_in_seconds() {
        let (log, _) = log_of(1..1000);
        let text = String::from_utf8(log).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("Tag=e2e")).collect();
        assert!(lines[0].starts_with("Tag=e2e,5.000,1.000,499.000,HIST"), "{}", lines[0]);
        assert!(lines[1].starts_with("Tag=e2e,6.000,1.000,999.000,HIST"), "{}", lines[1]);
    }

    #[test]
    fn logs_of_two_hosts_add_up_to_one() {
        let ((a, mut sum), (b, other)) = (log_of(1..5_000), log_of(100_000..200_000));
        sum.merge(&other);
        let merged = merge_hlogs(&[a, b]).unwrap();
        assert_eq!(merged.iter().map(|(tag, _)| tag.as_str()).collect::<Vec<_>>(), ["e2e", "sealed"]);
        for percentile in [1.0, 50.0, 99.0, 99.9] {
            assert_eq!(merged[0].1.percentile_us(percentile), sum.latencies.percentile_us(percentile));
        }
        assert_eq!(merged[0].1.count(), sum.latencies.count());
    }

    #[test]
    fn what_is_no_log_is_refused() {
        for (log, number) in [(b"".to_vec(), 0), (b"time_from_start,p50\n1,2\n".to_vec(), 0)] {
            assert_eq!(merge_hlogs(&[log]).unwrap_err().0, number);
        }
    }
}
