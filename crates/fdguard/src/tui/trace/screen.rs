//! The controlling terminal, opened by name if standard output is a file, and always restored.

use std::fs::{File, OpenOptions};
use std::{io, panic, thread};

use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// The alternate screen in raw mode, until it is dropped.
#[derive(Debug)]
pub(super) struct TtyScreen {
    pub(super) terminal: Terminal<CrosstermBackend<File>>,
}

/// The controlling terminal.
pub(super) fn controlling() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

impl TtyScreen {
    /// Enters the alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        let mut tty = controlling()?;
        enable_raw_mode()?;
        let begun = execute!(tty, EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(tty)));
        let terminal = begun.inspect_err(|_| give_back())?;
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            previous(panic);
        }));
        Ok(Self { terminal })
    }
}

impl Drop for TtyScreen {
    fn drop(&mut self) {
        // After a panic the hook has done it.
        if !thread::panicking() {
            give_back();
        }
    }
}

/// A failure here cannot be reported: the terminal itself is gone.
fn give_back() {
    drop(disable_raw_mode());
    if let Ok(mut tty) = controlling() {
        drop(execute!(tty, LeaveAlternateScreen, cursor::Show));
    }
}
