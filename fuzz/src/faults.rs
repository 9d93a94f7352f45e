//! Fault files.

use s3mq_server::Faults;

use super::is_one_line;

/// A file is refused on one line, or read the same each time; so are its rules as those of a proxy.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let faults = match Faults::parse(text) {
        Ok(faults) => faults,
        Err(error) => return assert!(is_one_line(&error.to_string()), "{error}"),
    };
    assert_eq!(Faults::parse(text).as_ref(), Ok(&faults));
    if let Err(error) = faults.check_for_a_proxy() {
        assert!(is_one_line(&error.to_string()), "{error}");
    }
}
