//! Files that must not be lost: what damaged a database, who holds it, and how it is healed.
//!
//! [`inspect`] looks at a file from outside: it is opened for reading, no lock is taken, and nothing is changed. What the bytes mean
//! is judged by the pure parts ([`sqlite`], [`tls`], [`foreign`], [`plain`]), who holds it by [`holding`] and [`lease`].
//! [`heal()`] works on a copy, and swaps it in when SQLite finds nothing wrong with it. [`Watch`] tells when a database goes bad.
//! [`Archive`] moves logs without losing a line, below a [`Dir`] where that is wanted.

pub mod archive;
pub mod check;
pub mod dir;
mod error;
mod finding;
pub mod foreign;
pub mod heal;
mod hex;
pub mod holding;
mod inspection;
pub mod jsonl;
pub mod lease;
pub mod lock;
pub mod plain;
pub mod read;
pub mod registry;
pub mod sqlite;
mod sys;
pub mod tls;
pub mod vault;
pub mod watch;
mod words;

pub use archive::Archive;
pub use dir::Dir;
pub use error::Error;
pub use finding::FileFinding;
pub use heal::{HealResult, heal};
pub use inspection::{FileVerdict, Inspection, Kind, Options, SqliteReport, Writers, inspect};
pub use jsonl::JsonlWriter;
pub use lock::LockFile;
pub use registry::Registry;
pub use vault::Vault;
pub use watch::FileWatch;
