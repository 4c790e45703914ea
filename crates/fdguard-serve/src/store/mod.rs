//! The history on disk: one SQLite file, written by a thread of its own, bounded in age and size.
//!
//! The loop hands over batches and never waits for the disk. The file is in WAL mode: a process
//! that is killed loses at most what it had not handed over. A file that is damaged is set aside
//! and reported; a disk that is full costs rows, which are counted, and the gap is written down as
//! soon as there is room.

mod attachments;
mod file;
mod kept_findings;
mod query;
mod running;
mod state_limit;
mod writer;

pub(crate) use attachments::Attachments;
pub(crate) use file::StoreFile;
pub use file::{StoreError, StoreOptions};
pub(crate) use kept_findings::read_findings;
pub use query::{ServiceHistory, ServiceMoment, read_history, read_moment, read_services};
pub(crate) use running::RunningNote;
pub(crate) use writer::StoreWriter;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trouble_tests;
