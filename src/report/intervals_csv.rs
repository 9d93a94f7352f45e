//! `{rate}.intervals.csv`: the timeline, a row an interval. Both roles cut their timelines at whole intervals since the
//! clock anchor that they share. Percentiles are of the interval alone; empty where nothing was measured.

use crate::events::{ReceivedInterval, SentInterval};
use crate::measure::{LatencySummary, Percentiles};

/// One interval of both timelines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TimelineRow {
    /// The interval's end, in seconds after the beginning of the first.
    pub(crate) time_from_start_seconds: f64,
    /// Messages handed over in it.
    pub(crate) sent: u64,
    /// Messages delivered in it.
    pub(crate) received: u64,
    /// At its end: messages handed over and not delivered.
    pub(crate) backlog: u64,
    /// Latencies of what was delivered in it, the warm-up left out.
    pub(crate) latency: Option<LatencySummary>,
    /// The chosen percentiles of these, in microseconds; empty where there were none.
    pub(crate) percentiles_us: Vec<u64>,
    /// At its end: how long ago the last message that was delivered had been due.
    pub(crate) lag_us: Option<i64>,
    /// How late messages were handed over in it.
    pub(crate) send_delay: Option<LatencySummary>,
    /// Checkpoints that began in it.
    pub(crate) checkpoints: u64,
    /// Memory that the producer held at its end; 0 where it didn't say.
    pub(crate) producer_rss_bytes: u64,
    /// The same of the consumer.
    pub(crate) consumer_rss_bytes: u64,
}

/// Lays both timelines side by side, from the first interval of `sent` on; an interval that only one of them has, or
/// neither, has zeros. `checkpoints` are the intervals in which one began.
pub(crate) fn join(
    interval_seconds: f64,
    sent: &[SentInterval],
    received: &[ReceivedInterval],
    checkpoints: &[i64],
) -> Vec<TimelineRow> {
    // The consumer is there before the producer; the timeline begins with what is sent.
    let Some(first) = sent.iter().map(|interval| interval.index).min() else {
        return Vec::new();
    };
    let indices = sent.iter().map(|interval| interval.index);
    let last = indices.chain(received.iter().map(|interval| interval.index)).max().unwrap_or(first);
    let mut rows = vec![TimelineRow::default(); (last - first + 1) as usize];
    for interval in sent {
        let row = &mut rows[(interval.index - first) as usize];
        row.sent += interval.messages;
        row.send_delay = row.send_delay.take().or_else(|| interval.send_delay.clone());
        row.producer_rss_bytes = interval.rss_bytes;
    }
    for interval in received.iter().filter(|interval| interval.index >= first) {
        let row = &mut rows[(interval.index - first) as usize];
        row.received += interval.messages;
        if row.latency.is_none() {
            row.latency.clone_from(&interval.latency);
            row.percentiles_us.clone_from(&interval.percentiles_us);
        }
        row.lag_us = interval.lag_us.or(row.lag_us);
        row.consumer_rss_bytes = interval.rss_bytes;
    }
    for index in checkpoints.iter().filter(|index| (first..=last).contains(index)) {
        rows[(index - first) as usize].checkpoints += 1;
    }
    let (mut backlog, mut lag_us) = (0_i64, None);
    for (index, row) in rows.iter_mut().enumerate() {
        row.time_from_start_seconds = (index + 1) as f64 * interval_seconds;
        backlog += row.sent as i64 - row.received as i64;
        row.backlog = backlog.max(0) as u64;
        // While nothing comes, what came last grows older.
        lag_us = row.lag_us.or(lag_us.map(|lag: i64| lag + (interval_seconds * 1e6) as i64));
        row.lag_us = lag_us;
    }
    rows
}

/// The bytes of the file, with these percentiles.
pub(crate) fn intervals_csv(percentiles: &Percentiles, rows: &[TimelineRow]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = columns(percentiles, &TimelineRow::default()).into_iter().map(|(name, _)| name);
    // Writing to memory can't fail.
    let _ = writer.write_record(header);
    for row in rows {
        let _ = writer.write_record(columns(percentiles, row).into_iter().map(|(_, value)| value));
    }
    writer.into_inner().unwrap_or_default()
}

