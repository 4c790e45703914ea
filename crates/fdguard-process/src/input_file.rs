//! Reads files named on a command line or in a configuration, with a size limit.
//!
//! A device has no end, and a wrong name may be a disk image: both are refused before they exhaust
//! memory.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Files that people write: configurations, playbooks, scenarios, baselines.
pub const WRITTEN: u64 = 4 << 20;
/// Files that fdguard writes: snapshots of whole hosts.
pub const SAVED: u64 = 512 << 20;
/// A token.
pub const TOKEN: u64 = 64 << 10;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A system error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a directory.
    #[error("is a directory, not a file")]
    Directory,
    /// It is a device.
    #[error("is a device, not a file")]
    Device,
    /// It is larger than expected there.
    #[error("is larger than {}", fdguard_core::units::size(fdguard_core::count::as_f64(*.0)))]
    TooLarge(u64),
    /// Its bytes are not UTF-8.
    #[error("is not text")]
    NotText,
}

impl InputError {
    /// Whether reading it would have been unbounded.
    #[must_use]
    pub fn is_mistake(&self) -> bool {
        matches!(self, Self::Device | Self::TooLarge(_))
    }

    /// Whether the file does not exist.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens a file to be read piece by piece. Pipes and terminals are accepted, too.
pub fn open(path: &Path) -> Result<File, InputError> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    let kind = found.file_type();
    if kind.is_dir() {
        return Err(InputError::Directory);
    }
    let is_harmless = is_null(found.rdev()) || file.is_terminal();
    if kind.is_block_device() || (kind.is_char_device() && !is_harmless) {
        return Err(InputError::Device);
    }
    Ok(file)
}

/// Whether it is `/dev/null`, which is always at its end.
fn is_null(device: u64) -> bool {
    (rustix::fs::major(device), rustix::fs::minor(device)) == (1, 3)
}

/// The whole file, if it has no more bytes than these.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, InputError> {
    read_from(open(path)?, most)
}

/// The whole file as text.
pub fn read_text(path: &Path, most: u64) -> Result<String, InputError> {
    String::from_utf8(read(path, most)?).map_err(|_bytes| InputError::NotText)
}

/// The rest of an open file.
pub fn read_from(file: File, most: u64) -> Result<Vec<u8>, InputError> {
    // A known size is refused before reading.
    if file.metadata().is_ok_and(|found| found.len() > most) {
        return Err(InputError::TooLarge(most));
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(InputError::TooLarge(most));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn devices_dirs_and_large_files_are_refused() {
        let refused = |path: &str| read(Path::new(path), 10).unwrap_err().to_string();
        assert_eq!(refused("/dev/zero"), "is a device, not a file");
        assert_eq!(refused("/dev/urandom"), "is a device, not a file");
        assert_eq!(refused("/"), "is a directory, not a file");
        assert!(
            read(Path::new("/no/such/file"), 10)
                .unwrap_err()
                .is_absent()
        );
        assert_eq!(read(Path::new("/dev/null"), 10).unwrap(), b"");
    }

    #[test]
    fn a_file_may_have_as_many_bytes_as_the_bound() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(read_text(file.path(), 10).unwrap(), "0123456789");
        let error = read(file.path(), 9).unwrap_err();
        assert!(matches!(error, InputError::TooLarge(9)) && error.is_mistake());
        file.write_all(b"\xff").unwrap();
        let error = read_text(file.path(), 11).unwrap_err();
        assert!(matches!(error, InputError::NotText));
    }

    #[test]
    fn what_has_no_size_is_read_up_to_the_bound() {
        let (read_end, write_end) = rustix::pipe::pipe().unwrap();
        let mut writer = File::from(write_end);
        writer.write_all(&[b'a'; 100]).unwrap();
        let error = read_from(File::from(read_end), 99).unwrap_err();
        assert!(matches!(error, InputError::TooLarge(99)));
    }
}
