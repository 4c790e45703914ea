//! The host's own limits, which cause the same errors.

use std::os::fd::BorrowedFd;

use bstr::ByteSlice as _;
use fdguard_core::snapshot::{Ceiling, Ceilings};

use super::files;
use crate::parse::ascii::{decimal, words};

/// Reads what needs no privilege. The search of all processes adds a user's inotify use.
pub(super) fn read(proc: BorrowedFd<'_>) -> Ceilings {
    let number = |path: &str| decimal(&files::read(proc, path).ok()?);
    let file_nr = files::read(proc, "sys/fs/file-nr").unwrap_or_default();
    let file_nr: Vec<Option<u64>> = words(&file_nr).map(decimal).collect();
    Ceilings {
        files: Ceiling {
            used: file_nr.first().copied().flatten(),
            at: file_nr.get(2).copied().flatten(),
        },
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
            used: files::read(proc, "loadavg").ok().as_deref().and_then(tasks),
            at: number("sys/kernel/threads-max")
                .into_iter()
                .chain(number("sys/kernel/pid_max"))
                .min(),
        },
    }
}

/// `0.20 0.18 0.12 1/80 11206`: the fourth word contains the number of tasks.
fn tasks(loadavg: &[u8]) -> Option<u64> {
    decimal(words(loadavg).nth(3)?.split_once_str(b"/")?.1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn tasks_stand_behind_the_slash() {
        assert_eq!(super::tasks(b"0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(super::tasks(b"nonsense"), None);
    }
}
