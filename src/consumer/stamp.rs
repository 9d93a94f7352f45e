//! Reading the due time back out of a message.

/// The Unix microseconds at the start of a message: decimal seconds with any number of decimals, then
/// the end or a space. `None` where there is no such stamp.
///
/// Digits beyond the sixth decimal are cut off. No string and no float is made on the way: a float of
/// seconds since 1970 has no exact microseconds.
pub(super) fn due_us(message: &[u8]) -> Option<i64> {
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
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = due_us(&bytes);
        }
    }
}
