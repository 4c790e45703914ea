//! User input: keys, terminal size and termination signals.

use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::end_signal::EndSignal;

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
}

/// How long a signal may go unnoticed.
const NOTICE: Duration = Duration::from_millis(200);

/// The next input, if there is one in time. A termination signal acts like Ctrl-C.
pub(super) fn next(timeout: Duration, ended: &EndSignal) -> io::Result<Option<Input>> {
    next_unless(timeout, || ended.signal().is_some())
}

/// The same if another part of the program handles signals.
#[cfg(feature = "trace")]
pub(super) fn next_alone(timeout: Duration) -> io::Result<Option<Input>> {
    next_unless(timeout, || false)
}

fn next_unless(timeout: Duration, is_ended: impl Fn() -> bool) -> io::Result<Option<Input>> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if event::poll(left.min(NOTICE))? {
            break;
        }
        if is_ended() {
            let leave = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            return Ok(Some(Input::Key(leave)));
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
