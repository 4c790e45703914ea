//! A command's text in a file of its own, for texts that are too long for a datagram and for interpreters that read files.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// A file that only we may read, removed when it is dropped.
#[derive(Debug)]
pub(super) struct TextFile(PathBuf);

impl TextFile {
    /// Writes the text to a new file. The nonce is a secret, so the name is another number.
    pub(super) fn write(session: &str, number: u64, text: &str) -> Result<Self, Error> {
        let attempt = |path: &Path| -> std::io::Result<Self> {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            // From here on it is removed on every path.
            let made = Self(path.to_owned());
            file.write_all(text.as_bytes())?;
            Ok(made)
        };
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let session: String = session.chars().map(safe).take(64).collect();
        let pid = std::process::id();
        let mut again = 0_u32;
        loop {
            let name = format!("fdguard-{pid}-{session}-{number}-{again}");
            match attempt(&std::env::temp_dir().join(name)) {
                // Left behind by a host that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && again < 1000 => {
                    again += 1;
                }
                result => return result.map_err(Error::io("a file for the command's text")),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        // Somebody else removed it, or the folder is gone: it is not there, as it should be.
        let _gone = std::fs::remove_file(&self.0);
    }
}
