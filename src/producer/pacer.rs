//! The open-loop pacer: hands messages over when they are due and cuts them into batches.
//!
//! It runs on a thread of its own, so that nothing the runtime does can delay it, and sleeps to
//! absolute deadlines, so that being late once doesn't shift the rest. Waking once a millisecond, it
//! hands over all messages that have become due, in one go; a message is therefore handed over up to a
//! millisecond after it was due, which is recorded (`send_delay`), not hidden.
//!
//! After a pause (the process was stopped, the machine slept) everything that has become due
//! meanwhile is handed over at once, with the stamps it should have had: the rate isn't capped to catch
//! up gently, because nothing of the schedule is ever moved.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::Schedule;
use super::arrivals::{Arrival, Arrivals};
use super::payload::Payload;
use super::timeline::Timeline;
use crate::clock::{self, Anchor};
use crate::measure::Latencies;
use crate::queue::Batch;
use crate::stop::Stop;
use crate::units::Rate;

/// A batch that has grown to this is cut off although its interval isn't over: it is what a PUT and
/// the memory of both roles should hold.
pub const MAX_BATCH_BYTES: usize = 32 << 20;

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
    /// How long after the last message was due it goes on handing over.
    pub grace_ns: u64,
    pub timeline: Timeline,
    pub payload: Payload,
    pub anchor: Anchor,
    pub stop: Stop,
    pub batches: mpsc::Sender<Batch>,
}

/// What was handed over.
pub(super) struct Paced {
    pub handed_over: u64,
    /// From the start to the last hand-over.
    pub elapsed_ns: u64,
    /// From due to hand-over; `None` without a schedule.
    pub send_delay: Option<Latencies>,
    /// How long it waited for room in the queue.
    pub held_up_ns: u64,
}

/// The batch that is being filled, and where full ones go.
struct Cutter {
    batch: Batch,
    /// When the messages that are being pushed are handed over.
    handed_over_us: i64,
    /// How long it has waited for room in the queue.
    held_up_ns: u64,
    anchor: Anchor,
    batches: mpsc::Sender<Batch>,
    message_bytes: usize,
    interval_ns: u64,
    /// Boundaries lie at whole intervals after this.
    grid_start_ns: u64,
    /// When the batch is cut next.
    boundary_ns: u64,
}

/// The other side has gone; it knows why.
struct Gone;

