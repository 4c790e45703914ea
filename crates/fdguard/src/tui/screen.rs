//! The terminal, which is always restored.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::{panic, thread};

use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::process::Signal;

/// Where to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawTarget {
    /// On standard output.
    Stdout,
    /// On the controlling terminal: standard output belongs to the program.
    Terminal,
}

/// Whether there is a controlling terminal.
#[must_use]
pub fn has_terminal() -> bool {
    DrawTarget::Terminal.open().is_ok()
}

impl DrawTarget {
    fn open(self) -> io::Result<File> {
        match self {
            Self::Stdout if !io::stdout().is_terminal() => {
                Err(io::Error::other("standard output is not a terminal"))
            }
            Self::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Self::Terminal => OpenOptions::new().read(true).write(true).open("/dev/tty"),
        }
    }

    fn take(self) -> io::Result<()> {
        let mut tty = self.open()?;
        enable_raw_mode()?;
        execute!(tty, EnterAlternateScreen, cursor::Hide)
    }

    /// A failure here cannot be reported: the terminal itself is gone.
    fn give_back(self) {
        drop(disable_raw_mode());
        if let Ok(mut tty) = self.open() {
            drop(execute!(tty, LeaveAlternateScreen, cursor::Show));
        }
    }

    /// Does what the terminal does for Ctrl-Z outside of raw mode: stops the whole process group,
    /// until the shell continues it.
    pub(super) fn suspend(self) -> io::Result<()> {
        self.give_back();
        rustix::process::kill_current_process_group(Signal::TSTP)?;
        self.take()
    }
}

/// The alternate screen in raw mode, until it is dropped. A panic restores the terminal before its
/// message is printed, or the message would be lost.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    target: DrawTarget,
}

impl Screen {
    /// Enters the alternate screen.
    pub(super) fn enter(target: DrawTarget) -> io::Result<Self> {
        let tty = BufWriter::new(target.open()?);
        let terminal = target
            .take()
            .and_then(|()| Terminal::new(CrosstermBackend::new(tty)))
            .inspect_err(|_| target.give_back())?;
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            target.give_back();
            previous(panic);
        }));
        Ok(Self { terminal, target })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic the hook has done it. Leaving the alternate screen twice would move the
        // cursor back to before the message, and the shell would overwrite it.
        if !thread::panicking() {
            self.target.give_back();
        }
    }
}
