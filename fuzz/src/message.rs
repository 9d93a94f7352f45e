//! The stamp at the start of a message.

use s3mq::hot::due_us;

/// The stamp is what a simple reader makes of it.
pub fn check(message: &[u8]) {
    assert_eq!(due_us(message), simply(message));
}

/// Decimal seconds up to a space or the end, in microseconds; what is finer is cut off.
fn simply(message: &[u8]) -> Option<i64> {
    let stamp = std::str::from_utf8(message.split(|byte| *byte == b' ').next()?).ok()?;
    let (seconds, decimals) = stamp.split_once('.').unwrap_or((stamp, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !are_digits(seconds) || !are_digits(decimals) {
        return None;
    }
    let micros: String = decimals.chars().chain("000000".chars()).take(6).collect();
    format!("{seconds}{micros}").parse().ok()
}
