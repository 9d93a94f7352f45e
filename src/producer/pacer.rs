//! The open-loop pacer: hands messages over when they are due and cuts them into batches.
//!
//! It has a thread of its own and sleeps to absolute deadlines, so that being late once doesn't shift the rest. Each
//! millisecond it hands over all messages that have become due; `send_delay` shows how late. Nothing is re-timed: what
//! became due in a pause is handed over at once after it, with the stamps that it should have had.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Schedule;
use super::arrivals::{Arrival, Arrivals};
use super::cutter::Cutter;
use super::payload::Payload;
use super::timeline::Timeline;
use crate::measure::{LatencySummary, Run};
use crate::units::Rate;
use s3mq_clock::Anchor;
use s3mq_queue::Batch;

/// How often due messages are handed over.
const TICK_NS: u64 = 1_000_000;
/// The longest sleep, after which the flag to stop is looked at.
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// Without a schedule, the clock is read once for this many messages.
const FLOOD_CHUNK: u64 = 1_000;

pub(super) struct Pacer {
    pub schedule: Schedule,
    /// When the first message is due, on the monotonic clock.
    pub start_ns: u64,
    pub interval_ns: u64,
    pub max_batch_bytes: usize,
    /// How long after the last message was due it goes on handing over.
    pub grace_ns: u64,
    pub timeline: Timeline,
    pub payload: Payload,
    pub anchor: Anchor,
    pub stop: CancellationToken,
    pub batches: mpsc::Sender<Batch>,
}

/// What was handed over.
pub(super) struct Paced {
    pub handed_over: u64,
    /// From the start to the last hand-over.
    pub elapsed_ns: u64,
    /// From due to hand-over; `None` without a schedule.
    pub send_delay: Option<LatencySummary>,
    /// How long it waited for room in the queue.
    pub held_up_ns: u64,
}

impl Pacer {
    /// Hands over until the schedule is through, it is cancelled, or nobody takes batches any more.
    pub(super) fn run(self) -> Paced {
        // A burst right on the grid would be committed at once, which flatters every figure; half an interval off
        // it waits as long as a message does on average.
        let grid_start_ns = match self.schedule {
            Schedule::Paced { arrival: Arrival::Burst, .. } => self.start_ns - self.interval_ns / 2,
            _ => self.start_ns,
        };
        let mut cutter = Cutter {
            batch: Batch::default(),
            handed_over_us: 0,
            held_up_ns: 0,
            anchor: self.anchor.clone(),
            max_batch_bytes: self.max_batch_bytes,
            interval_ns: self.interval_ns.max(1),
            grid_start_ns,
            boundary_ns: grid_start_ns + self.interval_ns,
            batches: self.batches.clone(),
        };
        let paced = match self.schedule {
            Schedule::Paced { rate, messages, arrival, seed } => {
                self.paced(&mut cutter, rate, messages, Arrivals::new(rate, arrival, seed))
            }
            Schedule::Flood { messages } => self.flood(&mut cutter, messages, u64::MAX),
            Schedule::FloodFor(seconds) => {
                let until_ns = self.start_ns + seconds.as_duration().as_nanos() as u64;
                self.flood(&mut cutter, u64::MAX, until_ns)
            }
        };
        // What is left is due; it isn't kept until its interval is over.
        let _ = cutter.cut();
        Paced { held_up_ns: cutter.held_up_ns, ..paced }
    }

