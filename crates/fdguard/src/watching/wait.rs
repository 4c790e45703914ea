//! Waiting for what comes first: the time, a signal, or the end of a process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that end a watch.
#[derive(Debug)]
pub(super) struct Signals {
    came: UnixStream,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let (came, tell) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
        }
        Ok(Self { came })
    }
}

/// A process whose end can be waited for; absent on kernels and in sandboxes that forbid it.
#[derive(Debug)]
pub(super) struct Handle(Option<OwnedFd>);

impl Handle {
    pub(super) fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }
}

/// What ended the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    Time,
    Signal,
    ProcessEnded,
}

/// Waits until `until` at most.
pub(super) fn wait(signals: &Signals, processes: &[&Handle], until: Instant) -> Woken {
    let mut fds = vec![PollFd::new(&signals.came, PollFlags::IN)];
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
            Ok(0) | Err(_) => return Woken::Time,
            Ok(_) if !fds[0].revents().is_empty() => return Woken::Signal,
            Ok(_) => return Woken::ProcessEnded,
        }
    }
}
