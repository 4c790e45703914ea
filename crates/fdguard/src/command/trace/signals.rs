//! Signals to fdguard while the program runs. The terminal sends Ctrl-C to the program as well, so
//! the first is left to it. The second makes fdguard stop and print what it has.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdguard_trace::TracedCommand;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals this close together count as one: `timeout` sends each signal twice.
const TOGETHER: Duration = Duration::from_millis(300);
/// How often to poll if the program's end cannot be waited for.
const ASKING: Duration = Duration::from_millis(100);

/// The termination signals received so far.
#[derive(Debug)]
pub(in crate::command) struct SignalRequests {
    interrupt: SignalPipe,
    end: SignalPipe,
    /// From now on a signal ends fdguard at once.
    obeys: Arc<AtomicBool>,
    times: u32,
}

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Request {
    /// Ctrl-C: the program receives it, too.
    Interrupt,
    /// Sent to fdguard alone: to be passed to the program.
    End,
    /// A repeated signal: fdguard must leave.
    Leave,
}

/// What ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum WaitOutcome {
    Ended(ExitStatus),
    Requested(Request),
    Time,
}

impl SignalRequests {
    pub(in crate::command) fn listen() -> std::io::Result<Self> {
        let obeys = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&obeys))?;
        }
        Ok(Self {
            interrupt: SignalPipe::register(&[SIGINT])?,
            end: SignalPipe::register(&[SIGTERM, SIGHUP])?,
            obeys,
            times: 0,
        })
    }

    /// The request since the last call.
    pub(in crate::command) fn next_request(&mut self) -> Option<Request> {
        let request = match (self.interrupt.rang(), self.end.rang()) {
            (_, true) => Request::End,
            (true, false) => Request::Interrupt,
            (false, false) => return None,
        };
        self.times += 1;
        Some(if self.times > 1 {
            Request::Leave
        } else {
            request
        })
    }

    /// Restores the default meaning of signals: a reader that does not read the report must not
    /// block fdguard.
    pub(in crate::command) fn obey(&self) {
        self.obeys.store(true, Ordering::Relaxed);
    }

    /// Waits until the program ends, a request arrives, or `until` has passed.
    pub(in crate::command) fn wait(
        &mut self,
        traced: &mut TracedCommand,
        until: Instant,
    ) -> std::io::Result<WaitOutcome> {
        let handle = traced.handle();
        loop {
            if let Some(status) = traced.ended()? {
                return Ok(WaitOutcome::Ended(status));
            }
            if let Some(request) = self.next_request() {
                return Ok(WaitOutcome::Requested(request));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(WaitOutcome::Time);
            }
            self.sleep(handle.as_ref(), left);
        }
    }

    fn sleep(&self, handle: Option<&OwnedFd>, longest: Duration) {
        let mut fds = vec![
            PollFd::new(&self.interrupt.came, PollFlags::IN),
            PollFd::new(&self.end.came, PollFlags::IN),
        ];
        fds.extend(handle.map(|handle| PollFd::new(handle, PollFlags::IN)));
        let longest = if handle.is_some() {
            longest
        } else {
            longest.min(ASKING)
        };
        let timeout = Timespec::try_from(longest).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        });
        // Interrupted or not, the caller checks again.
        let _ = poll(&mut fds, Some(&timeout));
    }
}

/// Becomes readable when a signal arrives.
#[derive(Debug)]
struct SignalPipe {
    came: UnixStream,
    last: Option<Instant>,
}

impl SignalPipe {
    fn register(signals: &[i32]) -> std::io::Result<Self> {
        let (came, tell) = UnixStream::pair()?;
        came.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, tell.try_clone()?)?;
        }
        Ok(Self { came, last: None })
    }

    fn rang(&mut self) -> bool {
        let mut heard = [0; 64];
        let mut is_new = false;
        while (&self.came).read(&mut heard).is_ok_and(|length| length > 0) {
            is_new = true;
        }
        if !is_new {
            return false;
        }
        let is_echo = self.last.is_some_and(|last| last.elapsed() < TOGETHER);
        self.last = Some(Instant::now());
        !is_echo
    }
}
