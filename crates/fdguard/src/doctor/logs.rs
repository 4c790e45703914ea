//! Searches the logs of `--log` for descriptor symptoms.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use fdguard_core::Text;
use fdguard_core::evidence::{LogFile, LogSymptom};
use fdguard_core::explain::{LogScanner, SymptomMatch, WallName};
use fdguard_core::playbook::Playbook;

use crate::{input, log};

/// A log that could be opened.
#[derive(Debug)]
pub struct OpenLog {
    path: PathBuf,
    file: File,
}

/// Opens all logs, so that a missing one is reported before the watch, not after it.
pub fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<OpenLog>> {
    let open = |path: &PathBuf| {
        let file = input::open(path)?;
        Ok(OpenLog {
            path: path.clone(),
            file,
        })
    };
    paths.iter().map(open).collect()
}

/// Reads one log to its end. Lines that are ambiguous alone count if the process is near that
/// limit.
pub(super) fn read(
    log: OpenLog,
    playbook: &Playbook,
    near: &[WallName],
) -> anyhow::Result<LogFile> {
    let mut scanner = LogScanner::new(playbook)?;
    log::scan(&mut scanner, log.file, &log.path.display().to_string())?;
    let explanation = scanner.finish(near);
    Ok(LogFile {
        path: Text::from(log.path.as_os_str().as_bytes()),
        lines: explanation.lines_read,
        symptoms: explanation.symptoms.into_iter().map(symptom).collect(),
    })
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
