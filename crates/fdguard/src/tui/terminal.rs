//! The terminal, borrowed: whatever happens, the user gets it back as it was.

use std::{io, panic};

use crossterm::{cursor, execute};
use ratatui::DefaultTerminal;

/// The alternate screen in raw mode, until it is dropped. A panic restores the terminal before
/// its message is printed, or nobody would see it.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        // Sets a panic hook of its own, which leaves raw mode and the alternate screen; the
        // cursor it leaves to a destructor that never runs where a panic aborts.
        let terminal = ratatui::try_init().inspect_err(|_| give_back())?;
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            previous(panic);
        }));
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Nobody is left to tell when this fails: the terminal itself is gone.
fn give_back() {
    drop(ratatui::try_restore());
    drop(execute!(io::stdout(), cursor::Show));
}
