//! Waits for the first of: a time, a signal, or the end of a process.

use std::os::fd::OwnedFd;
use std::time::Instant;

use fdguard_process::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process whose end can be waited for; `None` on kernels and in sandboxes that forbid it.
#[derive(Debug)]
pub(super) struct Handle(Option<OwnedFd>);

impl Handle {
    /// No handle: the end is noticed in another way.
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn open(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// Stops waiting for a process that has ended.
    pub(super) fn forget_if_ended(&mut self) {
        let has_ended = self.0.as_ref().is_some_and(|handle| {
            let now = Timespec::default();
            let polled = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&now));
            polled.is_ok_and(|ready| ready > 0)
        });
        if has_ended {
            self.0 = None;
        }
    }
}

/// What ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    Time,
    Signal,
    ProcessEnded,
}

/// Waits at most until `until`.
pub(super) fn wait(signals: &Signals, processes: &[&Handle], until: Instant) -> WakeReason {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    let handles = processes.iter().filter_map(|handle| handle.0.as_ref());
    fds.extend(handles.map(|handle| PollFd::new(handle, PollFlags::IN)));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        });
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return WakeReason::Time,
            Ok(_) if !fds[0].revents().is_empty() => return WakeReason::Signal,
            Ok(_) => return WakeReason::ProcessEnded,
        }
    }
}
