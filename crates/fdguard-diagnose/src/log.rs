//! Reads logs and searches them for descriptor symptoms.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use fdguard_core::Text;
use fdguard_core::evidence::{LogFile, LogSymptom};
use fdguard_core::explain::{LogScanner, SymptomMatch, WallName};
use fdguard_core::playbook::Playbook;

use crate::Error;

/// Large enough that read calls do not dominate.
const PIECE: usize = 256 << 10;

/// Signatures of files that are not text, and how to convert them.
const PACKED: [(&[u8], &str, &str); 5] = [
    (b"\x1f\x8b", "is compressed", "zcat LOG | fdguard explain"),
    (
        b"\x28\xb5\x2f\xfd",
        "is compressed",
        "zstdcat LOG | fdguard explain",
    ),
    (b"\xfd7zXZ", "is compressed", "xzcat LOG | fdguard explain"),
    (b"BZh", "is compressed", "bzcat LOG | fdguard explain"),
    (
        b"LPKSHHRH",
        "is a journal",
        "journalctl --file LOG | fdguard explain",
    ),
];

/// A log that could be opened.
#[derive(Debug)]
pub struct OpenLog {
    /// Where it is.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
}

impl OpenLog {
    /// Reads it to its end. Lines that are ambiguous alone count if the process is near that limit.
    pub(crate) fn read(self, playbook: &Playbook, near: &[WallName]) -> Result<LogFile, Error> {
        let mut scanner = LogScanner::new(playbook)?;
        scan(&mut scanner, self.file, &self.path.display().to_string())?;
        let explanation = scanner.finish(near);
        Ok(LogFile {
            path: Text::from(self.path.as_os_str().as_bytes()),
            lines: explanation.lines_read,
            symptoms: explanation.symptoms.into_iter().map(symptom).collect(),
        })
    }
}

fn symptom(found: SymptomMatch) -> LogSymptom {
    LogSymptom {
        id: found.id,
        wall: found.wall.name().to_owned(),
        meaning: found.meaning,
        next: found.next,
        count: found.count,
        first_line: found.first_line,
        last_line: found.last_line,
        example: Some(found.example),
    }
}

/// Feeds a log to the scanner in pieces.
///
/// # Errors
///
/// If it cannot be read, or is not text.
pub fn scan(scanner: &mut LogScanner<'_>, mut log: impl Read, name: &str) -> Result<(), Error> {
    let mut piece = vec![0; PIECE];
    let mut is_first = true;
    loop {
        let length = match log.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::file(name, error)),
        };
        if std::mem::take(&mut is_first) {
            refuse_packed(&piece[..length], name)?;
        }
        scanner.feed(&piece[..length]);
    }
}

/// Refuses compressed files: "nothing found" would be wrong for bytes that are not text.
fn refuse_packed(beginning: &[u8], name: &str) -> Result<(), Error> {
    let packed = PACKED
        .iter()
        .find(|(magic, ..)| beginning.starts_with(magic));
    packed.map_or(Ok(()), |(_, what, hint)| {
        let message = format!("{name}: {what}");
        Err(Error::Input { message, hint })
    })
}
