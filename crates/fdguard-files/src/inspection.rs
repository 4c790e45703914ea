//! One inspection of one file: read, judge, summarize.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_core::count::as_f64;
use fdguard_core::lint::Severity;
use fdguard_core::{Gap, Text};
use fdguard_core::{hex, units};
use fdguard_probe::Probe;
use serde::Serialize;

use crate::check::{self, CheckDepth, CheckResult};
use crate::finding::FileFinding;
use crate::holding::{self, Holding};
use crate::lease::{self, LeaseAnswer};
use crate::sqlite::judge::{self, DatabaseImage};
use crate::sqlite::{DatabaseHeader, Journal, Shm, Wal};
use crate::{Error, plain, read};

/// If the file is being written, a problem must be seen this often, this far apart: a read in the
/// middle of a write sees states that never existed.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(30);
/// The largest database that is fully checked by default: comparing indexes with tables takes
/// several times as long as checking the structure.
const CHECKED_FULLY: u64 = 64 << 20;
/// The largest database that is checked at all by default.
const CHECKED: u64 = 512 << 20;

/// What to inspect.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most thorough SQLite check: `None` for none.
    pub check: Option<CheckDepth>,
    /// Whether to run it also on a large database: otherwise less is checked, or nothing.
    pub however_large: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check: Some(CheckDepth::Full),
            however_large: false,
        }
    }
}

/// The verdict on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileVerdict {
    /// A database without problems.
    Healthy,
    /// Another file, without foreign data.
    Clean,
    /// Something is wrong with the file.
    Damaged,
    /// The file is intact, but a process that holds it is about to lose its writes.
    Endangered,
    /// Something is odd, and may be damage.
    Suspicious,
    /// Damage cannot be detected without the key.
    Encrypted,
}

/// What kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A SQLite database, or a former one.
    Sqlite,
    /// Text, a log.
    Text,
    /// Anything else.
    Other,
    /// It has no content.
    Empty,
}

/// The result for a file.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The file as given.
    pub path: Text,
    /// The whole path, without links.
    #[serde(skip)]
    pub real: PathBuf,
    /// What kind of file.
    pub kind: Kind,
    /// The verdict.
    pub verdict: FileVerdict,
    /// In one sentence.
    pub summary: String,
    /// Bytes.
    pub size: u64,
    /// The problems; those that explain the most come first.
    pub findings: Vec<FileFinding>,
    /// The database's own fields; absent for other files.
    pub sqlite: Option<SqliteReport>,
    /// Writers.
    pub writers: Writers,
    /// Holders.
    pub holders: Holding,
    /// What to do next.
    pub next: Vec<String>,
    /// What could not be observed.
    pub gaps: Vec<Gap>,
}

/// The fields of a database.
#[derive(Clone, Debug, Serialize)]
pub struct SqliteReport {
    /// The header, valid or not; absent if the file is too short for one.
    pub header: Option<DatabaseHeader>,
    /// Its first 32 bytes, in hexadecimal.
    pub first_bytes: String,
    /// The write-ahead log.
    pub wal: Option<Wal>,
    /// Its index.
    pub shm: Option<Shm>,
    /// The rollback journal.
    pub journal: Option<Journal>,
    /// Whether a checkpoint would put a sound first page into the file.
    pub heals_by_checkpoint: bool,
    /// SQLite's own check; absent when there was none.
    pub check: Option<CheckResult>,
}

/// Writers of a file, found in two ways.
#[derive(Clone, Debug, Serialize)]
pub struct Writers {
    /// According to a lease: the kernel's own count.
    pub lease: LeaseAnswer,
    /// Number of writers found in the descriptor tables.
    pub seen: usize,
    /// If both disagree, the explanation.
    pub note: Option<String>,
}