impl Pacer {
    /// Hands over until the schedule is through, it is told to stop, or nobody takes batches any more.
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
            message_bytes: self.payload.message_bytes(),
            interval_ns: self.interval_ns.max(1),
            grid_start_ns,
            boundary_ns: grid_start_ns + self.interval_ns,
            batches: self.batches.clone(),
        };
        let paced = match self.schedule {
            Schedule::Paced { rate, messages, arrival } => self.paced(&mut cutter, rate, messages, arrival),
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

    fn paced(mut self, cutter: &mut Cutter, rate: Rate, messages: u64, arrival: Arrival) -> Paced {
        let start_us = self.anchor.at_us(self.start_ns);
        let until_ns = self.start_ns + rate.due_us(messages) as u64 * 1_000 + self.grace_ns;
        let mut arrivals = Arrivals::new(rate, arrival);
        let mut delays = Delays::default();
        let mut last_ns = self.start_ns;
        while arrivals.index() < messages && !self.stop.is_set() {
            let now_ns = clock::monotonic_ns();
            if now_ns > until_ns {
                break;
            }
            let elapsed_us = ((now_ns - self.start_ns) / 1_000) as i64;
            self.timeline.advance(now_ns);
            cutter.hand_over_at(self.anchor.at_us(now_ns));
            let (before, held_up_ns) = (arrivals.index(), cutter.held_up_ns);
            let mut gone = false;
            // Until nothing more is due, or waiting for the queue has made `now` an old time.
            while arrivals.index() < messages
                && arrivals.next_us() <= elapsed_us
                && cutter.held_up_ns == held_up_ns
            {
                gone = cutter.push(&mut self.payload, start_us + arrivals.next_us()).is_err();
                if gone {
                    break;
                }
                delays.record(&mut self.timeline, elapsed_us - arrivals.next_us());
                arrivals.advance();
            }
            delays.end_run(&mut self.timeline);
            if arrivals.index() > before {
                last_ns = now_ns;
            }
            if gone || cutter.cut_if_due(now_ns).is_err() {
                break;
            }
            if cutter.held_up_ns == held_up_ns {
                let next_due_ns = self.start_ns + arrivals.next_us() as u64 * 1_000;
                let tick_ns = now_ns + TICK_NS.min(self.interval_ns);
                let wake_ns = cutter.boundary_ns.min(next_due_ns.max(tick_ns));
                clock::sleep_until_ns(wake_ns.min(now_ns + LONGEST_SLEEP_NS));
            }
        }
        Paced {
            handed_over: arrivals.index(),
            elapsed_ns: last_ns - self.start_ns,
            send_delay: Some(delays.all),
            held_up_ns: 0,
        }
    }

    fn flood(mut self, cutter: &mut Cutter, messages: u64, until_ns: u64) -> Paced {
        let (mut next, mut now_ns) = (0, clock::monotonic_ns());
        while next < messages && now_ns < until_ns && !self.stop.is_set() {
            let stamp_us = self.anchor.at_us(now_ns);
            self.timeline.advance(now_ns);
            cutter.hand_over_at(stamp_us);
            let chunk = FLOOD_CHUNK.min(messages - next);
            for _ in 0..chunk {
                if cutter.push(&mut self.payload, stamp_us).is_err() {
                    return Paced {
                        handed_over: next,
                        elapsed_ns: now_ns - self.start_ns,
                        send_delay: None,
                        held_up_ns: 0,
                    };
                }
                next += 1;
            }
            self.timeline.record(None, chunk);
            now_ns = clock::monotonic_ns();
            if cutter.cut_if_due(now_ns).is_err() {
                break;
            }
        }
        Paced { handed_over: next, elapsed_ns: now_ns - self.start_ns, send_delay: None, held_up_ns: 0 }
    }
}

/// How late messages were handed over. Those that were equally late to the microsecond are recorded at once.
#[derive(Default)]
struct Delays {
    all: Latencies,
    run: (i64, u64),
}

impl Delays {
    fn record(&mut self, timeline: &mut Timeline, delay_us: i64) {
        if delay_us != self.run.0 {
            self.end_run(timeline);
            self.run.0 = delay_us;
        }
        self.run.1 += 1;
    }

    fn end_run(&mut self, timeline: &mut Timeline) {
        let (delay_us, count) = std::mem::take(&mut self.run);
        self.all.record(delay_us, count);
        timeline.record(Some(delay_us), count);
    }
}

impl Cutter {
    /// Messages pushed from now on are handed over at `us`.
    fn hand_over_at(&mut self, us: i64) {
        self.handed_over_us = us;
        self.batch.handed_over_at(us);
    }

    /// Adds a message; waits for the queue only where the batch is as large as it may become.
    fn push(&mut self, payload: &mut Payload, due_us: i64) -> Result<(), Gone> {
        if self.batch.bytes() + self.message_bytes > MAX_BATCH_BYTES && !self.batch.is_empty() {
            self.cut()?;
        }
        self.batch.push_with(|values| payload.write(due_us, values));
        Ok(())
    }

    /// Cuts the batch where its interval is over and the queue has room; else it goes on growing and is
    /// tried again at the next tick.
    fn cut_if_due(&mut self, now_ns: u64) -> Result<(), Gone> {
        if now_ns < self.boundary_ns {
            return Ok(());
        }
        if self.batch.is_empty() {
            self.start_interval(now_ns);
            return Ok(());
        }
        match self.batches.try_reserve() {
            Ok(permit) => permit.send(take(&mut self.batch, &self.anchor, self.handed_over_us)),
            Err(TrySendError::Full(())) => {
                self.boundary_ns = now_ns + TICK_NS;
                return Ok(());
            }
            Err(TrySendError::Closed(())) => return Err(Gone),
        }
        self.start_interval(now_ns);
        Ok(())
    }

