//! Termination signals: restore the terminal first, then obey the signal.

use std::cell::Cell;
use std::io;

use fdguard_process::signals::{ENDING, Signals, end_by};

/// Remembers the last termination signal.
#[derive(Debug)]
pub(super) struct EndSignal {
    signals: Signals,
    last: Cell<Option<i32>>,
}

impl EndSignal {
    /// From here on these signals are remembered instead of obeyed.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::listen(ENDING)?,
            last: Cell::new(None),
        })
    }

    /// The received signal, if any.
    pub(super) fn signal(&self) -> Option<i32> {
        while let Some(received) = self.signals.next() {
            self.last.set(Some(received.signal));
        }
        self.last.get()
    }

    /// Ends by the signal's default action, so that the sender sees the true exit status.
    pub(super) fn follow(&self) -> io::Result<()> {
        self.signal().map_or(Ok(()), end_by)
    }
}
