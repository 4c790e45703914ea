//! What does not belong into a file: TLS records, HTTP, zeros. In pieces the findings are the same.

use fdguard_files::foreign::Foreign;
use fdguard_files::plain::{PlainTextScanner, at_start, is_text};
use fdguard_files::sqlite::encryption;

pub(crate) fn run(bytes: &[u8]) {
    let _foreign = Foreign::parse(bytes).map(|found| found.to_string());
    let _start = (at_start(bytes), is_text(bytes));
    let size = bytes.len() as u64;
    assert!(
        encryption::places(size)
            .into_iter()
            .all(|place| place <= size)
    );
    let _encrypted = encryption::is_encrypted(bytes, size, &[bytes.to_vec()]);
    let mut whole = PlainTextScanner::new();
    whole.push_bytes(bytes);
    let mut pieces = PlainTextScanner::new();
    for piece in bytes.chunks(7) {
        pieces.push_bytes(piece);
    }
    assert_eq!(
        format!("{:?}", pieces.finish()),
        format!("{:?}", whole.finish())
    );
}
