//! Files that must not be lost: find what damaged a database and which process holds it, heal it,
//! and archive logs.
//!
//! [`inspect`] examines a file from outside: it opens the file read-only, takes no lock and changes
//! nothing. The pure modules ([`sqlite`], [`tls`], [`foreign`], [`plain`]) interpret the bytes;
//! [`holding`] and [`lease`] find the holders. [`heal()`] works on a copy and swaps it in once
//! SQLite's integrity check passes. [`FileWatch`] reports when a database is damaged. [`Archive`]
//! moves logs without losing a line, optionally only below a [`Dir`].

pub mod archive;
pub mod check;
pub mod dir;
mod error;
mod finding;
pub mod foreign;
pub mod heal;
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