    fn paced(mut self, cutter: &mut Cutter, rate: Rate, messages: u64, mut arrivals: Arrivals) -> Paced {
        let start_us = self.anchor.at_us(self.start_ns);
        let until_ns = self.start_ns + rate.due_us(messages) as u64 * 1_000 + self.grace_ns;
        let mut delay = Run::default();
        let mut last_ns = self.start_ns;
        while arrivals.index < messages && !self.stop.is_cancelled() {
            let now_ns = s3mq_clock::monotonic_ns();
            if now_ns > until_ns {
                break;
            }
            let elapsed_us = ((now_ns - self.start_ns) / 1_000) as i64;
            self.timeline.advance(now_ns);
            cutter.hand_over_at(self.anchor.at_us(now_ns));
            let (before, held_up_ns) = (arrivals.index, cutter.held_up_ns);
            let mut gone = false;
            // Until nothing more is due, or waiting for the queue has made `now` an old time.
            while arrivals.index < messages
                && arrivals.next_us <= elapsed_us
                && cutter.held_up_ns == held_up_ns
            {
                gone = cutter.push(&mut self.payload, start_us + arrivals.next_us).is_err();
                if gone {
                    break;
                }
                if let Some((delay_us, count)) = delay.add(elapsed_us - arrivals.next_us, 1) {
                    self.timeline.record(Some(delay_us), count);
                }
                arrivals.advance();
            }
            if let Some((delay_us, count)) = delay.end() {
                self.timeline.record(Some(delay_us), count);
            }
            if arrivals.index > before {
                last_ns = now_ns;
            }
            if gone || cutter.cut_if_due(now_ns).is_err() {
                break;
            }
            if cutter.held_up_ns == held_up_ns {
                let next_due_ns = self.start_ns + arrivals.next_us as u64 * 1_000;
                let tick_ns = now_ns + TICK_NS.min(self.interval_ns);
                let wake_ns = cutter.boundary_ns.min(next_due_ns.max(tick_ns));
                s3mq_clock::sleep_until_ns(wake_ns.min(now_ns + LONGEST_SLEEP_NS));
            }
        }
        Paced {
            handed_over: arrivals.index,
            elapsed_ns: last_ns - self.start_ns,
            send_delay: self.timeline.delays().summary(),
            held_up_ns: 0,
        }
    }

