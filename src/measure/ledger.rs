//! What came of what was sent: lost, duplicated, out of order, per producer epoch. A stream's messages are numbered from 0;
//! the ledger keeps the ranges of numbers that it has seen.

use std::collections::BTreeMap;
use std::ops::Range;

use rangemap::RangeSet;
use serde::{Deserialize, Serialize};

/// One stream's account.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The first number that was to come.
    from: u64,
    seen: RangeSet<u64>,
    received: u64,
    duplicated: u64,
    out_of_order: u64,
    /// Messages below this number were committed, whether they came or not.
    committed: u64,
    /// How many messages the stream was said to hold, once it has ended.
    ended_with: Option<u64>,
}

impl Stream {
    fn highest(&self) -> u64 {
        self.seen.last().map_or(0, |range| range.end)
    }

    fn record(&mut self, numbers: Range<u64>) {
        self.received += numbers.end - numbers.start;
        let already = self.seen_of(&numbers);
        self.duplicated += already;
        let below_highest = numbers.end.min(self.highest()).saturating_sub(numbers.start);
        self.out_of_order += below_highest.saturating_sub(already);
        self.seen.insert(numbers);
    }

    /// Of `numbers`, how many have been seen.
    fn seen_of(&self, numbers: &Range<u64>) -> u64 {
        let seen = self.seen.overlapping(numbers);
        seen.map(|range| range.end.min(numbers.end) - range.start.max(numbers.start)).sum()
    }

    /// The numbers that should have come and did not.
    fn gaps(&self) -> Vec<Range<u64>> {
        let end = self.committed.max(self.ended_with.unwrap_or(0)).max(self.highest());
        if self.from < end { self.seen.gaps(&(self.from..end)).collect() } else { Vec::new() }
    }

    /// Messages numbered beyond the count that the stream ended with.
    fn beyond_end(&self) -> u64 {
        self.ended_with.map_or(0, |count| self.seen_of(&(count..u64::MAX)))
    }
}

/// The account of every stream; `K` names a stream.
#[derive(Clone, Debug)]
pub struct Ledger<K> {
    streams: BTreeMap<K, Stream>,
    /// Whether streams may have begun before us.
    is_midway: bool,
}

impl<K> Ledger<K> {
    /// Of streams that are followed from their beginning, or, if `is_midway`, from the first message that comes of each.
    pub fn new(is_midway: bool) -> Self {
        Self { streams: BTreeMap::new(), is_midway }
    }
}

impl<K: Ord + Copy> Ledger<K> {
    /// Messages `numbers` of a stream came, in this order.
    pub fn record(&mut self, stream: &K, numbers: Range<u64>) {
        if !numbers.is_empty() {
            self.stream(stream, numbers.start).record(numbers);
        }
    }

    /// Messages `numbers` of a stream were committed: those of them, and of the ones before, that don't come are
    /// lost, even if no later one does.
    pub fn committed(&mut self, stream: &K, numbers: Range<u64>) {
        let stream = self.stream(stream, numbers.start);
        stream.committed = stream.committed.max(numbers.end);
    }

    /// A stream ended, having held `count` messages.
    pub fn end(&mut self, stream: &K, count: u64) {
        self.stream(stream, count).ended_with = Some(count);
    }

    /// How many streams have ended.
    pub fn ended(&self) -> usize {
        self.streams.values().filter(|stream| stream.ended_with.is_some()).count()
    }

    /// The account as it stands.
    pub fn integrity(&self) -> Integrity<K> {
        let streams: Vec<_> = self
            .streams
            .iter()
            .map(|(key, stream)| {
                let gaps = stream.gaps();
                StreamIntegrity {
                    stream: *key,
                    received: stream.received,
                    ended_with: stream.ended_with,
                    lost: gaps.iter().map(|gap| gap.end - gap.start).sum(),
                    first_lost: gaps.iter().take(10).map(|gap| (gap.start, gap.end - 1)).collect(),
                    duplicated: stream.duplicated,
                    out_of_order: stream.out_of_order,
                    beyond_end: stream.beyond_end(),
                }
            })
            .collect();
        Integrity { streams }
    }

    /// A stream that this number is of.
    fn stream(&mut self, key: &K, number: u64) -> &mut Stream {
        let from = if self.is_midway { number } else { 0 };
        self.streams.entry(*key).or_insert_with(|| Stream { from, ..Stream::default() })
    }
}

/// The account of every stream, for a result. Its sums are over all streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Integrity<K> {
    /// One row a stream.
    pub streams: Vec<StreamIntegrity<K>>,
}

