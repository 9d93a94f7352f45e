//! Reading the due time back out of a message.

/// The Unix microseconds at the start of a message: decimal seconds with any number of decimals, of which six count, then
/// the end or a space. `None` where there is no such stamp. A float would have no exact microseconds.
#[inline]
pub fn due_us(message: &[u8]) -> Option<i64> {
    ours(message).or_else(|| foreign(message))
}

/// A stamp as we write it: ten digits, a point, six digits.
#[inline]
fn ours(message: &[u8]) -> Option<i64> {
    let (stamp, rest) = message.split_first_chunk::<17>()?;
    let [a, b, c, d, e, f, g, h, tens, ones, b'.', decimals @ ..] = stamp else { return None };
    if !matches!(rest, [] | [b' ', ..]) {
        return None;
    }
    let [i, j, k, l, m, n] = decimals;
    let high = eight_digits([*a, *b, *c, *d, *e, *f, *g, *h])?;
    let low = eight_digits([*tens, *ones, *i, *j, *k, *l, *m, *n])?;
    Some((high * 100_000_000 + low) as i64)
}

/// The number that eight decimal digits make; `None` where one is none. They are added up in pairs of pairs.
#[inline]
fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    let text = u64::from_be_bytes(digits);
    // A digit is 0x30 to 0x39: its high half is 3, also after adding 6.
    const HIGH_HALVES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    let threes = 0x3030_3030_3030_3030;
    if text & HIGH_HALVES != threes || (text + 0x0606_0606_0606_0606) & HIGH_HALVES != threes {
        return None;
    }
    let ones = text - threes;
    let pairs = (ones & 0x000f_000f_000f_000f) + 10 * ((ones >> 8) & 0x000f_000f_000f_000f);
    let fours = (pairs & 0x0000_00ff_0000_00ff) + 100 * ((pairs >> 16) & 0x0000_00ff_0000_00ff);
    Some((fours & 0xffff) + 10_000 * (fours >> 32))
}

/// A stamp of any writer, digit by digit.
fn foreign(message: &[u8]) -> Option<i64> {
    let mut value: i64 = 0;
    let mut decimals: Option<u32> = None;
    let mut digits = 0;
    for &byte in message {
        match byte {
            b'0'..=b'9' => {
                digits += 1;
                match &mut decimals {
                    Some(6) => continue,
                    Some(decimals) => *decimals += 1,
                    None => {}
                }
                value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
            }
            b'.' if decimals.is_none() && digits > 0 => decimals = Some(0),
            b' ' if digits > 0 => break,
            _ => return None,
        }
    }
    if digits == 0 {
        return None;
    }
    value.checked_mul(10_i64.pow(6 - decimals.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stamps_of_ours_and_of_others_are_read() {
        for (text, expected) in [
            ("1724403133.066217", Some(1_724_403_133_066_217)),
            ("1724403133.066217 padding 1.5", Some(1_724_403_133_066_217)),
            ("1724403133.0662", Some(1_724_403_133_066_200)),
            ("1724403133.0662171999", Some(1_724_403_133_066_217)),
            ("1724403133", Some(1_724_403_133_000_000)),
            ("1724403133.", Some(1_724_403_133_000_000)),
            ("", None),
            (" ", None),
            (".5", None),
            ("-1", None),
            ("1e9", None),
            ("1.2.3", None),
            ("hello", None),
            ("99999999999999999999", None),
            ("9999999999999999.5", None),
        ] {
            assert_eq!(due_us(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn microseconds_survive_exactly(us in 0i64..9_999_999_999_999_999) {
            let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            prop_assert_eq!(due_us(text.as_bytes()), Some(us));
        }

        #[test]
        fn the_quick_way_and_the_slow_way_agree(
            us in 1_000_000_000_000_000i64..10_000_000_000_000_000,
            change in proptest::option::of((0usize..18, any::<u8>())),
        ) {
            let mut text = format!("{}.{:06} x", us / 1_000_000, us % 1_000_000).into_bytes();
            if let Some((index, byte)) = change {
                text[index] = byte;
            }
            prop_assert_eq!(due_us(&text), foreign(&text));
            prop_assert_eq!(due_us(&text[..17]), foreign(&text[..17]));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = due_us(&bytes);
        }
    }
}
