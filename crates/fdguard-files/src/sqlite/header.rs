//! The first hundred bytes of a database, and the b-tree page that follows them.
//!
//! <https://www.sqlite.org/fileformat2.html> documents each byte. Everything here is pure.

use serde::Serialize;

use super::FileFinding;
use crate::tls::{self, TlsRecord};

/// Length of the header.
pub const LENGTH: usize = 100;
/// The first bytes of a database.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Offset of the page with SQLite's lock bytes: it holds no data.
pub const LOCK_BYTE: u64 = 0x4000_0000;

/// The header's raw fields, valid or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseHeader {
    /// Whether the magic is correct.
    pub magic: bool,
    /// Page size in bytes; absent if the value is invalid.
    pub page_size: Option<u32>,
    /// 1 is a rollback journal, 2 a write-ahead log.
    pub write_version: u8,
    /// The same for readers.
    pub read_version: u8,
    /// Bytes at the end of each page that SQLite does not use.
    pub reserved: u8,
    /// Bytes 21 to 23, which are always 64, 32, 32.
    pub fractions: [u8; 3],
    /// Counts transactions (not all of them, with a write-ahead log).
    pub change_counter: u32,
    /// Pages, according to the last writer.
    pub pages: u32,
    /// First page of the list of free pages.
    pub freelist: u32,
    /// How many pages are free.
    pub free_pages: u32,
    /// Changes with the schema.
    pub schema_cookie: u32,
    /// 1 to 4; 0 in a database without a table.
    pub schema_format: u32,
    /// Largest root page; not 0 with auto-vacuum.
    pub largest_root: u32,
    /// 1 is UTF-8, 2 and 3 UTF-16; 0 in a database without a table.
    pub encoding: u32,
    /// The application's version number.
    pub user_version: u32,
    /// Not 0 for incremental vacuum.
    pub incremental: u32,
    /// The application's id.
    pub application_id: u32,
    /// Whether the twenty reserved bytes are zero.
    pub unused_is_zero: bool,
    /// The change counter for which the page count is valid.
    pub version_valid_for: u32,
    /// The version of SQLite that wrote last.
    pub sqlite_version: u32,
    /// The kind of the first b-tree page: 5 or 13.
    pub first_page: Option<u8>,
}

impl DatabaseHeader {
    /// Reads the fields from the first bytes of a file; `None` if there are fewer than a hundred.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..LENGTH)?;
        Some(Self {
            magic: head.starts_with(MAGIC),
            page_size: page_size(u16::from_be_bytes([head[16], head[17]])),
            write_version: head[18],
            read_version: head[19],
            reserved: head[20],
            fractions: [head[21], head[22], head[23]],
            change_counter: be(head, 24),
            pages: be(head, 28),
            freelist: be(head, 32),
            free_pages: be(head, 36),
            schema_cookie: be(head, 40),
            schema_format: be(head, 44),
            largest_root: be(head, 52),
            encoding: be(head, 56),
            user_version: be(head, 60),
            incremental: be(head, 64),
            application_id: be(head, 68),
            unused_is_zero: head[72..92].iter().all(|byte| *byte == 0),
            version_valid_for: be(head, 92),
            sqlite_version: be(head, 96),
            first_page: bytes.get(LENGTH).copied(),
        })
    }

    /// Whether the last writer used a write-ahead log.
    #[must_use]
    pub fn is_wal(&self) -> bool {
        self.read_version == 2
    }

    /// Bytes of a page that SQLite uses.
    #[must_use]
    pub fn usable(&self) -> Option<u32> {
        let usable = self.page_size?.checked_sub(u32::from(self.reserved))?;
        (usable >= 480).then_some(usable)
    }
}

/// Decodes the page size of the header; 1 means 65536.
#[must_use]
pub fn page_size(raw: u16) -> Option<u32> {
    match raw {
        1 => Some(65_536),
        size if size >= 512 && size.is_power_of_two() => Some(u32::from(size)),
        _ => None,
    }
}

