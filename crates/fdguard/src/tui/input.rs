//! User input: keys, terminal size and termination signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// An input of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal was resized.
    Resize {
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    },
    /// The shell continued the view: nothing of it is on the screen any more.
    Resumed,
}

impl Input {
    fn control(letter: char) -> Self {
        Self::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL))
    }

    /// Whether it is Ctrl-Z.
    pub(super) fn suspends(self) -> bool {
        self == Self::control('z')
    }
}

/// How long a signal may go unnoticed.
const NOTICE: Duration = Duration::from_millis(200);

/// The next input, if there is one in time. A termination signal acts like Ctrl-C.
pub(super) fn next(timeout: Duration, signals: Option<&EndSignal>) -> io::Result<Option<Input>> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if event::poll(left.min(NOTICE))? {
            break;
        }
        if signals.is_some_and(|signals| signals.signal().is_some()) {
            return Ok(Some(Input::control('c')));
        }
        if left <= NOTICE {
            return Ok(None);
        }
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(Input::Key(key)),
        Event::Resize(width, height) => Some(Input::Resize { width, height }),
        _ => None,
    })
}

/// Remembers the last termination signal: restore the terminal first, then obey the signal.
#[derive(Debug)]
pub(super) struct EndSignal(Arc<AtomicUsize>);

impl EndSignal {
    /// From here on these signals are remembered instead of obeyed.
    pub(super) fn listen() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGTERM, SIGHUP, SIGINT] {
            let value = usize::try_from(number).unwrap_or_default();
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        Ok(Self(signal))
    }

    /// The received signal, if any.
    pub(super) fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed))
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
