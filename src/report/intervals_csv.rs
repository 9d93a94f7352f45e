//! `{rate}.intervals.csv`: the timeline, a row an interval.
//!
//! Both roles cut their timelines at the same instants (whole intervals since the clock anchor they
//! share), so that what was sent and what was received in an interval can stand in one row. The
//! percentiles are of that interval alone. Seconds with six decimals; empty where nothing was measured.

use std::collections::HashMap;

use crate::events::{ReceivedInterval, SentInterval};
use crate::measure::{LatencySummary, Percentiles};

/// One interval of both timelines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimelineRow {
    /// The interval's end, in seconds after the beginning of the first.
    pub time_from_start_seconds: f64,
    /// Messages handed over in it.
    pub sent: u64,
    /// Messages delivered in it.
    pub received: u64,
    /// At its end: messages handed over and not delivered.
    pub backlog: u64,
    /// Latencies of what was delivered in it, the warm-up left out.
    pub latency: Option<LatencySummary>,
    /// The chosen percentiles of these, in microseconds; empty where there were none.
    pub percentiles_us: Vec<u64>,
    /// At its end: how long ago the last message that was delivered had been due.
    pub lag_us: Option<i64>,
    /// How late messages were handed over in it.
    pub send_delay: Option<LatencySummary>,
    /// Checkpoints that began in it.
    pub checkpoints: u64,
    /// Memory that the producer held at its end; 0 where it didn't say.
    pub producer_rss_bytes: u64,
    /// The same of the consumer.
    pub consumer_rss_bytes: u64,
}

/// Lays both timelines side by side; an interval that only one of them has, or neither, has zeros.
/// `checkpoints` are the intervals in which one began.
pub fn join(
    interval_seconds: f64,
    sent: &[SentInterval],
    received: &[ReceivedInterval],
    checkpoints: &[i64],
) -> Vec<TimelineRow> {
    let indices = sent.iter().map(|row| row.index).chain(received.iter().map(|row| row.index));
    // The consumer is there before the producer; the timeline begins with what is sent.
    let Some(first) = sent.iter().map(|row| row.index).min() else {
        return Vec::new();
    };
    let last = indices.max().unwrap_or(first);
    // Looked up, not searched for: a long run has many intervals.
    let (mut sent_of, mut received_of) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    for row in sent {
        sent_of.entry(row.index).or_default().push(row);
    }
    for row in received {
        received_of.entry(row.index).or_default().push(row);
    }
    let (mut sent_total, mut received_total, mut lag_us) = (0, 0, None);
    (first..=last)
        .map(|index| {
            let sent = sent_of.remove(&index).unwrap_or_default();
            let received = received_of.remove(&index).unwrap_or_default();
            let count = |counts: u64, total: &mut u64| {
                *total += counts;
                counts
            };
            let row_sent = count(sent.iter().map(|row| row.messages).sum(), &mut sent_total);
            let row_received = count(received.iter().map(|row| row.messages).sum(), &mut received_total);
            let told = received.iter().filter_map(|row| row.lag_us).next_back();
            // While nothing comes, what came last grows older.
            lag_us = told.or(lag_us.map(|lag: i64| lag + (interval_seconds * 1e6) as i64));
            TimelineRow {
                time_from_start_seconds: (index - first + 1) as f64 * interval_seconds,
                sent: row_sent,
                received: row_received,
                backlog: sent_total.saturating_sub(received_total),
                latency: received.iter().find_map(|row| row.latency.clone()),
                percentiles_us: received
                    .iter()
                    .map(|row| row.percentiles_us.clone())
                    .find(|us| !us.is_empty())
                    .unwrap_or_default(),
                lag_us,
                send_delay: sent.iter().find_map(|row| row.send_delay.clone()),
                checkpoints: checkpoints.iter().filter(|&&begun| begun == index).count() as u64,
                producer_rss_bytes: sent.last().map_or(0, |row| row.rss_bytes),
                consumer_rss_bytes: received.last().map_or(0, |row| row.rss_bytes),
            }
        })
        .collect()
}

/// The bytes of the file, with these percentiles.
pub fn intervals_csv(percentiles: &Percentiles, rows: &[TimelineRow]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let before = ["time_from_start", "sent", "received"].map(str::to_owned);
    let after = [
        "max",
        "backlog",
        "lag",
        "send_delay_p50",
        "send_delay_p99",
        "send_delay_max",
        "checkpoints",
        "producer_rss_bytes",
        "consumer_rss_bytes",
    ]
    .map(str::to_owned);
    // Writing to memory can't fail.
    let _ = writer.write_record(before.into_iter().chain(percentiles.names()).chain(after));
    for row in rows {
        let bytes = |bytes: u64| if bytes > 0 { bytes.to_string() } else { String::new() };
        let seconds = |us: Option<i64>| us.map_or_else(String::new, |us| format!("{:.6}", us as f64 / 1e6));
        let figure = |summary: &Option<LatencySummary>, figure: fn(&LatencySummary) -> u64| {
            seconds(summary.as_ref().map(|summary| figure(summary) as i64))
        };
        let chosen = percentiles
            .iter()
            .enumerate()
            .map(|(index, _)| seconds(row.percentiles_us.get(index).map(|&us| us as i64)));
        let before =
            [format!("{:.6}", row.time_from_start_seconds), row.sent.to_string(), row.received.to_string()];
        let after = [
            figure(&row.latency, |l| l.max_us),
            row.backlog.to_string(),
            seconds(row.lag_us),
            figure(&row.send_delay, |l| l.p50_us),
            figure(&row.send_delay, |l| l.p99_us),
            figure(&row.send_delay, |l| l.max_us),
            row.checkpoints.to_string(),
            bytes(row.producer_rss_bytes),
            bytes(row.consumer_rss_bytes),
        ];
        let _ = writer.write_record(before.into_iter().chain(chosen).chain(after));
    }
    writer.into_inner().unwrap_or_default()
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