/// Four bytes, big-endian.
pub(crate) fn be(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    if let Some(found) = bytes.get(at..at + 4) {
        four.copy_from_slice(found);
    }
    u32::from_be_bytes(four)
}

/// TLS records over the header. A stale descriptor leaves them at 0, at 5 and every 29 bytes after
/// that; elsewhere a match counts only if the fields it covers are wrong.
#[must_use]
pub fn records(first: &[u8]) -> Vec<(u64, TlsRecord)> {
    let mut found = tls::at_start(first);
    let head = first.get(..LENGTH).unwrap_or(first);
    let last = found.last().map_or(0, |(at, record)| at + record.total());
    for at in 1..head.len() {
        let Some(record) = TlsRecord::parse(&first[at..]) else {
            continue;
        };
        let is_known = found.iter().any(|(known, _)| *known == at as u64) || (at as u64) < last;
        // The constants end at byte 23: a record that starts before has overwritten some of them.
        if !is_known && (at < 20 || !fields(first, None).is_empty()) {
            found.push((at as u64, record));
        }
    }
    found
}

/// The size of the database, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the file.
    pub size: u64,
    /// Whether size and page count can be compared: not while a log holds pages that are not in the
    /// file yet.
    pub is_settled: bool,
}

/// Problems of individual fields.
#[must_use]
pub fn fields(first: &[u8], extent: Option<Extent>) -> Vec<FileFinding> {
    let Some(header) = DatabaseHeader::read(first) else {
        return vec![FileFinding::critical(
            "short-header",
            Some(0),
            "the file ends inside the header: it has fewer than 100 bytes",
        )];
    };
    let mut found = constants(&header);
    found.extend(counters(&header));
    found.extend(first_page(first, &header));
    if let Some(extent) = extent {
        found.extend(pages_and_size(&header, extent));
    }
    found
}

fn constants(header: &DatabaseHeader) -> Vec<FileFinding> {
    let mut found = Vec::new();
    let mut wrong = |is_wrong: bool, rule: &'static str, at: u64, text: String| {
        if is_wrong {
            found.push(FileFinding::critical(rule, Some(at), text));
        }
    };
    wrong(
        !header.magic,
        "magic",
        0,
        "the first 16 bytes are not \"SQLite format 3\"".to_owned(),
    );
    wrong(
        header.page_size.is_none(),
        "page-size",
        16,
        "bytes 16 and 17 are not a valid page size".to_owned(),
    );
    let (write, read) = (header.write_version, header.read_version);
    let is_version = matches!(write, 1 | 2) && write == read;
    wrong(
        !is_version,
        "format-version",
        18,
        format!("bytes 18 and 19 are {write} and {read}, not 1 and 1 or 2 and 2"),
    );
    let is_odd = header.page_size.is_some() && header.usable().is_none();
    wrong(
        is_odd,
        "reserved",
        20,
        format!(
            "{} reserved bytes per page leave too little usable space",
            header.reserved
        ),
    );
    let [max, min, leaf] = header.fractions;
    wrong(
        header.fractions != [64, 32, 32],
        "fractions",
        21,
        format!("bytes 21 to 23 are {max}, {min}, {leaf}, not 64, 32, 32"),
    );
    let is_empty = header.schema_format == 0 && header.encoding == 0;
    wrong(
        header.schema_format > 4 || (header.schema_format == 0 && !is_empty),
        "schema-format",
        44,
        format!("invalid schema format {}", header.schema_format),
    );
    wrong(
        header.encoding > 3 || (header.encoding == 0 && !is_empty),
        "encoding",
        56,
        format!("invalid text encoding {}", header.encoding),
    );
    found
}

