//! Arbitrary bytes: the parsers survive them and keep their guarantees.

use fdguard_core::lint::Severity;
use fdguard_files::foreign::Foreign;
use fdguard_files::heal::rebuild;
use fdguard_files::plain::{PlainTextScanner, is_text};
use fdguard_files::sqlite::judge::{DatabaseImage, is_database, strange};
use fdguard_files::sqlite::{DatabaseHeader, Journal, Shm, Wal, header};
use proptest::prelude::*;

use super::MadeDatabase;

fn image(bytes: &[u8]) -> DatabaseImage {
    let (wal, page) = Wal::read(bytes);
    DatabaseImage {
        size: bytes.len() as u64,
        first: bytes.iter().take(65_536).copied().collect(),
        wal_first: bytes.iter().take(64).copied().collect(),
        wal_page: page,
        wal: Some(wal),
        shm: Shm::read(bytes, bytes.len() as u64),
        journal: Some(Journal::read(bytes, bytes.len() as u64)),
        ..DatabaseImage::default()
    }
}

fn promises(bytes: &[u8]) -> Result<(), TestCaseError> {
    let image = image(bytes);
    let is_sound = image
        .judge()
        .iter()
        .all(|one| one.severity < Severity::Critical);
    prop_assert!(!is_sound || bytes.is_empty() || bytes.starts_with(header::MAGIC));
    let mut page = |number: u32, size: u32| {
        let from = (number as usize - 1).checked_mul(size as usize)?;
        Some(bytes.get(from..from + size as usize)?.to_vec())
    };
    for candidate in rebuild::candidates(&image, &mut page).unwrap_or_default() {
        let header = DatabaseHeader::read(&candidate.bytes).unwrap();
        prop_assert!(header.magic && header.page_size == Some(candidate.page_size));
    }
    let _text = is_text(bytes);
    let _kind = (
        is_database(bytes, b"x", false),
        Foreign::parse(bytes),
        strange(bytes, 4096, 10),
    );
    let mut scanner = PlainTextScanner::new();
    scanner.push_bytes(bytes);
    prop_assert!(
        scanner
            .finish()
            .iter()
            .all(|one| one.offset.is_none_or(|at| at <= bytes.len() as u64))
    );
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        promises(&bytes)?;
    }

    #[test]
    fn so_are_databases_and_logs_with_holes(at in 0usize..200, with in proptest::collection::vec(any::<u8>(), 1..80), cut in 0usize..9000) {
        thread_local! {
            static WHOLE: (Vec<u8>, Vec<u8>) = {
                let made = MadeDatabase::with_log(true);
                (made.bytes(), std::fs::read(made.beside("-wal")).unwrap())
            };
        }
        let (mut database, mut log) = WHOLE.with(Clone::clone);
        for bytes in [&mut database, &mut log] {
            bytes[at..at + with.len()].copy_from_slice(&with);
            bytes.truncate(cut.max(1));
            promises(bytes)?;
        }
    }
}
