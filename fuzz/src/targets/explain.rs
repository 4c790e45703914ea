//! Logs: pieces say the same as the whole, and every line is counted.

use std::sync::LazyLock;

use fdguard_core::explain::LogScanner;
use fdguard_core::playbook::Playbook;

static PLAYBOOK: LazyLock<Playbook> = LazyLock::new(Playbook::embedded);

pub(crate) fn run(bytes: &[u8]) {
    let mut whole = LogScanner::new(&PLAYBOOK).expect("our own patterns can be looked for");
    whole.feed(bytes);
    let whole = whole.finish(&[]);
    let mut pieces = LogScanner::new(&PLAYBOOK).expect("our own patterns can be looked for");
    for piece in bytes.chunks(7) {
        pieces.feed(piece);
    }
    assert_eq!(pieces.finish(&[]), whole);
    assert_eq!(
        whole.lines_read,
        bytes.split_inclusive(|byte| *byte == b'\n').count() as u64
    );
}
