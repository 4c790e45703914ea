//! The model of fdguard, and its judgement.
//!
//! Everything here is a plain value or a pure function: nothing opens a file, reads the clock or
//! prints. A [`Snapshot`] holds the observations of one process; a [`Summary`] holds the
//! conclusions; a [`Rule`](rule::Rule) is one check of it; a [`Delta`] is the difference between
//! two; a [`Playbook`](playbook::Playbook) knows the usual cause of each kind of leak; an
//! [`Explanation`](explain::Explanation) shows which lines of a log mean that a limit was reached.
//! What could not be observed is a [`Gap`], never a zero.

#![forbid(unsafe_code)]

mod arrival_spread;
pub mod bearer;
pub mod blame;
pub mod children;
pub mod class;
mod class_of_call;
pub mod class_pattern;
pub mod collapse;
pub mod command_line;
pub mod config;
pub mod count;
pub mod delta;
pub mod dependency_path;
pub mod detail;
pub mod diagnosis;
pub mod document;
pub mod entry;
pub mod event;
pub mod evidence;
pub mod explain;
pub mod exposition;
pub mod finding;
pub mod forecast;
pub mod gap;
pub mod glob;
pub mod growth;
pub mod hazard;
pub mod hex;
pub mod host;
pub mod id;
mod json_text;
pub mod judge;
pub mod ledger;
pub mod lifetimes;
pub mod lint;
pub mod located;
pub mod log_event;
pub mod open_flags;
pub mod opened_before;
pub mod origin;
pub mod pattern;
pub mod phases;
pub mod playbook;
pub mod proof;
pub mod recording;
pub mod redact;
pub mod rising_group;
pub mod rule;
pub mod select_use;
pub mod slope;
pub mod snapshot;
pub mod sqlite_uri;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod text;
pub mod timeline;
pub mod units;
pub mod wall;
pub mod watch;
pub mod workload;

pub use class::{Class, TcpState};
pub use delta::Delta;
pub use detail::Detail;
pub use entry::{FdEntry, FdHolder, Mode};
pub use gap::Gap;
pub use id::{Fd, FileId, Pid, RowKey, TraceKey};
pub use open_flags::OpenFlags;
pub use select_use::SelectUse;
pub use snapshot::{Snapshot, Tier};
pub use summary::Summary;
pub use text::Text;
pub use timeline::Timeline;
