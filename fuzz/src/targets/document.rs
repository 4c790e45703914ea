//! Stored snapshots: what was read is written and read again as the same.

use fdguard_core::Summary;
use fdguard_core::document::{SnapshotDocument, read};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(snapshots) = read(bytes) else {
        return;
    };
    for snapshot in snapshots {
        let summary = Summary::summarize(&snapshot);
        let document = SnapshotDocument::new(&snapshot, &summary);
        let written = serde_json::to_vec(&document).expect("a document can be written");
        let again = read(&written).expect("our own document can be read");
        assert_eq!(again, [snapshot]);
    }
}
