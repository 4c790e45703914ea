//! Waits for the first of: a time, a signal, or the end of a process.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::live::OnSignal;

/// From this long after the first signal, another one ends fdguard at once. `timeout` sends each
/// signal twice.
const GRACE: Duration = Duration::from_secs(1);

/// The signals that end a watch.
#[derive(Debug)]
pub(super) struct Signals {
    came: UnixStream,
}

impl Signals {
    pub(super) fn listen(on_signal: OnSignal) -> std::io::Result<Self> {
        let (came, tell) = UnixStream::pair()?;
        came.set_nonblocking(true)?;
        if on_signal == OnSignal::Tell {
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
            }
            return Ok(Self { came });
        }
        let is_stuck = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_stuck))?;
            signal_hook::low_level::pipe::register(signal, tell.try_clone()?)?;
        }
        let seen = came.try_clone()?;
        // In its own thread: fdguard may be blocked writing to a reader that does not read.
        std::thread::Builder::new().spawn(move || {
            let mut first = [PollFd::new(&seen, PollFlags::IN)];
            while poll(&mut first, None).is_err() {}
            std::thread::sleep(GRACE);
            is_stuck.store(true, Ordering::Relaxed);
        })?;
        Ok(Self { came })
    }

    /// Marks the received signals as handled.
    pub(super) fn forget(&self) {
        let mut heard = [0; 64];
        while (&self.came).read(&mut heard).is_ok_and(|length| length > 0) {}
    }
}

/// A process whose end can be waited for; `None` on kernels and in sandboxes that forbid it.
#[derive(Debug)]
pub(super) struct Handle(Option<OwnedFd>);

impl Handle {
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
            Ok(0) | Err(_) => return WakeReason::Time,
            Ok(_) if !fds[0].revents().is_empty() => return WakeReason::Signal,
            Ok(_) => return WakeReason::ProcessEnded,
        }
    }
}