fn columns(percentiles: &Percentiles, row: &TimelineRow) -> Vec<(String, String)> {
    let count = |name: &str, count: u64| (name.to_owned(), count.to_string());
    let bytes =
        |name: &str, bytes: u64| (name.to_owned(), if bytes > 0 { bytes.to_string() } else { String::new() });
    let seconds = |name: &str, us: Option<i64>| {
        (name.to_owned(), us.map_or_else(String::new, |us| format!("{:.6}", us as f64 / 1e6)))
    };
    let (latency, delay) = (row.latency.as_ref(), row.send_delay.as_ref());
    let mut columns = vec![
        ("time_from_start".to_owned(), format!("{:.6}", row.time_from_start_seconds)),
        count("sent", row.sent),
        count("received", row.received),
    ];
    let chosen = percentiles.names().enumerate();
    columns.extend(chosen.map(|(i, name)| seconds(&name, row.percentiles_us.get(i).map(|&us| us as i64))));
    columns.extend([
        seconds("max", latency.map(|latency| latency.max_us as i64)),
        count("backlog", row.backlog),
        seconds("lag", row.lag_us),
        seconds("send_delay_p50", delay.map(|delay| delay.p50_us as i64)),
        seconds("send_delay_p99", delay.map(|delay| delay.p99_us as i64)),
        seconds("send_delay_max", delay.map(|delay| delay.max_us as i64)),
        count("checkpoints", row.checkpoints),
        bytes("producer_rss_bytes", row.producer_rss_bytes),
        bytes("consumer_rss_bytes", row.consumer_rss_bytes),
    ]);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_timelines_stand_in_one_row_and_gaps_are_zeros() {
        let sent = |index, messages| SentInterval { index, messages, send_delay: None, rss_bytes: 5_000 };
        let received = |index, messages, lag_us| ReceivedInterval {
            index,
            messages,
            latency: None,
            percentiles_us: vec![],
            lag_us,
            rss_bytes: 7_000,
        };
        let rows = join(
            1.0,
            &[sent(10, 100), sent(11, 100), sent(12, 50)],
            &[received(8, 0, None), received(11, 120, Some(300_000)), received(14, 130, Some(90_000))],
            &[11, 12, 12],
        );
        let flat: Vec<_> = rows
            .iter()
            .map(|row| (row.time_from_start_seconds, row.sent, row.received, row.backlog, row.lag_us))
            .collect();
        assert_eq!(
            flat,
            [
                (1.0, 100, 0, 100, None),
                (2.0, 100, 120, 80, Some(300_000)),
                (3.0, 50, 0, 130, Some(1_300_000)),
                (4.0, 0, 0, 130, Some(2_300_000)),
                (5.0, 0, 130, 0, Some(90_000)),
            ]
        );
        let text = String::from_utf8(intervals_csv(&Percentiles::default(), &rows)).unwrap();
        assert_eq!(text.lines().nth(2), Some("2.000000,100,120,,,,,,,80,0.300000,,,,1,5000,7000"));
        assert_eq!(text.lines().nth(4), Some("4.000000,0,0,,,,,,,130,2.300000,,,,0,,"));
        assert_eq!(rows.iter().map(|row| row.checkpoints).collect::<Vec<_>>(), [0, 1, 2, 0, 0]);
    }

    #[test]
    fn a_long_timeline_is_joined_row_by_row() {
        // Searching both timelines for every interval would take hours here.
        let sent: Vec<_> = (0..2_000_000)
            .map(|index| SentInterval { index, messages: 1, send_delay: None, rss_bytes: 0 })
            .collect();
        let rows = join(0.001, &sent, &[], &[]);
        assert_eq!(rows.last().map(|row| row.backlog), Some(2_000_000));
    }

    #[test]
    fn nothing_sent_has_no_timeline() {
        assert!(join(1.0, &[], &[], &[]).is_empty());
    }
}
