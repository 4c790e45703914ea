//! Setup of a child between fork and exec: a clean table, limits, another user.

#![expect(
    unsafe_code,
    reason = "code between fork and exec is unsafe to register, and rustix has no close_range"
)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit};

/// The user id of `nobody`.
pub const NOBODY: u32 = 65534;

/// The command, to be run as another user and group without further groups. Needs root.
#[must_use]
pub fn run_as(uid: u32, mut command: Command) -> Command {
    command.uid(uid).gid(uid);
    command
}

/// Starts the child with only the three standard streams.
pub fn start_clean(command: &mut Command) {
    let close_rest_at_exec = || {
        // SAFETY: close_range takes three numbers and touches no memory of this process.
        let result = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                3_u32,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes one direct system call, it neither allocates nor locks.
    unsafe { command.pre_exec(close_rest_at_exec) };
}

/// Starts the child with this soft limit on descriptors.
pub(crate) fn limit_files(command: &mut Command, soft: u64) {
    let lower = move || {
        let present = rustix::process::getrlimit(Resource::Nofile);
        let wanted = Rlimit {
            current: Some(soft),
            maximum: present.maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, wanted).map_err(io::Error::from)
    };
    // SAFETY: the closure makes two direct system calls, it neither allocates nor locks.
    unsafe { command.pre_exec(lower) };
}
