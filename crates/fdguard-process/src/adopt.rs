//! The last net, for a supervisor that starts all of its children itself: when a keeper is killed, its orphans become the supervisor's own
//! children, and are exact again.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};

use crate::members;
use crate::sys;

/// Makes this process the parent of orphans below it, of those of a killed keeper too. They must be reaped: [`end_adopted`] does it.
/// Not for a process whose libraries start children of their own.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// What became of adopted processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// They were killed, or had ended, and were reaped.
    pub ended: u32,
    /// They did not end in time.
    pub left: u32,
}

/// Kills and reaps every child of this process that is not `known`, and those that become children by it, until none is left or the time
/// is over. `known` are all children that the caller started itself, with the keepers of its trees. No other thread may wait for children.
#[must_use]
pub fn end_adopted(known: &[u32], longest: Duration) -> Swept {
    let deadline = Instant::now() + longest;
    let mut swept = Swept::default();
    let adopted = || -> Vec<u32> {
        let children = members::children(std::process::id()).into_iter();
        children.filter(|pid| !known.contains(pid)).collect()
    };
    loop {
        let adopted_now = adopted();
        let Some(first) = adopted_now.first().and_then(|pid| open(*pid)) else {
            return swept;
        };
        for pid in &adopted_now {
            // Our own unreaped child: its number is its own.
            let _gone = sys::signal_child(*pid, libc::SIGKILL);
        }
        await_end(&first, deadline);
        for pid in &adopted_now {
            if let Ok(Some(_)) = sys::reap(Some(*pid), false) {
                swept.ended += 1;
            }
        }
        if Instant::now() >= deadline {
            swept.left = u32::try_from(adopted().len()).unwrap_or(u32::MAX);
            return swept;
        }
    }
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn await_end(pidfd: &OwnedFd, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).unwrap_or_default();
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let _happened = poll(&mut fds, Some(&timeout));
}
