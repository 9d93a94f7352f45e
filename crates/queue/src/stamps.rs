//! When each stage of a batch ended at the producer, as carried in the `commitInfo` of its commit: `SEALED QUEUED ENCODED
//! STORED [INDEX:HANDED_OVER,…]`, the first in Unix microseconds, the others as microseconds after it.

use std::fmt::Write;

/// The producer's stamps of one data file, in Unix microseconds of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStamps {
    /// Runs of messages that were handed over at once, ascending from 0: the first one's index in the file, and when.
    pub handed_over: Vec<(u64, i64)>,
    /// When the batch was closed.
    pub sealed_us: i64,
    /// Since when its file was made: what it waited for room, a thread or the processor lies before this.
    pub queued_us: i64,
    /// When its file was encoded.
    pub encoded_us: i64,
    /// When the store had acknowledged the file.
    pub stored_us: i64,
}

/// All stamps of one data file, in Unix microseconds of the producer's clock or of the consumer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The producer's half.
    pub producer: ProducerStamps,
    /// When the commit's first PUT was sent.
    pub commit_sent_us: i64,
    /// When the consumer had the log entry.
    pub discovered_us: i64,
    /// When it had the file.
    pub fetched_us: i64,
    /// When the file was decoded.
    pub decoded_us: i64,
}

impl ProducerStamps {
    pub(super) fn to_text(&self) -> String {
        let after = |us: i64| us - self.sealed_us;
        let stages = [self.queued_us, self.encoded_us, self.stored_us].map(after);
        let mut text = format!("{} {} {} {}", self.sealed_us, stages[0], stages[1], stages[2]);
        for (run, &(index, us)) in self.handed_over.iter().enumerate() {
            let _ = write!(text, "{}{index}:{}", if run == 0 { ' ' } else { ',' }, after(us));
        }
        text
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let sealed_us: i64 = parts.next()?.parse().ok()?;
        let mut after = || sealed_us.checked_add(parts.next()?.parse().ok()?);
        let (queued_us, encoded_us, stored_us) = (after()?, after()?, after()?);
        let handed_over = match parts.next() {
            None => Vec::new(),
            Some(runs) => runs
                .split(',')
                .map(|run| {
                    let (index, us) = run.split_once(':')?;
                    Some((index.parse().ok()?, sealed_us.checked_add(us.parse().ok()?)?))
                })
                .collect::<Option<Vec<_>>>()?,
        };
        let ascending =
            handed_over.is_sorted_by(|a, b| a.0 < b.0) && handed_over.first().is_none_or(|run| run.0 == 0);
        ascending.then_some(Self { handed_over, sealed_us, queued_us, encoded_us, stored_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_survive_their_text_form(
            sealed_us in 1_000_000_000_000_000i64..3_000_000_000_000_000,
            queued in -1_000_000i64..1_000_000,
            encoded in -1_000_000i64..1_000_000,
            stored in -1_000_000i64..1_000_000,
            runs in proptest::collection::vec((1u64..1000, -2_000_000i64..0), 0..20),
        ) {
            let mut index = 0;
            let handed_over = runs.iter().enumerate().map(|(i, &(length, us))| {
                if i > 0 { index += length; }
                (index, sealed_us + us)
            }).collect();
            let stamps = ProducerStamps { handed_over, sealed_us, queued_us: sealed_us + queued, encoded_us: sealed_us + encoded, stored_us: sealed_us + stored };
            prop_assert_eq!(ProducerStamps::parse(&stamps.to_text()), Some(stamps));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = ProducerStamps::parse(&text);
        }
    }

    #[test]
    fn stamps_that_make_no_sense_are_refused() {
        for text in [
            "",
            "1",
            "1 2 3",
            "x 2 3 4",
            "1 2 3 4 5:0",
            "1 2 3 4 0:0,0:1",
            "1 2 3 4 0",
            "9223372036854775807 1 1 1",
        ] {
            assert_eq!(ProducerStamps::parse(text), None, "{text}");
        }
    }
}
