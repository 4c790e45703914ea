//! The rollback journal: whether SQLite would roll it back into the database.

use serde::Serialize;

use super::header::be;

/// The first bytes of a journal.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Content of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Journal {
    /// Bytes of the file.
    pub size: u64,
    /// Whether it holds pages that the next process to open the database restores, unless its
    /// writer is still alive.
    pub is_hot: bool,
    /// Pages in its first part; absent if the writer has not recorded it yet.
    pub pages: Option<u32>,
    /// Pages of the database before the transaction.
    pub pages_before: Option<u32>,
}

impl Journal {
    /// Reads the first bytes of a journal.
    #[must_use]
    pub fn read(bytes: &[u8], size: u64) -> Self {
        let is_whole = bytes.len() >= 28 && bytes.starts_with(&MAGIC);
        let pages = be(bytes, 8);
        Self {
            size,
            // A finished transaction leaves no journal, an empty one, or one with zeros over its
            // header.
            is_hot: is_whole && pages != 0,
            pages: (is_whole && pages != u32::MAX).then_some(pages),
            pages_before: is_whole.then(|| be(bytes, 16)),
        }
    }
}
