//! Whole command lines.

use s3mq::fuzz::command_line;

/// A command line, an argument a line, is taken or refused with a reason.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = command_line(&text.lines().collect::<Vec<_>>()) {
        assert!(!error.trim().is_empty());
    }
}