    fn flood(mut self, cutter: &mut Cutter, messages: u64, until_ns: u64) -> Paced {
        let (mut next, mut now_ns) = (0, s3mq_clock::monotonic_ns());
        while next < messages && now_ns < until_ns && !self.stop.is_cancelled() {
            let stamp_us = self.anchor.at_us(now_ns);
            self.timeline.advance(now_ns);
            cutter.hand_over_at(stamp_us);
            let chunk = FLOOD_CHUNK.min(messages - next);
            let pushed =
                (0..chunk).take_while(|_| cutter.push(&mut self.payload, stamp_us).is_ok()).count() as u64;
            next += pushed;
            if pushed < chunk {
                break;
            }
            self.timeline.record(None, chunk);
            now_ns = s3mq_clock::monotonic_ns();
            if cutter.cut_if_due(now_ns).is_err() {
                break;
            }
        }
        Paced { handed_over: next, elapsed_ns: now_ns - self.start_ns, send_delay: None, held_up_ns: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::cutter::MAX_BATCH_BYTES;
    use crate::producer::payload::Padding;

    fn paced(rate: Rate, messages: u64) -> Schedule {
        Schedule::Paced { rate, messages, arrival: Arrival::Uniform, seed: 0 }
    }

    fn pacer(
        schedule: Schedule,
        interval_ms: u64,
        batches: mpsc::Sender<Batch>,
    ) -> (Pacer, CancellationToken) {
        let stop = CancellationToken::new();
        let anchor = Anchor::now();
        let (intervals, _) = mpsc::unbounded_channel();
        let timeline = Timeline::new(&anchor, std::time::Duration::from_secs(1), intervals);
        let pacer = Pacer {
            timeline,
            schedule,
            start_ns: s3mq_clock::monotonic_ns(),
            interval_ns: interval_ms * 1_000_000,
            max_batch_bytes: MAX_BATCH_BYTES,
            grace_ns: 60_000_000_000,
            payload: Payload::new(None, Padding::Text, 1),
            anchor,
            stop: stop.clone(),
            batches,
        };
        (pacer, stop)
    }

    #[test]
    fn exactly_the_messages_of_the_schedule_are_handed_over() {
        let (sender, mut batches) = mpsc::channel(1000);
        let schedule = paced("5000".parse().unwrap(), 321);
        let (pacer, _stop) = pacer(schedule, 10, sender);
        let paced = pacer.run();
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len();
        }
        assert_eq!((paced.handed_over, count), (321, 321));
        assert_eq!(paced.send_delay.unwrap().count, 321);
    }

    #[test]
    fn one_message_in_a_long_interval_is_handed_over_at_once() {
        let (sender, mut batches) = mpsc::channel(1);
        let schedule = paced("0.001".parse().unwrap(), 1);
        let (pacer, _stop) = pacer(schedule, 3_600_000, sender);
        assert_eq!(pacer.run().handed_over, 1);
        assert_eq!(batches.try_recv().unwrap().len(), 1);
    }

    #[test]
    fn a_full_queue_makes_batches_larger_and_loses_nothing() {
        let (sender, mut batches) = mpsc::channel(1);
        let schedule = paced("100000".parse().unwrap(), 20_000);
        let (pacer, _stop) = pacer(schedule, 5, sender);
        let pacer = std::thread::spawn(move || pacer.run());
        let mut sizes = Vec::new();
        while let Some(batch) = batches.blocking_recv() {
            sizes.push(batch.len());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(pacer.join().unwrap().handed_over, 20_000);
        assert_eq!(sizes.iter().sum::<usize>(), 20_000);
        // 200 ms of messages in batches of 5 ms would have been 40.
        assert!(sizes.len() < 20, "{sizes:?}");
    }

    #[test]
    fn a_schedule_that_can_not_be_kept_ends_after_its_grace() {
        let (sender, mut batches) = mpsc::channel(1);
        let schedule = paced("1000".parse().unwrap(), 1_000);
        let (mut pacer, _stop) = pacer(schedule, 5, sender);
        // A thirty-second of a batch each; the queue takes a tenth of what is due.
        pacer.payload = Payload::new(Some(MAX_BATCH_BYTES / 32), Padding::Text, 1);
        pacer.grace_ns = 50_000_000;
        let pacer = std::thread::spawn(move || pacer.run());
        let mut count = 0;
        while let Some(batch) = batches.blocking_recv() {
            count += batch.len() as u64;
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let paced = pacer.join().unwrap();
        assert!(paced.handed_over < 1_000 && paced.held_up_ns > 0, "{}", paced.handed_over);
        assert_eq!(count, paced.handed_over);
    }

    #[test]
    fn a_flood_has_no_schedule_and_ends_at_its_count() {
        let (sender, mut batches) = mpsc::channel(1000);
        let (pacer, _stop) = pacer(Schedule::Flood { messages: 12_345 }, 1, sender);
        let paced = pacer.run();
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len();
        }
        assert_eq!((paced.handed_over, count), (12_345, 12_345));
        assert!(paced.send_delay.is_none());
    }

    #[test]
    fn a_flood_is_cut_where_a_batch_is_full() {
        let (sender, mut batches) = mpsc::channel(1000);
        let (mut pacer, _stop) = pacer(Schedule::Flood { messages: 2_500 }, 3_600_000, sender);
        pacer.max_batch_bytes = 1_000 * pacer.payload.message_bytes();
        pacer.run();
        let sizes: Vec<_> = std::iter::from_fn(|| batches.try_recv().ok()).map(|batch| batch.len()).collect();
        assert_eq!(sizes, [1_000, 1_000, 500]);
    }

    #[test]
    fn it_stops_when_told_and_hands_over_what_was_due() {
        let (sender, mut batches) = mpsc::channel(1000);
        let schedule = paced("1000".parse().unwrap(), 1_000_000);
        let (pacer, stop) = pacer(schedule, 10, sender);
        let pacer = std::thread::spawn(move || pacer.run());
        std::thread::sleep(std::time::Duration::from_millis(100));
        stop.cancel();
        let handed_over = pacer.join().unwrap().handed_over;
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len() as u64;
        }
        assert!(handed_over > 0 && handed_over < 1_000_000);
        assert_eq!(count, handed_over);
    }
}