fn counters(header: &DatabaseHeader) -> Vec<FileFinding> {
    let mut found = Vec::new();
    if !header.unused_is_zero {
        found.push(FileFinding::critical(
            "unused-bytes",
            Some(72),
            "bytes 72 to 91 are not zero",
        ));
    }
    if header.incremental != 0 && header.largest_root == 0 {
        found.push(FileFinding::critical(
            "vacuum",
            Some(64),
            "incremental vacuum without a largest root page",
        ));
    }
    if (header.freelist == 0) != (header.free_pages == 0) {
        let text = format!(
            "the freelist starts at page {} but has {} pages",
            header.freelist, header.free_pages
        );
        found.push(FileFinding::critical("freelist", Some(32), text));
    }
    if header.change_counter != header.version_valid_for {
        let text = format!(
            "the change counter is {}, but the page count is valid for {}: written by SQLite before 3.7, or damaged",
            header.change_counter, header.version_valid_for
        );
        found.push(FileFinding::warning("change-counter", Some(24), text));
    }
    let version = header.sqlite_version;
    if version != 0 && !(3_000_000..4_000_000).contains(&version) {
        found.push(FileFinding::warning(
            "sqlite-version",
            Some(96),
            format!("{version} is not a SQLite version number"),
        ));
    }
    found
}

/// Page 1 is always the root of the schema's table: type 5 or 13, and everything it refers to is
/// inside the page.
fn first_page(first: &[u8], header: &DatabaseHeader) -> Option<FileFinding> {
    let at = Some(LENGTH as u64);
    let kind = header.first_page?;
    if !matches!(kind, 5 | 13) {
        let text = format!("page 1 has type {kind}, not 5 or 13: the schema root is lost");
        return Some(FileFinding::critical("first-page", at, text));
    }
    let usable = header.usable()?;
    let two = |at: usize| {
        first
            .get(at..at + 2)
            .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
    };
    let cells = two(LENGTH + 3)?;
    let content = two(LENGTH + 5).map(|at| if at == 0 { 65_536 } else { at })?;
    let pointers = 100 + if kind == 5 { 12 } else { 8 };
    let is_sound = pointers + 2 * cells <= content && content <= usable;
    (!is_sound).then(|| {
        let text = format!(
            "page 1 has {cells} cells and content from byte {content} of {usable}, which is impossible"
        );
        FileFinding::critical("first-page", at, text)
    })
}

fn pages_and_size(header: &DatabaseHeader, extent: Extent) -> Vec<FileFinding> {
    let Some(page) = header.page_size.map(u64::from) else {
        return Vec::new();
    };
    let (whole, rest) = (extent.size / page, extent.size % page);
    let mut found = Vec::new();
    if extent.is_settled && rest != 0 {
        let text = format!(
            "the file ends {rest} bytes into a page of {page} bytes: the last page is torn"
        );
        found.push(FileFinding::critical("torn-tail", Some(whole * page), text));
    }
    let pages = u64::from(header.pages);
    let is_counted = header.change_counter == header.version_valid_for;
    if !extent.is_settled || !is_counted {
        return found;
    }
    let free = u64::from(header.freelist.max(header.free_pages));
    if pages > whole {
        let text = format!(
            "the header counts {pages} pages, but the file has {whole}: {} are missing",
            pages - whole
        );
        found.push(FileFinding::critical("page-count", Some(28), text));
    } else if pages == 0 {
        found.push(FileFinding::warning(
            "page-count",
            Some(28),
            "the header counts 0 pages",
        ));
    } else if pages < whole {
        let text = format!(
            "the header counts {pages} pages, but the file has {whole}: the rest is unused"
        );
        found.push(FileFinding::warning("page-count", Some(28), text));
    }
    if free > whole {
        let text =
            format!("the freelist refers to page or count {free}, but the file has {whole} pages");
        found.push(FileFinding::critical("freelist", Some(32), text));
    }
    if u64::from(header.largest_root) > whole {
        let text = format!(
            "the largest root page is {}, but the file has {whole} pages",
            header.largest_root
        );
        found.push(FileFinding::critical("vacuum", Some(52), text));
    }
    found
}