impl<K> Integrity<K> {
    /// Messages that should have come and did not.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(|stream| stream.lost).sum()
    }

    /// Messages that came more than once.
    pub fn duplicated(&self) -> u64 {
        self.streams.iter().map(|stream| stream.duplicated).sum()
    }

    /// Messages that came after a later one of their stream.
    pub fn out_of_order(&self) -> u64 {
        self.streams.iter().map(|stream| stream.out_of_order).sum()
    }

    /// Messages beyond the count that their stream ended with.
    pub fn beyond_end(&self) -> u64 {
        self.streams.iter().map(|stream| stream.beyond_end).sum()
    }
}

/// One stream's account, for a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamIntegrity<K> {
    /// Which stream.
    pub stream: K,
    /// Messages that came, duplicates included.
    pub received: u64,
    /// How many the stream said it held, once it ended.
    pub ended_with: Option<u64>,
    /// How many did not come.
    pub lost: u64,
    /// The first ten ranges of them, both ends included.
    pub first_lost: Vec<(u64, u64)>,
    /// How many came again.
    pub duplicated: u64,
    /// How many came after a later one.
    pub out_of_order: u64,
    /// How many were numbered beyond the stream's end.
    pub beyond_end: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn account(ranges: &[Range<u64>], end: Option<u64>) -> StreamIntegrity<u8> {
        let mut ledger = Ledger::new(false);
        ranges.iter().for_each(|range| ledger.record(&0u8, range.clone()));
        if let Some(count) = end {
            ledger.end(&0, count);
        }
        ledger.integrity().streams.remove(0)
    }

    #[test]
    fn in_order_is_one_range() {
        let mut stream = Stream::default();
        (0..10_000).for_each(|i| stream.record(i * 3..i * 3 + 3));
        assert_eq!(stream.seen.len(), 1);
        assert_eq!((stream.received, stream.duplicated, stream.out_of_order), (30_000, 0, 0));
    }

    #[test]
    fn each_fault_is_told_apart() {
        let lost = account(&[0..10, 15..20], Some(25));
        assert_eq!((lost.lost, lost.first_lost.as_slice()), (10, [(10, 14), (20, 24)].as_slice()));
        assert_eq!((lost.duplicated, lost.out_of_order), (0, 0));
        let doubled = account(&[0..10, 5..10], Some(10));
        assert_eq!((doubled.lost, doubled.duplicated, doubled.out_of_order), (0, 5, 0));
        let swapped = account(&[0..5, 10..15, 5..10], Some(15));
        assert_eq!((swapped.lost, swapped.duplicated, swapped.out_of_order), (0, 0, 5));
        let longer = account(&[0..5, 5..10], Some(8));
        assert_eq!((longer.lost, longer.beyond_end), (0, 2));
        let never_came = account(&[], Some(8));
        assert_eq!(never_came.lost, 8);
    }

    #[test]
    fn what_came_before_us_is_not_lost() {
        let mut ledger = Ledger::new(true);
        ledger.record(&0u8, 100..110);
        ledger.record(&0, 115..120);
        ledger.end(&0, 125);
        // Of this one the first that is told is a file that can't be read, of that one the end alone.
        ledger.committed(&1, 50..60);
        ledger.record(&1, 60..70);
        ledger.end(&2, 1000);
        ledger.record(&3, 0..10);
        let lost: Vec<_> =
            ledger.integrity().streams.into_iter().map(|one| (one.lost, one.first_lost)).collect();
        let expected =
            [(10, vec![(110, 114), (120, 124)]), (10, vec![(50, 59)]), (0, Vec::new()), (0, Vec::new())];
        assert_eq!(lost, expected);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(
            ranges in proptest::collection::vec((0u64..200, 1u64..30), 0..40),
            end in 0u64..260,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let (mut seen, mut duplicated, mut out_of_order) = (BTreeSet::new(), 0, 0);
            for range in &ranges {
                let highest = seen.last().map_or(0, |last| last + 1);
                for number in range.clone() {
                    if !seen.insert(number) {
                        duplicated += 1;
                    } else if number < highest {
                        out_of_order += 1;
                    }
                }
            }
            let upto = end.max(seen.last().map_or(0, |last| last + 1));
            let lost = (0..upto).filter(|number| !seen.contains(number)).count() as u64;
            let beyond = seen.iter().filter(|&&number| number >= end).count() as u64;
            let got = account(&ranges, Some(end));
            prop_assert_eq!((got.lost, got.duplicated, got.out_of_order, got.beyond_end), (lost, duplicated, out_of_order, beyond));
        }
    }
}
