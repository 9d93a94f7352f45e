//! What a message is made of: its due time as decimal Unix seconds, `1724403133.066217`, and, where it is to be longer,
//! one space and padding.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use serde::Serialize;

/// What fills a message up to its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// The alphabet over and over
    #[default]
    Text,
    /// Random letters and digits
    Random,
}

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 17;

/// Writes messages into a buffer, without an allocation each.
#[derive(Debug)]
pub struct Payload {
    /// The space before the padding included.
    padding_bytes: usize,
    /// Padding is copied out of here, from a random place for random padding.
    pool: Vec<u8>,
    random: Option<SmallRng>,
    /// The second that `stamp` begins with.
    second: i64,
    /// The last stamp that was written.
    stamp: [u8; STAMP_BYTES],
}

/// Longer than any window in which a compressor would find the same bytes again cheaply.
const RANDOM_POOL_BYTES: usize = 8 << 20;

impl Payload {
    /// Messages of `size` bytes, or of a stamp alone. Sizes below [`STAMP_BYTES`] count as that.
    pub fn new(size: Option<usize>, padding: Padding, seed: u64) -> Self {
        let padding_bytes = size.unwrap_or(0).saturating_sub(STAMP_BYTES);
        let mut random = SmallRng::seed_from_u64(seed);
        let pool = match padding {
            Padding::Text => (b'a'..=b'z').cycle().take(padding_bytes).collect(),
            Padding::Random => {
                const SYMBOLS: &[u8; 64] =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
                let pool_bytes = if padding_bytes == 0 { 0 } else { RANDOM_POOL_BYTES + padding_bytes };
                let mut pool = vec![0; pool_bytes];
                random.fill_bytes(&mut pool);
                pool.iter_mut().for_each(|byte| *byte = SYMBOLS[usize::from(*byte & 63)]);
                pool
            }
        };
        Self {
            padding_bytes,
            pool,
            random: (padding == Padding::Random).then_some(random),
            second: i64::MIN,
            stamp: [b'.'; STAMP_BYTES],
        }
    }

    /// Bytes of each message, while the clock has ten digits of seconds (until 2286).
    pub fn message_bytes(&self) -> usize {
        STAMP_BYTES + self.padding_bytes
    }

    /// Appends a message that is due at `due_us` Unix microseconds.
    pub fn write(&mut self, due_us: i64, into: &mut Vec<u8>) {
        let (second, micros) = (due_us.div_euclid(1_000_000), due_us.rem_euclid(1_000_000));
        if !(1_000_000_000..10_000_000_000).contains(&second) {
            // Not a date of our time; correct all the same.
            into.extend_from_slice(format!("{second}.{micros:06}").as_bytes());
        } else {
            if second != self.second {
                self.second = second;
                self.stamp[..10].copy_from_slice(second.to_string().as_bytes());
            }
            self.stamp[11..].copy_from_slice(&six_digits(micros as u32));
            into.extend_from_slice(&self.stamp);
        }
        if self.padding_bytes > 0 {
            into.push(b' ');
            let length = self.padding_bytes - 1;
            let from = match &mut self.random {
                Some(random) if length > 0 => random.random_range(0..RANDOM_POOL_BYTES),
                _ => 0,
            };
            into.extend_from_slice(&self.pool[from..from + length]);
        }
    }
}

/// A number below a million, by pairs: none of the divisions waits for another's remainder twice.
fn six_digits(value: u32) -> [u8; 6] {
    let (first, rest) = (value / 10_000, value % 10_000);
    let (second, third) = (rest / 100, rest % 100);
    let digits = [first / 10, first % 10, second / 10, second % 10, third / 10, third % 10];
    digits.map(|digit| b'0' + digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: Option<usize>, padding: Padding, due_us: i64) -> String {
        let mut payload = Payload::new(size, padding, 1);
        let mut buffer = Vec::new();
        payload.write(due_us, &mut buffer);
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn a_message_is_its_due_time() {
        assert_eq!(message(None, Padding::Text, 1_724_403_133_066_217), "1724403133.066217");
        assert_eq!(message(None, Padding::Text, 1_724_403_133_000_007), "1724403133.000007");
        assert_eq!(message(None, Padding::Text, 999_999_999_000_001), "999999999.000001");
    }

    #[test]
    fn consecutive_seconds_do_not_share_their_digits() {
        let mut payload = Payload::new(None, Padding::Text, 1);
        let mut buffer = Vec::new();
        for due_us in [1_999_999_999_999_999, 2_000_000_000_000_000, 2_000_000_000_000_001] {
            payload.write(due_us, &mut buffer);
        }
        assert_eq!(buffer, b"1999999999.9999992000000000.0000002000000000.000001");
    }

    #[test]
    fn padding_fills_up_to_the_size() {
        for padding in [Padding::Text, Padding::Random] {
            for size in [17, 18, 19, 100, 1024] {
                let text = message(Some(size), padding, 1_724_403_133_066_217);
                assert_eq!(text.len(), size);
                assert_eq!(Payload::new(Some(size), padding, 1).message_bytes(), size);
                assert!(text.starts_with("1724403133.066217"));
                assert!(size == 17 || text.as_bytes()[17] == b' ');
            }
        }
        assert_ne!(message(Some(100), Padding::Random, 1), message(Some(100), Padding::Text, 1));
    }
}
