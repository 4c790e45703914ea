//! Signals on the reactor.
#![expect(
    unsafe_code,
    reason = "the reactor takes a descriptor on the word of its owner"
)]

use std::io;

use fdguard_process::signals::Signals;
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Signals that can be awaited.
#[derive(Debug)]
pub(crate) struct SignalWait(AsyncFd<Signals>);

impl SignalWait {
    /// On the runtime that calls.
    pub(super) fn new(signals: Signals) -> io::Result<Self> {
        // SAFETY: `Signals` owns its descriptor, never replaces it, and closes it only when it is
        // dropped, which the reactor does after deregistering it.
        let awaited = unsafe { AsyncFd::register_with_interest(signals, Interest::READABLE) };
        Ok(Self(awaited?))
    }

    /// The next signal.
    pub(crate) async fn next(&self) -> i32 {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                // The reactor is gone, and with it everything else.
                return Signal::TERM.as_raw();
            };
            match self.0.get_ref().next() {
                Some(heard) => return heard.signal,
                None => ready.clear_ready(),
            }
        }
    }

    /// The next INT.
    pub(crate) async fn interrupt(&self) {
        while self.next().await != Signal::INT.as_raw() {}
    }
}