/// Inspects one file. Errors mean that it could not be examined, never damage.
pub fn inspect(probe: &Probe, path: &Path, options: Options) -> Result<Inspection, Error> {
    let file = read::open(path)?;
    let real = path
        .canonicalize()
        .map_err(|error| Error::io(path, "cannot find", error))?;
    let first =
        read::piece(&file, 0, 65_536).map_err(|error| Error::io(path, "cannot read", error))?;
    let beside = [holding::HolderRole::Wal, holding::HolderRole::Shm];
    let has_side_files = beside.iter().any(|role| role.path(&real).exists());
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let lease = lease::ask(&file);
    let holders = Holding::find_holders(probe, &real, lease != LeaseAnswer::NoWriter)?;
    let writers = Writers::of(lease, &holders);
    let mut inspection = Inspection {
        path: Text::from(path.as_os_str().as_encoded_bytes()),
        real,
        kind: Kind::Other,
        verdict: FileVerdict::Clean,
        summary: String::new(),
        size: read::Stamp::read(&file).map_or(0, |stamp| stamp.size),
        findings: Vec::new(),
        sqlite: None,
        gaps: holders.gaps.clone(),
        writers,
        holders,
        next: Vec::new(),
    };
    if judge::is_database(&first, name, has_side_files) {
        inspection.database(probe, &file, options)?;
    } else {
        inspection.other(&file, &first)?;
    }
    inspection.conclude();
    Ok(inspection)
}

impl Writers {
    fn of(lease: LeaseAnswer, holders: &Holding) -> Self {
        let seen = holders.writers().count();
        let rings = holders
            .processes
            .iter()
            .any(|process| !process.main.rings.is_empty());
        let note = match (lease, seen) {
            (LeaseAnswer::Writer, 0) if rings => Some(
                "a writer exists that is in no descriptor table: the file is registered in an io_uring",
            ),
            (LeaseAnswer::Writer, 0) if holders.is_complete => Some(
                "a writer exists that is in no descriptor table: a descriptor in transit through a socket, registered in an io_uring, or in a thread with a private table",
            ),
            (LeaseAnswer::Writer, 0) => Some(
                "a writer exists in a process that cannot be examined, or in no descriptor table",
            ),
            (LeaseAnswer::NoWriter, 1..) => Some(
                "the writer has just closed the file, or writes through another file system (the upper directory of an overlay)",
            ),
            (LeaseAnswer::Denied, _) => {
                Some("only the file's owner and root can ask the kernel whether it has writers")
            }
            (LeaseAnswer::Unsupported, _) => Some(
                "this file system does not support leases: only the descriptor tables were searched",
            ),
            _ => None,
        };
        Self {
            lease,
            seen,
            note: note.map(str::to_owned),
        }
    }

    fn may_exist(&self) -> bool {
        self.lease != LeaseAnswer::NoWriter || self.seen > 0
    }
}

impl Inspection {
    fn database(
        &mut self,
        probe: &Probe,
        file: &std::fs::File,
        options: Options,
    ) -> Result<(), Error> {
        self.kind = Kind::Sqlite;
        let mut image = read::image(&self.real, file)?;
        let mut found = self.judged(&image);
        let mut looks = 1;
        // Also if there was no writer: one may have appeared since.
        while looks < LOOKS && found.iter().any(matters) {
            std::thread::sleep(APART);
            image = read::image(&self.real, &read::open(&self.real)?)?;
            self.holders = Holding::find_holders(probe, &self.real, true)?;
            let again = self.judged(&image);
            found = confirmed(&found, again);
            looks += 1;
        }
        self.size = image.size;
        let check = self.checked(&image, options)?;
        if let Some(check) = check.as_ref().filter(|check| !check.ok) {
            let first = check
                .problems
                .first()
                .map_or("no reason given", String::as_str);
            let text = format!("SQLite's integrity check failed: {first}");
            found.push(FileFinding::critical("integrity", None, text));
        }
        if image.size == 0 {
            self.kind = Kind::Empty;
        }
        self.findings = found;
        let first = image.first.chunks(1).take(32);
        let first: Vec<String> = first.map(hex::encode).collect();
        self.sqlite = Some(SqliteReport {
            header: image.header(),
            first_bytes: first.join(" "),
            heals_by_checkpoint: image.heals_by_checkpoint(),
            wal: image.wal,
            shm: image.shm,
            journal: image.journal,
            check,
        });
        Ok(())
    }

    fn judged(&self, image: &DatabaseImage) -> Vec<FileFinding> {
        let mut found = image.judge();
        found.extend(holding::judge::judge(&self.holders, image.shm.as_ref()));
        found
    }

