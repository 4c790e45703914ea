//! Reads the running system into [`fdguard_core`] values.
//!
//! Each way to read processes is a [`ProcessReader`].
//!
//! [`Probe`] examines processes through `/proc` with directory descriptors, so that a reused pid
//! can never mix two processes, and uses netlink to identify sockets. It holds a handful of
//! descriptors itself and runs nothing inside the target.

pub mod anonymous;
pub mod error;
pub mod linux;
mod lsof;
pub mod parse;
mod reader;
mod sqlite;
pub mod workers;

pub use error::Error;
pub use linux::Probe;
pub use linux::program::{ContainerImage, FileStamp};
pub use linux::radar::Radar;
pub use linux::snapshot::{Depth, Options};
pub use linux::watcher::{ProcessWatcher, WatcherTick};
pub use lsof::Lsof;
pub use reader::{ProcessReader, read_or_gaps};
