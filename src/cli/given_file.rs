//! Files that the user names.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use super::failure::Failure;

/// The text of the file that `flag` names, as `read` has it, or what is wrong with the file.
pub fn read<T, E: Display>(
    flag: &str,
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot_use(flag, path, &error))?;
    read(&text).map_err(|error| cannot_use(flag, path, &error))
}

/// What is wrong with the file that `flag` names.
pub fn cannot_use(flag: &str, path: &Path, error: &dyn Display) -> Failure {
    Failure::usage(format!("{flag} {}: {error}", path.display()))
}