    fn checked(
        &mut self,
        image: &DatabaseImage,
        options: Options,
    ) -> Result<Option<CheckResult>, Error> {
        let Some(depth) = options.check.filter(|_| image.size > 0) else {
            return Ok(None);
        };
        if image.is_encrypted {
            self.gaps.push(Gap::new(
                "database content",
                "encrypted",
                "check it in the program that has the key: `PRAGMA cipher_integrity_check`, `PRAGMA integrity_check`",
            ));
            return Ok(None);
        }
        if image.size > CHECKED && !options.however_large {
            self.gaps.push(Gap::new(
                "SQLite's integrity check",
                format!(
                    "the database has {}, and the check may need a copy",
                    units::size(as_f64(image.size))
                ),
                "request it with --check quick or --check full",
            ));
            return Ok(None);
        }
        let depth = if image.size > CHECKED_FULLY && !options.however_large {
            CheckDepth::Quick
        } else {
            depth
        };
        let is_alone = image.wal.as_ref().is_none_or(|wal| wal.size == 0)
            && image.journal.as_ref().is_none_or(|journal| !journal.is_hot);
        let mut outcome = check::check(&self.real, depth, is_alone)?;
        // A copy may have been taken between two writes; a second failure is not a coincidence.
        if self.writers.may_exist() && matches!(&outcome, Ok(checked) if !checked.ok) {
            outcome = check::check(&self.real, depth, is_alone)?;
        }
        match outcome {
            Ok(checked) => Ok(Some(checked)),
            Err(gap) => {
                self.gaps.push(gap);
                Ok(None)
            }
        }
    }

    fn other(&mut self, file: &std::fs::File, first: &[u8]) -> Result<(), Error> {
        let failed = |error| Error::io(&self.real, "cannot read", error);
        if first.is_empty() {
            self.kind = Kind::Empty;
        } else if plain::is_text(first) {
            self.kind = Kind::Text;
            self.findings = plain::scan(file).map_err(failed)?;
        } else {
            self.findings = plain::at_start(first);
        }
        self.findings.extend(side_file(&self.real));
        let gone = holding::judge::judge(&self.holders, None);
        self.findings.extend(
            gone.into_iter()
                .filter(|one| matches!(one.rule, "deleted-file" | "several-writers")),
        );
        Ok(())
    }

    fn conclude(&mut self) {
        self.verdict = crate::words::verdict(self);
        self.summary = crate::words::summary(self);
        self.next = crate::words::next(self);
    }

    /// Whether its content could not be checked although a check was requested.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        let of_content = |gap: &Gap| gap.what == "database content";
        self.verdict == FileVerdict::Encrypted && self.gaps.iter().any(of_content)
    }

    /// Whether a script should stop for this.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        self.findings.iter().any(matters)
    }
}

/// Whether it is a side file of a database and must be inspected with it.
fn side_file(path: &Path) -> Option<FileFinding> {
    let name = path.to_str()?;
    let roles = [
        (holding::HolderRole::Wal, "WAL"),
        (holding::HolderRole::Shm, "WAL index"),
        (holding::HolderRole::Journal, "journal"),
    ];
    let (database, what) = roles
        .iter()
        .find_map(|(role, what)| Some((name.strip_suffix(role.suffix())?, *what)))?;
    Path::new(database).is_file().then(|| {
        let text =
            format!("this is the {what} of {database}: inspect the database, which includes it");
        FileFinding::info("side-file", None, text)
    })
}

pub(crate) fn matters(finding: &FileFinding) -> bool {
    finding.severity >= Severity::Warning
}

/// Findings confirmed by both reads; informational ones are taken from the last.
fn confirmed(before: &[FileFinding], again: Vec<FileFinding>) -> Vec<FileFinding> {
    let same = |one: &FileFinding| {
        before.iter().any(|other| {
            (other.rule, other.offset, other.mark, &other.pids)
                == (one.rule, one.offset, one.mark, &one.pids)
        })
    };
    again
        .into_iter()
        .filter(|one| !matters(one) || same(one))
        .collect()
}
