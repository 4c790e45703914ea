//! The floor under the other crates: the files of `/proc`, and the identity of a process.
//!
//! There is one module per file of `/proc`. A parser takes bytes and opens nothing, so that each
//! caller reads in its own way: relative to a directory, into one buffer, or after a fork without
//! allocating. Whatever the bytes are, it does not panic, and it skips what a newer kernel adds.
//! Decision 067 compares it with procfs-core.
//!
//! [`ProcessId`] is the identity of a process (decision 068). Only [`process`] opens files,
//! and only it and [`clock`] make system calls.

#![forbid(unsafe_code)]

pub mod ascii;
pub mod auxv;
pub mod boot_id;
pub mod cgroup;
pub mod children;
pub mod clock;
pub mod cmdline;
pub mod comm;
pub mod environ;
pub mod fdinfo;
pub mod file_nr;
pub mod limits;
pub mod link;
pub mod loadavg;
pub mod locks;
pub mod maps;
pub mod meminfo;
pub mod mountinfo;
pub mod net;
pub mod process;
pub mod process_id;
pub mod sched;
pub mod smaps;
pub mod stat;
pub mod statm;
pub mod status;
pub mod syscall;
pub mod system_stat;

pub use boot_id::BootId;
pub use process_id::{ProcKey, ProcessId};
