//! Files that the user names: read with a limit, for a name may be that of something without an end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::failure::Failure;

/// The most that a file which people write may have: rules, prices, a model, certificates.
pub const WRITTEN_BYTES: u64 = 1 << 20;
/// The most that a file which this program wrote may have: an interval log of days, the results of `layers`.
pub const RECORDED_BYTES: u64 = 1 << 30;

/// The bytes of the file at `path`, at most `most_bytes` of them.
///
/// # Errors
/// As the system has it, or that the file is larger.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let error = format!("it has more than {} MiB, which nothing of its kind has", most_bytes >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// Also where it isn't UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, most_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// The text of a file that people write and `flag` names, as `read` has it.
///
/// # Errors
/// What is wrong with it, by flag and file.
pub fn read_written<T, E: std::fmt::Display>(
    flag: &str,
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = read_text(path, WRITTEN_BYTES).map_err(|error| cannot_use(flag, path, &error))?;
    read(&text).map_err(|error| cannot_use(flag, path, &error))
}

/// What is wrong with the file that `flag` names.
pub fn cannot_use(flag: &str, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{flag} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "12345678");
        assert_eq!(read(&path, 7).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read(Path::new("/dev/zero"), WRITTEN_BYTES).unwrap_err().to_string().contains("1 MiB"));
    }
}
