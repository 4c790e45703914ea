//! A command in a file, for commands that are too long for a datagram and for interpreters that
//! read files.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::scratch;
use crate::Error;

/// A private file, removed when it is dropped.
#[derive(Debug)]
pub(super) struct TextFile(PathBuf);

impl TextFile {
    /// Writes the text to a new file, in the first directory that has room for it. The nonce is a
    /// secret, so the name is another number.
    pub(super) fn write(session: &str, number: u64, text: &str) -> Result<Self, Error> {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let session: String = session.chars().map(safe).take(64).collect();
        let name = format!("fdguard-{}-{session}-{number}", std::process::id());
        write_in(&scratch::dirs(), &name, text)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

fn write_in(dirs: &[PathBuf], name: &str, text: &str) -> Result<TextFile, Error> {
    let mut failures = Vec::new();
    for dir in dirs {
        match write_one(dir, name, text) {
            Ok(file) => return Ok(file),
            Err(error) => failures.push(format!("{}: {error}", dir.display())),
        }
    }
    let all = failures.join("; ");
    let source = io::Error::new(io::ErrorKind::StorageFull, all);
    Err(Error::io("cannot write the command to a file")(source))
}

fn write_one(dir: &Path, name: &str, text: &str) -> io::Result<TextFile> {
    let attempt = |path: &Path| -> io::Result<TextFile> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path)?;
        // From here on it is removed on every path.
        let made = TextFile(path.to_owned());
        file.write_all(text.as_bytes())?;
        Ok(made)
    };
    let mut again = 0_u32;
    loop {
        match attempt(&dir.join(format!("{name}-{again}"))) {
            // Left behind by a host that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again < 1000 => {
                again += 1;
            }
            result => return result,
        }
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        // It was removed by another process, or the directory is gone: fine either way.
        let _gone = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_passed_over_and_without_any_all_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = PathBuf::from("/no/such/directory");
        let dirs = [missing.clone(), dir.path().to_owned()];
        let file = write_in(&dirs, "name", "text").unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "text");
        let second = write_in(&dirs, "name", "text").unwrap();
        assert_ne!(second.path(), file.path());
        drop((file, second));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let error = write_in(&[missing], "name", "text")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/no/such/directory: No such file"),
            "{error}"
        );
    }
}
