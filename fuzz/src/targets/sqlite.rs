//! Databases, their logs, indexes and journals: judged without a panic, a header without its magic
//! is never called sound, and every header that is proposed for a damaged one is sound itself.

use fdguard_core::lint::Severity;
use fdguard_files::heal::rebuild;
use fdguard_files::sqlite::judge::DatabaseImage;
use fdguard_files::sqlite::{DatabaseHeader, Journal, Shm, Wal, header};

pub(crate) fn run(bytes: &[u8]) {
    let (wal, page) = Wal::read(bytes);
    assert!(wal.committed_frames <= wal.valid_frames);
    let image = DatabaseImage {
        size: bytes.len() as u64,
        first: bytes.iter().take(65_536).copied().collect(),
        wal_first: bytes.iter().take(64).copied().collect(),
        wal_page: page,
        wal: Some(wal),
        shm: Shm::read(bytes, bytes.len() as u64),
        journal: Some(Journal::read(bytes, bytes.len() as u64)),
        ..DatabaseImage::default()
    };
    let found = image.judge();
    let is_sound = found.iter().all(|one| one.severity < Severity::Critical);
    assert!(!is_sound || bytes.is_empty() || bytes.starts_with(header::MAGIC));
    let mut page = |number: u32, size: u32| {
        let from = (number as usize - 1).checked_mul(size as usize)?;
        Some(bytes.get(from..from + size as usize)?.to_vec())
    };
    for candidate in rebuild::candidates(&image, &mut page).unwrap_or_default() {
        let header = DatabaseHeader::read(&candidate.bytes).expect("a hundred bytes");
        assert!(header.magic && header.page_size == Some(candidate.page_size));
    }
}
