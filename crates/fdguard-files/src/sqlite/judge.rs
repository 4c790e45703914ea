//! Judges a database from everything that was read.

use fdguard_core::lint::Severity;

use super::header::{self, DatabaseHeader, Extent, LOCK_BYTE};
use super::{FileFinding, Journal, Shm, Wal};
use crate::foreign::Foreign;

/// Everything that was read of a database and its side files at one moment.
#[derive(Clone, Debug, Default)]
pub struct DatabaseImage {
    /// Bytes of the database.
    pub size: u64,
    /// Its first bytes: the first page, or 64 KiB.
    pub first: Vec<u8>,
    /// Foreign data at the start of pages: offset and kind.
    pub strange_pages: Vec<(u64, Foreign)>,
    /// The write-ahead log, if there is one.
    pub wal: Option<Wal>,
    /// The first bytes of the WAL.
    pub wal_first: Vec<u8>,
    /// The first page according to the log.
    pub wal_page: Option<Vec<u8>>,
    /// The index of the log.
    pub shm: Option<Shm>,
    /// The rollback journal.
    pub journal: Option<Journal>,
    /// Whether the database looks encrypted.
    pub is_encrypted: bool,
}

impl DatabaseImage {
    /// The header, valid or not.
    #[must_use]
    pub fn header(&self) -> Option<DatabaseHeader> {
        DatabaseHeader::read(&self.first)
    }

    /// Whether the log holds transactions.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.wal
            .as_ref()
            .is_some_and(|wal| wal.committed_frames > 0)
    }

    fn is_settled(&self) -> bool {
        !self.has_log() && !self.journal.as_ref().is_some_and(|journal| journal.is_hot)
    }

    /// All problems; those that explain the most come first.
    #[must_use]
    pub fn judge(&self) -> Vec<FileFinding> {
        let mut found = self.nothing();
        if self.is_encrypted {
            let text = "no SQLite header, and every page looks like ciphertext (SQLCipher, for example); a file completely overwritten with random bytes looks the same";
            found.push(FileFinding::info("encrypted", None, text));
            found.extend(self.log());
        } else if found.is_empty() {
            found = self.over_header();
            let extent = Extent {
                size: self.size,
                is_settled: self.is_settled(),
            };
            found.extend(header::fields(&self.first, Some(extent)));
            found.extend(self.strange_pages.iter().map(strange_page));
            found.extend(self.log());
            found.extend(self.other_mode());
        }
        found.extend(self.hot_journal());
        found
    }

    /// Whether the log contains an intact page 1: then a checkpoint heals the header.
    #[must_use]
    pub fn heals_by_checkpoint(&self) -> bool {
        let page = self.wal_page.as_deref();
        page.is_some_and(|page| {
            header::fields(page, None)
                .iter()
                .all(|one| one.severity < Severity::Critical)
        })
    }

    fn nothing(&self) -> Vec<FileFinding> {
        match (self.size, self.has_log()) {
            (0, true) => vec![FileFinding::critical(
                "truncated",
                Some(0),
                "the database is empty, but its WAL holds transactions: it was truncated",
            )],
            (0, false) => vec![FileFinding::info(
                "empty",
                None,
                "the file is empty: never written, or truncated",
            )],
            _ => Vec::new(),
        }
    }

    /// Foreign bytes over the header.
    fn over_header(&self) -> Vec<FileFinding> {
        let records = header::records(&self.first);
        if !records.is_empty() {
            return records
                .iter()
                .map(|(at, record)| over(*at, record))
                .collect();
        }
        let is_magic = self.first.starts_with(header::MAGIC);
        let zeros = self.first.iter().take_while(|byte| **byte == 0).count();
        let foreign = if zeros >= 16 {
            Some(Foreign::Zeros)
        } else {
            Foreign::parse(&self.first)
        };
        match foreign {
            Some(Foreign::Zeros) => {
                let text = format!("the first {zeros} bytes are zeros");
                vec![FileFinding::critical("foreign-bytes", Some(0), text).long(Some(zeros as u64))]
            }
            Some(foreign) if !is_magic => {
                let text = format!("{foreign} overwrites the header from byte 0");
                vec![FileFinding::critical("foreign-bytes", Some(0), text).long(foreign.length())]
            }
            _ => Vec::new(),
        }
    }

    fn log(&self) -> Vec<FileFinding> {
        let Some(wal) = &self.wal else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let Some(head) = &wal.header else {
            let is_zero = self.wal_first.iter().all(|byte| *byte == 0);
            if wal.size >= super::wal::HEAD as u64 && !is_zero {
                let what = Foreign::parse(&self.wal_first)
                    .map_or_else(String::new, |foreign| format!(": it holds {foreign}"));
                let text = format!(
                    "the WAL has no valid header{what}; SQLite treats it as empty and ignores its transactions"
                );
                found.push(FileFinding::critical("wal-header", None, text));
            }
            return found;
        };
        let header = self.header();
        let of_database = header.and_then(|header| header.page_size.filter(|_| header.magic));
        if let Some(size) = of_database.filter(|size| *size != head.page_size) {
            let text = format!(
                "the WAL has pages of {} bytes, the database of {size}: the WAL belongs to another database",
                head.page_size
            );
            found.push(FileFinding::critical("wal-page-size", None, text));
        }
        if let Some(frame) = wal.broken_at {
            let text = format!(
                "the WAL is damaged at frame {frame}: SQLite ignores the {} valid frames after it",
                wal.behind_break
            );
            // A WAL that is written during the read breaks at a different frame each time, or has
            // been restarted.
            let mark = (frame, whole(head.salts));
            found.push(FileFinding::critical("wal-chain", None, text).marked(mark));
        }
        found.extend(self.index(wal, head.salts));
        found
    }

    fn index(&self, wal: &Wal, salts: (u32, u32)) -> Option<FileFinding> {
        let shm = self
            .shm
            .as_ref()
            .filter(|shm| shm.is_settled && shm.salts == salts)?;
        let (told, read) = (u64::from(shm.frames), wal.committed_frames);
        (told > read).then(|| {
            let text = format!("the WAL index counts {told} frames, but only {read} can be read: transactions are lost");
            // A WAL that is restarted during the read seems short and has other salts at the next
            // read.
            FileFinding::critical("wal-short", None, text).marked((0, whole(salts)))
        })
    }

    fn other_mode(&self) -> Option<FileFinding> {
        let header = self
            .header()
            .filter(|header| header.magic && header.read_version == 1)?;
        let is_odd = self.has_log() && self.wal_page.is_none() && header.write_version == 1;
        is_odd.then(|| {
            let text = "the header says rollback journal, but there is a WAL with transactions";
            FileFinding::warning("mode", Some(18), text)
        })
    }

    fn hot_journal(&self) -> Option<FileFinding> {
        let journal = self.journal.as_ref().filter(|journal| journal.is_hot)?;
        let pages = journal
            .pages
            .map_or_else(String::new, |pages| format!(" of {pages} pages"));
        let text = format!(
            "a rollback journal{pages} exists: a transaction is running, or was interrupted and will be rolled back when the database is next opened"
        );
        Some(FileFinding::info("hot-journal", None, text))
    }
}

