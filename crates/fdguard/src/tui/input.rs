//! User input: keys, terminal size and termination signals.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use fdguard_process::signals::{ENDING, Signals, end_by};

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
