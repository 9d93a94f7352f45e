//! See [`crate::hot`].

/// Unix microseconds of a message's stamp.
pub fn due_us(message: &[u8]) -> Option<i64> {
    super::stamp::due_us(message)
}
