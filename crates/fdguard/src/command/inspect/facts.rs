//! Facts about a file, one per line. Pure.

use fdguard_core::units::counted;
use fdguard_files::lease::LeaseAnswer;
use fdguard_files::sqlite::{DatabaseHeader, Journal, Shm, Wal};
use fdguard_files::{FileVerdict, Inspection, Kind, SqliteReport};

/// The facts, a line each.
pub(super) fn facts(seen: &Inspection) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(sqlite) = &seen.sqlite {
        let is_encrypted = seen.verdict == FileVerdict::Encrypted;
        lines.extend(database(sqlite, seen.size, is_encrypted));
    } else {
        let kind = match seen.kind {
            Kind::Text => "text",
            Kind::Empty => "empty",
            _ => "neither a database nor text",
        };
        lines.push(format!("{kind}, {} bytes", seen.size));
    }
    lines.push(format!("writers: {}", writers(seen)));
    lines
}

fn writers(seen: &Inspection) -> String {
    let tables = match seen.writers.seen {
        0 => "none in the descriptor tables".to_owned(),
        n => format!("{} in the descriptor tables", counted(n, "process")),
    };
    let lease = match seen.writers.lease {
        LeaseAnswer::NoWriter => "none according to the kernel (lease)",
        LeaseAnswer::Writer => "at least one according to the kernel (lease)",
        LeaseAnswer::Denied => "unknown to the kernel (lease not permitted)",
        LeaseAnswer::Unsupported => "unknown to the kernel (no leases on this file system)",
    };
    format!("{lease}, {tables}")
}

fn database(sqlite: &SqliteReport, size: u64, is_encrypted: bool) -> Vec<String> {
    let mut lines = Vec::new();
    match sqlite.header.as_ref().filter(|header| header.magic) {
        Some(header) => lines.push(header_line(header, size)),
        None if is_encrypted => lines.push(format!("{size} bytes, encrypted")),
        None => lines.push(format!("{size} bytes; the header cannot be trusted")),
    }
    lines.push(format!("first bytes: {}", sqlite.first_bytes));
    lines.extend(sqlite.wal.as_ref().map(log_line));
    lines.extend(sqlite.shm.as_ref().map(index_line));
    lines.extend(sqlite.journal.as_ref().map(journal_line));
    lines.extend(sqlite.check.as_ref().map(|check| {
        let name = check.depth.pragma();
        let place = if check.copied {
            "on a copy"
        } else {
            "on the file, read-only"
        };
        let said = if check.ok {
            "ok".to_owned()
        } else {
            check.problems.join("; ")
        };
        format!("SQLite's {name} {place}: {said}")
    }));
    lines
}

fn header_line(header: &DatabaseHeader, size: u64) -> String {
    let page = header
        .page_size
        .map_or_else(|| "?".to_owned(), |page| page.to_string());
    let mode = if header.is_wal() {
        "write-ahead log"
    } else {
        "rollback journal"
    };
    let encoding = match header.encoding {
        1 => "UTF-8",
        2 => "UTF-16le",
        3 => "UTF-16be",
        _ => "no text encoding yet",
    };
    let version = header.sqlite_version;
    let writer = format!(
        "{}.{}.{}",
        version / 1_000_000,
        version / 1000 % 1000,
        version % 1000
    );
    let free = header.free_pages;
    format!(
        "SQLite: {size} bytes, {} pages of {page} bytes ({free} free), {mode}, {encoding}, written by {writer}",
        header.pages
    )
}

fn log_line(wal: &Wal) -> String {
    if wal.header.is_none() {
        return if wal.size == 0 {
            "WAL: empty".to_owned()
        } else {
            format!("WAL: {} bytes, no valid header", wal.size)
        };
    }
    let page = if wal.has_first_page {
        "including page 1"
    } else {
        "without page 1"
    };
    match wal.committed_frames {
        0 => format!("WAL: {} bytes, no transactions", wal.size),
        frames => format!(
            "WAL: {} bytes, {} of committed transactions, {page}",
            wal.size,
            counted(frames, "frame")
        ),
    }
}

fn index_line(shm: &Shm) -> String {
    if !shm.is_settled {
        return format!("WAL index: {} bytes, not in use or being written", shm.size);
    }
    format!(
        "WAL index: {} in the WAL, {} of them checkpointed",
        counted(shm.frames, "frame"),
        shm.moved
    )
}

fn journal_line(journal: &Journal) -> String {
    let state = if journal.is_hot { "hot" } else { "finished" };
    format!("journal: {} bytes, {state}", journal.size)
}
