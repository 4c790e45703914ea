//! Signals to fdguard while the program runs. The terminal sends Ctrl-C to the program as well, so
//! the first is left to it. The second makes fdguard stop and print what it has.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_process::signals::{ENDING, Signals};
use fdguard_trace::TracedCommand;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// Signals this close together count as one: `timeout` sends each signal twice.
const TOGETHER: Duration = Duration::from_millis(300);
/// How often to poll if the program's end cannot be waited for.
const ASKING: Duration = Duration::from_millis(100);

/// The termination signals received so far.
#[derive(Debug)]
pub(in crate::command) struct SignalRequests {
    signals: Arc<Signals>,
    interrupt: LastSignal,
    end: LastSignal,
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
        Ok(Self {
            signals: Arc::new(Signals::listen(ENDING)?),
            interrupt: LastSignal::default(),
            end: LastSignal::default(),
            times: 0,
        })
    }

    /// Becomes readable when there is a request.
    pub(in crate::command) fn signals(&self) -> Arc<Signals> {
        Arc::clone(&self.signals)
    }

    /// The request since the last call.
    pub(in crate::command) fn next_request(&mut self) -> Option<Request> {
        let (mut is_interrupt, mut is_end) = (false, false);
        while let Some(received) = self.signals.next() {
            let is_int = received.signal == Signal::INT.as_raw();
            (is_interrupt, is_end) = (is_interrupt || is_int, is_end || !is_int);
        }
        let is_interrupt = is_interrupt && self.interrupt.is_new();
        let request = match (is_interrupt, is_end && self.end.is_new()) {
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
        self.signals.release();
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
        let mut fds = vec![PollFd::new(&*self.signals, PollFlags::IN)];
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

/// When a signal of a kind last arrived.
#[derive(Debug, Default)]
struct LastSignal(Option<Instant>);

impl LastSignal {
    /// Records that one arrived; false if it belongs to the one before.
    fn is_new(&mut self) -> bool {
        let last = self.0.replace(Instant::now());
        last.is_none_or(|last| last.elapsed() >= TOGETHER)
    }
}
