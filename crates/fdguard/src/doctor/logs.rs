//! The logs that were given: which of their lines speak of descriptors.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fdguard_core::Text;
use fdguard_core::evidence::{LogFile, LogSymptom};

/// Of a longer line the rest is not looked at.
const LONGEST_LINE: u64 = 1 << 16;
/// Of a line that is shown.
const LONGEST_EXAMPLE: usize = 300;

/// A log that could be opened.
#[derive(Debug)]
pub struct OpenLog {
    path: PathBuf,
    file: File,
}

/// Opens them all, so that one that is not there is told before the watch and not after it.
pub fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<OpenLog>> {
    let open = |path: &PathBuf| {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        anyhow::ensure!(
            !file.metadata()?.is_dir(),
            "{}: is a directory",
            path.display()
        );
        Ok(OpenLog {
            path: path.clone(),
            file,
        })
    };
    paths.iter().map(open).collect()
}

/// Reads one to its end.
pub(super) fn read(log: OpenLog) -> anyhow::Result<LogFile> {
    let mut reader = BufReader::new(log.file);
    let mut symptoms: Vec<LogSymptom> = Vec::new();
    let mut lines = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let taken = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        if taken.with_context(|| log.path.display().to_string())? == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            reader
                .skip_until(b'\n')
                .with_context(|| log.path.display().to_string())?;
        }
        lines += 1;
        note(&mut symptoms, &line, lines);
    }
    Ok(LogFile {
        path: shown(&log.path),
        lines,
        symptoms,
    })
}

fn shown(path: &Path) -> Text {
    Text::from(path.as_os_str().as_bytes())
}

/// A phrase, and what it says.
struct Phrase {
    id: &'static str,
    wall: &'static str,
    words: &'static [&'static str],
    meaning: &'static str,
    next: &'static str,
}

/// The plainest phrases. To be replaced by `fdguard_core::explain`, which knows the disguises, too.
const PHRASES: &[Phrase] = &[
    Phrase {
        id: "emfile",
        wall: "soft-limit",
        words: &[
            "too many open files",
            "emfile",
            "errno 24",
            "no file descriptors available",
        ],
        meaning: "the process reached its own limit on descriptors",
        next: "look at what it holds most of, above; raising the limit only postpones it",
    },
    Phrase {
        id: "enfile",
        wall: "system-files",
        words: &["enfile", "file table overflow", "errno 23"],
        meaning: "the host ran out of open files, not this process",
        next: "fdguard top shows which process holds them",
    },
    Phrase {
        id: "select",
        wall: "select-1024",
        words: &[
            "filedescriptor out of range in select",
            "fd_setsize",
            "bit out of range 0 - fd_setsize",
        ],
        meaning: "a descriptor has a number that select() cannot name",
        next: "use poll() or epoll, and find out why the numbers rise",
    },
    Phrase {
        id: "inotify",
        wall: "inotify-watches",
        words: &[
            "inotify watch limit",
            "inotify instances",
            "system limit for number of file watchers",
        ],
        meaning: "the user ran out of inotify watches or instances, not of descriptors",
        next: "raise fs.inotify.max_user_watches or max_user_instances, or watch less",
    },
    Phrase {
        id: "sqlite-open",
        wall: "soft-limit",
        words: &["unable to open database file"],
        meaning: "SQLite could not open a file: often because no descriptor was left",
        next: "compare the time of the line with the count",
    },
];

fn note(symptoms: &mut Vec<LogSymptom>, line: &[u8], number: u64) {
    let lower = String::from_utf8_lossy(line).to_lowercase();
    let found = PHRASES
        .iter()
        .find(|phrase| phrase.words.iter().any(|words| lower.contains(words)));
    let Some(phrase) = found else { return };
    if let Some(known) = symptoms.iter_mut().find(|known| known.id == phrase.id) {
        known.count += 1;
        known.last_line = number;
        return;
    }
    let end = line.len().min(LONGEST_EXAMPLE);
    symptoms.push(LogSymptom {
        id: phrase.id.to_owned(),
        wall: phrase.wall.to_owned(),
        meaning: phrase.meaning.to_owned(),
        next: phrase.next.to_owned(),
        count: 1,
        first_line: number,
        last_line: number,
        example: Some(Text::from(line[..end].trim_ascii_end())),
    });
}
