//! Where the messages of a batch spent their time, stage by stage.

use std::ops::Range;

use crate::measure::{Meter, Run, Stage};
use s3mq_queue::Stamps;

/// Records the stages of one batch. What all its messages share is recorded once for all, what a run of them shares once
/// for the run.
pub(super) struct BatchStages<'a> {
    stamps: &'a Stamps,
    /// The run of `handed_over` that the current message is in.
    handed_over_run: usize,
    /// The current times of handed over, sealed, delivered and since the hand-over.
    runs: [Run; 4],
    measured: u64,
}

impl<'a> BatchStages<'a> {
    pub(super) fn new(stamps: &'a Stamps) -> Self {
        Self { stamps, handed_over_run: 0, runs: Default::default(), measured: 0 }
    }

    /// The messages at these indices of the batch are measured; indices ascend. They were due and received at
    /// the same times.
    pub(super) fn record(&mut self, meter: &mut Meter, indices: Range<u64>, due_us: i64, received_us: i64) {
        self.measured += indices.end - indices.start;
        let Stamps { producer, decoded_us, .. } = self.stamps;
        let mut index = indices.start;
        while index < indices.end {
            let next_run = loop {
                match producer.handed_over.get(self.handed_over_run + 1) {
                    Some(run) if run.0 <= index => self.handed_over_run += 1,
                    run => break run,
                }
            };
            let run_end = next_run.map_or(indices.end, |run| run.0.min(indices.end));
            // Where the producer didn't say, a message was handed over when its batch was closed.
            let handed_over_us =
                producer.handed_over.get(self.handed_over_run).map_or(producer.sealed_us, |run| run.1);
            let count = run_end - index;
            let times_us = [
                handed_over_us - due_us,
                producer.sealed_us - handed_over_us,
                received_us - decoded_us,
                received_us - handed_over_us,
            ];
            record_runs(meter, std::array::from_fn(|i| self.runs[i].add(times_us[i], count)));
            index = run_end;
        }
    }

    /// Records what is still pending: at the end of the batch, and before an interval ends.
    pub(super) fn settle(&mut self, meter: &mut Meter) {
        record_runs(meter, self.runs.each_mut().map(Run::end));
        let Stamps { producer, commit_sent_us, discovered_us, fetched_us, decoded_us } = self.stamps;
        let measured = std::mem::take(&mut self.measured);
        for (stage, us) in [
            (Stage::Queued, producer.queued_us - producer.sealed_us),
            (Stage::Encoded, producer.encoded_us - producer.queued_us),
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

/// Records those of the four runs that ended.
fn record_runs(meter: &mut Meter, ended: [Option<(i64, u64)>; 4]) {
    let [handed_over, sealed, delivered, since_handed_over] = ended;
    let stages = [(Stage::HandedOver, handed_over), (Stage::Sealed, sealed), (Stage::Delivered, delivered)];
    for (stage, run) in stages {
        if let Some((us, count)) = run {
            meter.record_stage(stage, us, count);
        }
    }
    if let Some((us, count)) = since_handed_over {
        meter.record_since_handed_over(us, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3mq_queue::ProducerStamps;
    use strum::VariantArray;

    /// The means of the stages of one message with these ten stamps after it was due.
    fn stages_of(at: [i64; 10]) -> Vec<f64> {
        let [
            handed_over_us,
            sealed_us,
            queued_us,
            encoded_us,
            stored_us,
            commit_sent_us,
            discovered_us,
            fetched_us,
            decoded_us,
            delivered_us,
        ] = at;
        let producer = ProducerStamps {
            handed_over: vec![(0, handed_over_us)],
            sealed_us,
            queued_us,
            encoded_us,
            stored_us,
        };
        let stamps = Stamps { producer, commit_sent_us, discovered_us, fetched_us, decoded_us };
        let (mut meter, mut stages_of_batch) = (Meter::new(0..i64::MAX), BatchStages::new(&stamps));
        assert!(meter.record(0, delivered_us, 1));
        stages_of_batch.record(&mut meter, 0..1, 0, delivered_us);
        stages_of_batch.settle(&mut meter);
        meter.into_total().stages.summary().iter().map(|stage| stage.mean_us).collect()
    }

    #[test]
    fn a_delay_at_one_stage_moves_that_stage_alone() {
        let at = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
        assert_eq!(stages_of(at), [10.0; 10]);
        for delayed in 0..Stage::VARIANTS.len() {
            let mut later = at;
            later[delayed..].iter_mut().for_each(|us| *us += 1_000);
            let mut expected = [10.0; 10];
            expected[delayed] = 1_010.0;
            assert_eq!(stages_of(later), expected, "{:?}", Stage::VARIANTS[delayed]);
        }
    }

    #[test]
    fn the_stages_of_each_message_add_up_to_its_latency() {
        let stamps = Stamps {
            producer: ProducerStamps {
                handed_over: vec![(0, 1_000), (3, 2_000)],
                sealed_us: 2_500,
                queued_us: 2_550,
                encoded_us: 2_600,
                stored_us: 3_600,
            },
            commit_sent_us: 3_650,
            discovered_us: 5_000,
            fetched_us: 5_700,
            decoded_us: 5_750,
        };
        let mut meter = Meter::new(0..i64::MAX);
        let mut stages_of_batch = BatchStages::new(&stamps);
        // The second run goes across two hand-overs.
        for (indices, due_us) in [(0..2, 900), (2..4, 950), (4..5, 2_000)] {
            let received_us = 5_800 + indices.start as i64 / 2;
            assert!(meter.record(due_us, received_us, indices.end - indices.start));
            stages_of_batch.record(&mut meter, indices.clone(), due_us, received_us);
            if indices.end == 4 {
                stages_of_batch.settle(&mut meter);
                meter.end_interval();
            }
        }
        stages_of_batch.settle(&mut meter);
        let total = meter.into_total();
        let stages = total.stages.summary();
        assert_eq!(stages.len(), Stage::VARIANTS.len());
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