    /// Hands the batch over, waiting for room.
    fn cut(&mut self) -> Result<(), Gone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = take(&mut self.batch, &self.anchor, self.handed_over_us);
        let waits_from_ns = clock::monotonic_ns();
        let sent = self.batches.blocking_send(batch).map_err(|_| Gone);
        self.held_up_ns += clock::monotonic_ns() - waits_from_ns;
        sent
    }

    /// The next boundary that lies ahead, on the grid that began with the schedule.
    fn start_interval(&mut self, now_ns: u64) {
        let grid_ns = self.interval_ns;
        self.boundary_ns = self.grid_start_ns + ((now_ns - self.grid_start_ns) / grid_ns + 1) * grid_ns;
    }
}

/// Takes a batch, closed now, and leaves an empty one with room for as much.
fn take(batch: &mut Batch, anchor: &Anchor, handed_over_us: i64) -> Batch {
    let mut successor = Batch::with_capacity(batch.len(), batch.bytes());
    // A batch may be cut in the middle of what is handed over at once.
    successor.handed_over_at(handed_over_us);
    batch.sealed_at(anchor.now_us());
    std::mem::replace(batch, successor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::payload::Padding;
    use crate::stop::stop;

    fn paced(rate: Rate, messages: u64) -> Schedule {
        Schedule::Paced { rate, messages, arrival: Arrival::Uniform }
    }

    fn pacer(
        schedule: Schedule,
        interval_ms: u64,
        batches: mpsc::Sender<Batch>,
    ) -> (Pacer, crate::stop::Stopper) {
        let (stopper, stop) = stop();
        let anchor = Anchor::now();
        let (intervals, _) = mpsc::unbounded_channel();
        let timeline = Timeline::new(&anchor, std::time::Duration::from_secs(1), intervals);
        let pacer = Pacer {
            timeline,
            schedule,
            start_ns: clock::monotonic_ns(),
            interval_ns: interval_ms * 1_000_000,
            grace_ns: 60_000_000_000,
            payload: Payload::new(None, Padding::Text, 1),
            anchor,
            stop,
            batches,
        };
        (pacer, stopper)
    }

    #[test]
    fn exactly_the_messages_of_the_schedule_are_handed_over() {
        let (sender, mut batches) = mpsc::channel(1000);
        let schedule = paced("5000".parse().unwrap(), 321);
        let (pacer, _stopper) = pacer(schedule, 10, sender);
        let paced = pacer.run();
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len();
        }
        assert_eq!((paced.handed_over, count), (321, 321));
        assert_eq!(paced.send_delay.unwrap().count(), 321);
    }

    #[test]
    fn one_message_in_a_long_interval_is_handed_over_at_once() {
        let (sender, mut batches) = mpsc::channel(1);
        let schedule = paced("0.001".parse().unwrap(), 1);
        let (pacer, _stopper) = pacer(schedule, 3_600_000, sender);
        assert_eq!(pacer.run().handed_over, 1);
        assert_eq!(batches.try_recv().unwrap().len(), 1);
    }

    #[test]
    fn a_full_queue_makes_batches_larger_and_loses_nothing() {
        let (sender, mut batches) = mpsc::channel(1);
        let schedule = paced("100000".parse().unwrap(), 20_000);
        let (pacer, _stopper) = pacer(schedule, 5, sender);
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
        let (mut pacer, _stopper) = pacer(schedule, 5, sender);
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
        let (pacer, _stopper) = pacer(Schedule::Flood { messages: 12_345 }, 1, sender);
        let paced = pacer.run();
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len();
        }
        assert_eq!((paced.handed_over, count), (12_345, 12_345));
        assert!(paced.send_delay.is_none());
    }

    #[test]
    fn it_stops_when_told_and_hands_over_what_was_due() {
        let (sender, mut batches) = mpsc::channel(1000);
        let schedule = paced("1000".parse().unwrap(), 1_000_000);
        let (pacer, stopper) = pacer(schedule, 10, sender);
        let pacer = std::thread::spawn(move || pacer.run());
        std::thread::sleep(std::time::Duration::from_millis(100));
        stopper.stop();
        let handed_over = pacer.join().unwrap().handed_over;
        let mut count = 0;
        while let Ok(batch) = batches.try_recv() {
            count += batch.len() as u64;
        }
        assert!(handed_over > 0 && handed_over < 1_000_000);
        assert_eq!(count, handed_over);
    }
}
