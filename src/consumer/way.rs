//! The way of a batch's messages, laid out into stages.

use crate::measure::{Meter, Stage};
use crate::queue::Stamps;

/// Records where the messages of one batch spent their time. What all of them share is recorded once for
/// all, what a run of them shares once for the run.
pub(super) struct Way<'a> {
    stamps: &'a Stamps,
    /// The run of `handed_over` that the current message is in.
    handed_over_run: usize,
    handed_over: Run,
    sealed: Run,
    delivered: Run,
    /// Of the messages since the last settling: from handed over to delivered, and how many alike.
    since_handed_over: (i64, u64),
    measured: u64,
}

impl<'a> Way<'a> {
    pub(super) fn new(stamps: &'a Stamps) -> Self {
        Self {
            stamps,
            handed_over_run: 0,
            handed_over: Run::of(Stage::HandedOver),
            sealed: Run::of(Stage::Sealed),
            delivered: Run::of(Stage::Delivered),
            since_handed_over: (0, 0),
            measured: 0,
        }
    }

    /// The message at `index` of the batch is measured; indices ascend.
    pub(super) fn record(&mut self, meter: &mut Meter, index: u64, due_us: i64, received_us: i64) {
        let producer = &self.stamps.producer;
        while producer.handed_over.get(self.handed_over_run + 1).is_some_and(|run| run.0 <= index) {
            self.handed_over_run += 1;
        }
        // Where the producer didn't say, a message was handed over when its batch was closed.
        let handed_over_us =
            producer.handed_over.get(self.handed_over_run).map_or(producer.sealed_us, |run| run.1);
        self.handed_over.add(meter, handed_over_us - due_us);
        self.sealed.add(meter, producer.sealed_us - handed_over_us);
        self.delivered.add(meter, received_us - self.stamps.decoded_us);
        let since_us = received_us - handed_over_us;
        if since_us != self.since_handed_over.0 {
            self.end_since_handed_over(meter);
            self.since_handed_over.0 = since_us;
        }
        self.since_handed_over.1 += 1;
        self.measured += 1;
    }

    fn end_since_handed_over(&mut self, meter: &mut Meter) {
        let (us, count) = std::mem::take(&mut self.since_handed_over);
        meter.record_since_handed_over(us, count);
    }

    /// Records what is still pending: at the end of the batch, and before an interval ends.
    pub(super) fn settle(&mut self, meter: &mut Meter) {
        for run in [&mut self.handed_over, &mut self.sealed, &mut self.delivered] {
            run.end(meter);
        }
        self.end_since_handed_over(meter);
        let Stamps { producer, commit_sent_us, discovered_us, fetched_us, decoded_us } = self.stamps;
        let measured = std::mem::take(&mut self.measured);
        for (stage, us) in [
            (Stage::Encoded, producer.encoded_us - producer.sealed_us),
            (Stage::Stored, producer.stored_us - producer.encoded_us),
            (Stage::CommitSent, commit_sent_us - producer.stored_us),
            (Stage::Discovered, discovered_us - commit_sent_us),
            (Stage::Fetched, fetched_us - discovered_us),
            (Stage::Decoded, decoded_us - fetched_us),
        ] {
            meter.record_stage(stage, us, measured);
        }
    }
}

/// Consecutive messages that spent the same time in a stage.
struct Run {
    stage: Stage,
    us: i64,
    count: u64,
}

impl Run {
    fn of(stage: Stage) -> Self {
        Self { stage, us: 0, count: 0 }
    }

    fn add(&mut self, meter: &mut Meter, us: i64) {
        if us != self.us {
            self.end(meter);
            self.us = us;
        }
        self.count += 1;
    }

    fn end(&mut self, meter: &mut Meter) {
        meter.record_stage(self.stage, self.us, std::mem::take(&mut self.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::ProducerStamps;

    /// The means of the stages of one message whose way has these nine stamps after it was due.
    fn stages_of(at: [i64; 9]) -> Vec<f64> {
        let [
            handed_over_us,
            sealed_us,
            encoded_us,
            stored_us,
            commit_sent_us,
            discovered_us,
            fetched_us,
            decoded_us,
            delivered_us,
        ] = at;
        let producer =
            ProducerStamps { handed_over: vec![(0, handed_over_us)], sealed_us, encoded_us, stored_us };
        let stamps = Stamps { producer, commit_sent_us, discovered_us, fetched_us, decoded_us };
        let (mut meter, mut way) = (Meter::new(0), Way::new(&stamps));
        assert!(meter.record(0, delivered_us));
        way.record(&mut meter, 0, 0, delivered_us);
        way.settle(&mut meter);
        meter.into_total().stages.summary().iter().map(|stage| stage.mean_us).collect()
    }

    #[test]
    fn a_delay_at_one_stage_moves_that_stage_alone() {
        let at = [10, 20, 30, 40, 50, 60, 70, 80, 90];
        assert_eq!(stages_of(at), [10.0; 9]);
        for delayed in 0..Stage::ALL.len() {
            let mut later = at;
            later[delayed..].iter_mut().for_each(|us| *us += 1_000);
            let mut expected = [10.0; 9];
            expected[delayed] = 1_010.0;
            assert_eq!(stages_of(later), expected, "{}", Stage::ALL[delayed].name());
        }
    }

    #[test]
    fn the_stages_of_each_message_add_up_to_its_latency() {
        let stamps = Stamps {
            producer: ProducerStamps {
                handed_over: vec![(0, 1_000), (3, 2_000)],
                sealed_us: 2_500,
                encoded_us: 2_600,
                stored_us: 3_600,
            },
            commit_sent_us: 3_650,
            discovered_us: 5_000,
            fetched_us: 5_700,
            decoded_us: 5_750,
        };
        let mut meter = Meter::new(0);
        let mut way = Way::new(&stamps);
        for (index, due_us) in [900, 900, 950, 1_500, 2_000].into_iter().enumerate() {
            let received_us = 5_800 + index as i64 / 2;
            assert!(meter.record(due_us, received_us));
            way.record(&mut meter, index as u64, due_us, received_us);
            if index == 2 {
                way.settle(&mut meter);
                meter.end_interval();
            }
        }
        way.settle(&mut meter);
        let total = meter.into_total();
        let stages = total.stages.summary();
        assert_eq!(stages.len(), Stage::ALL.len());
        assert!(stages.iter().all(|stage| stage.count == 5 && stage.negative == 0));
        let sum: f64 = stages.iter().map(|stage| stage.mean_us).sum();
        assert!((sum - total.latencies.summary().unwrap().mean_us).abs() < 1e-9);
        let since = total.since_handed_over.summary().unwrap();
        assert!(
            (since.mean_us + stages[0].mean_us - total.latencies.summary().unwrap().mean_us).abs() < 1e-9
        );
        assert_eq!(stages[0].mean_us, (100.0 + 100.0 + 50.0 + 500.0 + 0.0) / 5.0);
    }
}
