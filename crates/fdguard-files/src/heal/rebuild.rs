//! Candidate headers for a damaged database, from constants and the rest of the file. Pure;
//! SQLite's integrity check decides which one is right.

use crate::sqlite::header::{self, DatabaseHeader, LENGTH, MAGIC, be};
use crate::sqlite::judge::DatabaseImage;

/// Page sizes, the most common first.
const PAGE_SIZES: [u32; 8] = [4096, 1024, 8192, 2048, 16_384, 32_768, 65_536, 512];
/// The most headers that are tried.
const MOST: usize = 48;

/// A header to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The hundred bytes.
    pub bytes: [u8; LENGTH],
    /// Bytes of a page.
    pub page_size: u32,
}

/// Marks the bytes that cannot be the header's own: records, text or zeros from the start.
#[must_use]
pub fn overwritten(first: &[u8]) -> [bool; LENGTH] {
    let mut marks = [false; LENGTH];
    let mut mark = |from: usize, until: usize| {
        marks
            .iter_mut()
            .take(until)
            .skip(from)
            .for_each(|mark| *mark = true);
    };
    for (at, record) in header::records(first) {
        let from = usize::try_from(at).unwrap_or(LENGTH);
        mark(
            from,
            from.saturating_add(usize::try_from(record.total()).unwrap_or(LENGTH)),
        );
    }
    if !first.starts_with(b"SQLit") {
        let run = |is: fn(&u8) -> bool| first.iter().take_while(|byte| is(byte)).count();
        let zeros = run(|byte| *byte == 0);
        let text = run(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'));
        mark(0, zeros.max(text).max(16));
    }
    marks
}

/// The headers worth trying, the most likely first, or why none can be made. `page` reads a page's
/// bytes by number and size.
pub fn candidates(
    image: &DatabaseImage,
    page: &mut dyn FnMut(u32, u32) -> Option<Vec<u8>>,
) -> Result<Vec<Candidate>, String> {
    let first = &image.first;
    let Some(header) = DatabaseHeader::read(first).filter(|_| first.len() > LENGTH) else {
        return Err("the file ends inside the header".to_owned());
    };
    let lost = overwritten(first);
    let is_lost = |at: usize| lost[at..at + 4].contains(&true);
    if is_lost(60) || is_lost(68) {
        return Err("the application's header fields (user_version, application_id) are overwritten and cannot be reconstructed".to_owned());
    }
    if !matches!(header.first_page, Some(5 | 13)) {
        return Err(
            "the damage extends beyond the header: page 1, which holds the schema, is overwritten"
                .to_owned(),
        );
    }
    let mut found = Vec::new();
    for size in page_sizes(image, &header) {
        for reserved in reserved(&header, &lost) {
            for free in freelists(image, &lost, size, page) {
                for encoding in encodings(&header, is_lost(56)) {
                    let choice = Choice {
                        size,
                        reserved,
                        free,
                        encoding,
                    };
                    found.push(made(image, &header, &lost, &choice));
                }
            }
        }
    }
    found.dedup();
    found.truncate(MOST);
    if found.is_empty() {
        return Err("no page size fits the file".to_owned());
    }
    Ok(found)
}

struct Choice {
    size: u32,
    reserved: u8,
    free: (u32, u32),
    encoding: u32,
}

fn made(
    image: &DatabaseImage,
    header: &DatabaseHeader,
    lost: &[bool; LENGTH],
    choice: &Choice,
) -> Candidate {
    let mut bytes = [0; LENGTH];
    bytes.copy_from_slice(&image.first[..LENGTH]);
    let mut put = |at: usize, new: &[u8]| bytes[at..at + new.len()].copy_from_slice(new);
    let is_lost = |at: usize| lost[at..at + 4].contains(&true);
    put(0, MAGIC);
    let raw = u16::try_from(choice.size).unwrap_or(1);
    put(16, &raw.to_be_bytes());
    let is_version = matches!(header.write_version, 1 | 2)
        && header.write_version == header.read_version
        && !lost[18]
        && !lost[19];
    let has_log = image.has_log() || image.shm.is_some();
    let version = match (is_version, has_log) {
        (true, _) => header.write_version,
        (false, true) => 2,
        (false, false) => 1,
    };
    put(18, &[version, version, choice.reserved, 64, 32, 32]);
    let counter = if is_lost(92) {
        1
    } else {
        header.version_valid_for
    };
    put(24, &counter.to_be_bytes());
    put(92, &counter.to_be_bytes());
    let pages = u32::try_from(image.size / u64::from(choice.size)).unwrap_or(u32::MAX);
    put(28, &pages.to_be_bytes());
    put(32, &choice.free.0.to_be_bytes());
    put(36, &choice.free.1.to_be_bytes());
    if is_lost(44) || !(1..=4).contains(&header.schema_format) {
        put(44, &4u32.to_be_bytes());
    }
    if is_lost(48) {
        put(48, &[0; 4]);
    }
    for at in [52, 64] {
        if is_lost(at) || be(&image.first, at) > pages {
            put(at, &[0; 4]);
        }
    }
    put(56, &choice.encoding.to_be_bytes());
    put(72, &[0; 20]);
    if is_lost(96) {
        put(96, &3_046_000u32.to_be_bytes());
    }
    Candidate {
        bytes,
        page_size: choice.size,
    }
}

fn page_sizes(image: &DatabaseImage, header: &DatabaseHeader) -> Vec<u32> {
    let of_log = image
        .wal
        .as_ref()
        .and_then(|wal| wal.header)
        .map(|head| head.page_size);
    let fits =
        |size: &u32| image.size.is_multiple_of(u64::from(*size)) && image.size >= u64::from(*size);
    let mut sizes: Vec<u32> = of_log.into_iter().chain(header.page_size).collect();
    sizes.extend(PAGE_SIZES.iter().filter(|size| fits(size)));
    let mut seen = Vec::new();
    sizes.retain(|size| {
        let is_new = !seen.contains(size);
        seen.push(*size);
        is_new && is_first_page(&image.first, *size)
    });
    sizes
}

/// Whether page 1 makes sense as a page of this size.
fn is_first_page(first: &[u8], size: u32) -> bool {
    let two = |at: usize| {
        first
            .get(at..at + 2)
            .map_or(0, |two| u32::from(u16::from_be_bytes([two[0], two[1]])))
    };
    let content = match two(LENGTH + 5) {
        0 => 65_536,
        at => at,
    };
    let cells = two(LENGTH + 3);
    108 + 2 * cells <= content && content <= size
}

fn reserved(header: &DatabaseHeader, lost: &[bool; LENGTH]) -> Vec<u8> {
    match header.reserved {
        told @ 1..=64 if !lost[20] => vec![told, 0],
        _ => vec![0],
    }
}

fn encodings(header: &DatabaseHeader, is_lost: bool) -> Vec<u32> {
    if !is_lost && (1..=3).contains(&header.encoding) {
        vec![header.encoding]
    } else {
        vec![1, 2, 3]
    }
}

/// First page and count of the freelist: as stored, or as reconstructed from the pages.
fn freelists(
    image: &DatabaseImage,
    lost: &[bool; LENGTH],
    size: u32,
    page: &mut dyn FnMut(u32, u32) -> Option<Vec<u8>>,
) -> Vec<(u32, u32)> {
    let pages = u32::try_from(image.size / u64::from(size)).unwrap_or(u32::MAX);
    let (head, count) = (be(&image.first, 32), be(&image.first, 36));
    let head_lost = lost[32..36].contains(&true);
    let count_lost = lost[36..40].contains(&true);
    let is_plausible = (head == 0) == (count == 0) && head <= pages && count <= pages;
    if !head_lost && !count_lost && is_plausible {
        return vec![(head, count)];
    }
    if !count_lost && count == 0 {
        return vec![(0, 0)];
    }
    let mut found = chains(size, pages, page);
    if !count_lost {
        found.retain(|(_, total)| *total == count);
    }
    if count_lost {
        found.insert(0, (0, 0));
    }
    found.truncate(8);
    found
}

/// Possible freelists: each trunk page names the next trunk and its leaves.
fn chains(
    size: u32,
    pages: u32,
    page: &mut dyn FnMut(u32, u32) -> Option<Vec<u8>>,
) -> Vec<(u32, u32)> {
    let mut trunks = std::collections::BTreeMap::new();
    for number in 2..=pages {
        let Some(bytes) = page(number, size) else {
            break;
        };
        let (next, leaves) = (be(&bytes, 0), be(&bytes, 4));
        let most = (size / 4).saturating_sub(2);
        let is_trunk = next <= pages
            && next != 1
            && next != number
            && leaves <= most
            && (next != 0 || leaves > 0);
        let named = || (0..leaves as usize).map(|index| be(&bytes, 8 + 4 * index));
        if is_trunk && named().all(|leaf| (2..=pages).contains(&leaf) && leaf != number) {
            trunks.insert(number, (next, leaves));
        }
    }
    let mut found = Vec::new();
    for head in trunks.keys() {
        if trunks.values().any(|(next, _)| next == head) {
            continue;
        }
        let (mut at, mut total, mut steps) = (*head, 0u32, 0);
        while at != 0 && steps <= trunks.len() {
            let Some((next, leaves)) = trunks.get(&at) else {
                break;
            };
            total = total.saturating_add(1 + leaves);
            at = *next;
            steps += 1;
        }
        if at == 0 {
            found.push((*head, total));
        }
    }
    found.sort_by_key(|(_, total)| std::cmp::Reverse(*total));
    found
}
