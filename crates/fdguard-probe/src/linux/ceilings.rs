//! The host's own limits, which cause the same errors.

use std::os::fd::BorrowedFd;

use fdguard_core::snapshot::{Ceiling, Ceilings};
use fdguard_proc::{ascii::decimal, file_nr, loadavg};

use super::files;

/// Reads what needs no privilege. The search of all processes adds a user's inotify use.
pub(super) fn read(proc: BorrowedFd<'_>) -> Ceilings {
    let number = |path: &str| decimal(&files::read(proc, path).ok()?);
    let file_nr = files::read(proc, "sys/fs/file-nr").unwrap_or_default();
    let (used, at) = file_nr::used_and_most(&file_nr);
    Ceilings {
        files: Ceiling { used, at },
        nr_open: number("sys/fs/nr_open"),
        ptys: Ceiling {
            used: number("sys/kernel/pty/nr"),
            at: number("sys/kernel/pty/max"),
        },
        inotify_instances: Ceiling {
            used: None,
            at: number("sys/fs/inotify/max_user_instances"),
        },
        inotify_watches: Ceiling {
            used: None,
            at: number("sys/fs/inotify/max_user_watches"),
        },
        tasks: Ceiling {
            used: files::read(proc, "loadavg")
                .ok()
                .as_deref()
                .and_then(loadavg::tasks),
            at: number("sys/kernel/threads-max")
                .into_iter()
                .chain(number("sys/kernel/pid_max"))
                .min(),
        },
    }
}
