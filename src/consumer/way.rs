//! The way of a batch's messages, laid out into stages.

use std::ops::Range;

use crate::measure::{Meter, Run, Stage};
use s3mq_queue::Stamps;

/// Records where the messages of one batch spent their time. What all of them share is recorded once for
/// all, what a run of them shares once for the run.
pub(super) struct Way<'a> {
    stamps: &'a Stamps,
    /// The run of `handed_over` that the current message is in.
    handed_over_run: usize,
    handed_over: Run,
    sealed: Run,
    delivered: Run,
    since_handed_over: Run,
    measured: u64,
}

impl<'a> Way<'a> {
    pub(super) fn new(stamps: &'a Stamps) -> Self {
        Self {
            stamps,
            handed_over_run: 0,
            handed_over: Run::default(),
            sealed: Run::default(),
            delivered: Run::default(),
            since_handed_over: Run::default(),
            measured: 0,
        }
    }

    /// The messages at these indices of the batch are measured; indices ascend. They were due and received at
    /// the same times.
    pub(super) fn record(&mut self, meter: &mut Meter, indices: Range<u64>, due_us: i64, received_us: i64) {
        self.measured += indices.end - indices.start;
        let runs = &self.stamps.producer.handed_over;
        let mut index = indices.start;
        while index < indices.end {
            while runs.get(self.handed_over_run + 1).is_some_and(|run| run.0 <= index) {
                self.handed_over_run += 1;
            }
            let run_end =
                runs.get(self.handed_over_run + 1).map_or(indices.end, |run| run.0.min(indices.end));
            // Where the producer didn't say, a message was handed over when its batch was closed.
            let handed_over_us =
                runs.get(self.handed_over_run).map_or(self.stamps.producer.sealed_us, |run| run.1);
            self.record_alike(meter, handed_over_us, due_us, received_us, run_end - index);
            index = run_end;
        }
    }

    fn record_alike(
        &mut self,
        meter: &mut Meter,
        handed_over_us: i64,
        due_us: i64,
        received_us: i64,
        count: u64,
    ) {
        let sealed_us = self.stamps.producer.sealed_us;
        for (stage, run, us) in [
            (Stage::HandedOver, &mut self.handed_over, handed_over_us - due_us),
            (Stage::Sealed, &mut self.sealed, sealed_us - handed_over_us),
            (Stage::Delivered, &mut self.delivered, received_us - self.stamps.decoded_us),
        ] {
            if let Some((us, count)) = run.add(us, count) {
                meter.record_stage(stage, us, count);
            }
        }
        if let Some((us, count)) = self.since_handed_over.add(received_us - handed_over_us, count) {
            meter.record_since_handed_over(us, count);
        }
    }

    /// Records what is still pending: at the end of the batch, and before an interval ends.
    pub(super) fn settle(&mut self, meter: &mut Meter) {
        for (stage, run) in [
            (Stage::HandedOver, &mut self.handed_over),
            (Stage::Sealed, &mut self.sealed),
            (Stage::Delivered, &mut self.delivered),
        ] {
            if let Some((us, count)) = run.end() {
                meter.record_stage(stage, us, count);
            }
        }
        if let Some((us, count)) = self.since_handed_over.end() {
            meter.record_since_handed_over(us, count);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use s3mq_queue::ProducerStamps;

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
        assert!(meter.record(0, delivered_us, 1));
        way.record(&mut meter, 0..1, 0, delivered_us);
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
        // The second run goes across two hand-overs.
        for (indices, due_us) in [(0..2, 900), (2..4, 950), (4..5, 2_000)] {
            let received_us = 5_800 + indices.start as i64 / 2;
            assert!(meter.record(due_us, received_us, indices.end - indices.start));
            way.record(&mut meter, indices.clone(), due_us, received_us);
            if indices.end == 4 {
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
        assert_eq!(stages[0].mean_us, (100.0 + 100.0 + 50.0 + 1_050.0 + 0.0) / 5.0);
    }
}
