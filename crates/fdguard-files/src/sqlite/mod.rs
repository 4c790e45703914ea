//! Parsers for a SQLite database and its side files. Pure: bytes and sizes in, values out.

pub mod encryption;
pub mod header;
pub mod journal;
pub mod judge;
pub mod shm;
pub mod wal;

pub use header::DatabaseHeader;
pub use journal::Journal;
pub use shm::Shm;
pub use wal::Wal;

pub(crate) use crate::finding::FileFinding;
