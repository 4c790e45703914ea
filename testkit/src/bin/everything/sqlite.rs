//! Files that look like SQLite's, made without SQLite, and one with only the name.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use testkit::VictimReport;

const DATABASE: &[u8] = b"SQLite format 3\0";
const WAL: &[u8] = &[0x37, 0x7f, 0x06, 0x82];
const JOURNAL: &[u8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

pub(crate) fn open(report: &mut VictimReport, dir: &Path) -> io::Result<()> {
    let cases: [(&str, &str, &[u8], usize); 6] = [
        ("state.db", "sqlite-db", DATABASE, 4096),
        ("state.db-wal", "sqlite-wal", WAL, 4152),
        ("state.db-shm", "sqlite-shm", b"", 32768),
        ("journal.db", "sqlite-db", DATABASE, 4096),
        ("journal.db-journal", "sqlite-journal", JOURNAL, 512),
        ("other.db", "regular", b"not a database", 4096),
    ];
    for (name, class, magic, size) in cases {
        let path = dir.join(name);
        let mut content = magic.to_vec();
        content.resize(size, 0);
        fs::write(&path, content)?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let holding = report.hold(name, class, file)?;
        holding.at(&path).with("size", size);
        if class == "sqlite-db" {
            holding.with("magic", true);
        }
    }
    Ok(())
}
