//! Result files that are either whole or marked as partial. Each error names its file.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that grows as `NAME.partial` and becomes `NAME` when it is finished. One that is dropped
/// unfinished stays behind as partial, with what it has.
#[derive(Debug)]
pub struct PartialFile {
    writer: BufWriter<File>,
    target: PathBuf,
}

impl PartialFile {
    /// Creates the partial file, in place of an older one.
    ///
    /// # Errors
    /// When it can't be created, or could not be renamed in the end.
    pub fn create(target: &Path) -> io::Result<Self> {
        if target.is_dir() {
            return Err(named(target, &io::ErrorKind::IsADirectory.into()));
        }
        let partial = partial_name(target);
        let file = File::create(&partial).map_err(|error| named(&partial, &error))?;
        Ok(Self { writer: BufWriter::with_capacity(256 << 10, file), target: target.to_owned() })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// When it can't be written or renamed.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.flush().map_err(|error| named(&self.target, &error))?;
        fs::rename(partial_name(&self.target), &self.target).map_err(|error| named(&self.target, &error))
    }

    /// Writes a whole file at once, under its partial name first.
    ///
    /// # Errors
    /// When it can't be written or renamed.
    pub fn write_whole(target: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = Self::create(target)?;
        file.write_all(bytes)?;
        file.finish()
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes).map_err(|error| named(&self.target, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush().map_err(|error| named(&self.target, &error))
    }
}

/// Creates a directory for results and proves that files can be written there.
pub(crate) fn prepare_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
    // Several processes may try the same directory at once: the file has no name, or one of its own.
    tempfile::tempfile_in(directory).map_err(|error| {
        io::Error::new(error.kind(), format!("no file can be written to {}: {error}", directory.display()))
    })?;
    Ok(())
}

/// Creates the directory of a file for results and proves that files can be written there.
///
/// # Errors
/// When it can't be created or written to.
pub fn prepare_file(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    prepare_directory(directory.unwrap_or(Path::new(".")))
}

/// Keeps a second bench off a directory for results for as long as the file is open. The lock is on the directory
/// itself, so that it leaves nothing behind.
pub(crate) fn lock_directory(directory: &Path) -> io::Result<File> {
    let lock = File::open(directory).map_err(|error| named(directory, &error))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let held = "another bench writes its results there; choose another, or wait";
            Err(named(directory, &io::Error::new(io::ErrorKind::WouldBlock, held)))
        }
        // A file system without locks can't keep anybody off.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
    }
}

/// Gives a partial file that another process left behind its name; nothing where there is none.
pub(crate) fn promote(target: &Path) -> io::Result<()> {
    unless_missing(target, fs::rename(partial_name(target), target))
}

/// Marks a file that another process finished as partial after all; nothing where there is none.
pub(crate) fn demote(target: &Path) -> io::Result<()> {
    unless_missing(target, fs::rename(target, partial_name(target)))
}

/// Removes a file of an earlier run, whole or partial; nothing where there is none.
pub(crate) fn discard(target: &Path) -> io::Result<()> {
    [partial_name(target), target.to_owned()]
        .iter()
        .try_for_each(|path| unless_missing(path, fs::remove_file(path)))
}

/// The error that names the file, unless the file isn't there.
fn unless_missing(path: &Path, done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(path, &error)),
        _ => Ok(()),
    }
}

fn partial_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(target.as_os_str());
    name.push(".partial");
    PathBuf::from(name)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_its_name_only_when_finished() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("1000.csv");
        let mut file = PartialFile::create(&target).unwrap();
        file.write_all(b"rows").unwrap();
        assert!(!target.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"rows");
        assert!(!directory.path().join("1000.csv.partial").exists());
    }

    #[test]
    fn an_unfinished_file_stays_partial_with_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("1000.csv");
        let mut file = PartialFile::create(&target).unwrap();
        file.write_all(b"rows").unwrap();
        drop(file);
        assert!(!target.exists());
        assert_eq!(fs::read(directory.path().join("1000.csv.partial")).unwrap(), b"rows");
        promote(&target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"rows");
        promote(&target).unwrap();
    }

    #[test]
    fn a_directory_is_locked_until_its_lock_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let lock = lock_directory(directory.path()).unwrap();
        assert!(lock_directory(directory.path()).is_err());
        drop(lock);
        assert!(lock_directory(directory.path()).is_ok());
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = prepare_directory(&file.join("results")).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
