//! The terminal, which is always restored.

use std::io::{self, IsTerminal as _};
use std::{panic, thread};

use crossterm::{cursor, execute};
use ratatui::DefaultTerminal;

/// The alternate screen in raw mode, until it is dropped. A panic restores the terminal before its
/// message is printed, or the message would be lost.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    /// Enters the alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        if !io::stdout().is_terminal() {
            return Err(io::Error::other("standard output is not a terminal"));
        }
        // Installs a panic hook, which leaves raw mode and the alternate screen; the cursor is left
        // to a destructor that never runs if a panic aborts.
        let terminal = ratatui::try_init().inspect_err(|_| give_back())?;
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            show_cursor();
            previous(panic);
        }));
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic the hook has done it. Leaving the alternate screen twice would move the
        // cursor back to before the message, and the shell would overwrite it.
        if !thread::panicking() {
            give_back();
        }
    }
}

/// A failure here cannot be reported: the terminal itself is gone.
fn give_back() {
    drop(ratatui::try_restore());
    show_cursor();
}

fn show_cursor() {
    drop(execute!(io::stdout(), cursor::Show));
}
