//! Termination signals: restore the terminal first, then obey the signal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Remembers the last termination signal.
#[derive(Debug)]
pub(super) struct EndSignal {
    signal: Arc<AtomicUsize>,
}

impl EndSignal {
    /// From here on these signals are remembered instead of obeyed.
    pub(super) fn listen() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGTERM, SIGHUP, SIGINT] {
            let value = usize::try_from(number).unwrap_or_default();
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        Ok(Self { signal })
    }

    /// The received signal, if any.
    pub(super) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed))
            .ok()
            .filter(|signal| *signal > 0)
    }

    /// Ends by the signal's default action, so that the sender sees the true exit status.
    pub(super) fn follow(&self) -> io::Result<()> {
        match self.signal() {
            Some(signal) => signal_hook::low_level::emulate_default_handler(signal),
            None => Ok(()),
        }
    }
}
