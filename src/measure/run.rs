//! Consecutive equal values, so that a histogram is looked up once for all of them.

/// A run of equal values that may go on. At a million messages a second, most share their time to the
/// microsecond with a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    value: i64,
    count: u64,
}

impl Run {
    /// Adds `count` times `value`. Where another run ends by that, gives its value and count.
    #[inline]
    #[must_use]
    pub fn add(&mut self, value: i64, count: u64) -> Option<(i64, u64)> {
        if value == self.value {
            self.count += count;
            return None;
        }
        let ended = self.end();
        *self = Self { value, count };
        ended
    }

    /// Ends the run; `None` where there is none.
    pub fn end(&mut self) -> Option<(i64, u64)> {
        let count = std::mem::take(&mut self.count);
        (count > 0).then_some((self.value, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_hold_what_was_added_in_order(values in proptest::collection::vec((-3i64..3, 0u64..4), 0..50)) {
            let (mut run, mut ended) = (Run::default(), Vec::new());
            for &(value, count) in &values {
                ended.extend(run.add(value, count));
            }
            ended.extend(run.end());
            prop_assert_eq!(run.end(), None);
            prop_assert!(ended.iter().all(|&(_, count)| count > 0));
            let flat = |runs: &[(i64, u64)]| -> Vec<i64> {
                runs.iter().flat_map(|&(value, count)| std::iter::repeat_n(value, count as usize)).collect()
            };
            prop_assert_eq!(flat(&ended), flat(&values));
        }
    }
}