/// The identity of a log: its salts as one number.
fn whole((first, second): (u32, u32)) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

fn over(at: u64, record: &crate::tls::TlsRecord) -> FileFinding {
    let last = at + record.total() - 1;
    let place = if last < header::LENGTH as u64 {
        "of the header"
    } else {
        "of the file, including the header"
    };
    let text = format!(
        "{record} overwrites bytes {at}..{last} {place}: {}",
        record.operation(Some(at))
    );
    FileFinding::critical("tls-record", Some(at), text).long(Some(record.total()))
}

fn strange_page((at, foreign): &(u64, Foreign)) -> FileFinding {
    let rule = if matches!(foreign, Foreign::Tls(_)) {
        "tls-record"
    } else {
        "foreign-bytes"
    };
    let text = format!("{foreign} at byte {at}, where a page starts");
    FileFinding::critical(rule, Some(*at), text).long(foreign.length())
}

/// Data at the start of a page other than the first, if it cannot be SQLite's. B-tree pages start
/// with 2, 5, 10 or 13, pointer maps with 1 to 5, all others with a page number: a number far
/// beyond the last page is foreign.
#[must_use]
pub fn strange(start: &[u8], offset: u64, pages: u64) -> Option<Foreign> {
    let first = *start.first()?;
    let is_lock_page = offset == LOCK_BYTE;
    if is_lock_page || matches!(first, 0..=5 | 10 | 13) || u64::from(header::be(start, 0)) <= pages
    {
        return None;
    }
    Foreign::parse(start)
}

/// Whether a file is or was a database: by its first bytes, its side files, or its name.
#[must_use]
pub fn is_database(first: &[u8], name: &[u8], has_side_files: bool) -> bool {
    if first.starts_with(header::MAGIC) || first.starts_with(b"SQLit") || has_side_files {
        return true;
    }
    let named = [".db", ".db3", ".sqlite", ".sqlite3"];
    if named.iter().any(|end| name.ends_with(end.as_bytes())) {
        return true;
    }
    // Overwritten from the start: the rest still looks like a database.
    let Some(header) = DatabaseHeader::read(first) else {
        return false;
    };
    let is_writer = (3_000_000..4_000_000).contains(&header.sqlite_version);
    is_writer && matches!(header.first_page, Some(5 | 13)) && header.unused_is_zero
}
