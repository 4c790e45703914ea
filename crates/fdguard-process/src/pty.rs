//! A pseudo-terminal without races: both ends are close-on-exec from the start, and the program's
//! end is opened through its master, never by a path.

#![expect(unsafe_code, reason = "rustix has no TIOCSIG")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{IntegerSetter, Opcode, ioctl, opcode};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcgetpgrp, tcsetattr,
    tcsetwinsize,
};

/// `_IOW('T', 0x36, int)`; the kernel takes the number itself, not a pointer to it.
const TIOCSIG: Opcode = opcode::write::<c_int>(b'T', 0x36);

/// A terminal: fdguard's end and the program's.
#[derive(Debug)]
pub struct Pty {
    /// fdguard's end; nonblocking.
    pub master: OwnedFd,
    /// The program's end. Drop it once the program runs: the master then reports when the last
    /// holder is gone.
    pub slave: OwnedFd,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its width.
    pub columns: u16,
    /// Its height.
    pub rows: u16,
}

/// A key that can be sent to the foreground group of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// INT, as from Ctrl-C.
    Interrupt,
    /// QUIT, as from Ctrl-\.
    Quit,
    /// TSTP, as from Ctrl-Z.
    Suspend,
}

impl Pty {
    /// Opens a terminal that shows only what programs write: it neither echoes its input nor
    /// translates line ends.
    pub fn open(size: Size) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let master = open(c"/dev/ptmx", flags, Mode::empty())?;
        unlockpt(&master)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut modes = tcgetattr(&slave)?;
        modes.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ECHOCTL;
        modes.output_modes -= OutputModes::OPOST | OutputModes::ONLCR;
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        resize(&master, size)?;
        Ok(Self { master, slave })
    }
}

/// Resizes a terminal; the foreground group gets WINCH.
pub fn resize(master: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}

/// The foreground group; `None` if there is none, or it is outside this pid namespace.
pub fn foreground(master: impl AsFd) -> Option<u32> {
    let group = tcgetpgrp(master).ok()?;
    u32::try_from(group.as_raw_nonzero().get()).ok()
}

/// Sends a signal to the foreground group, whatever modes the terminal is in. The kernel finds the
/// group itself, so no pid is involved that could be reused.
pub fn press(master: impl AsFd, key: Key) -> io::Result<()> {
    let signal: usize = match key {
        Key::Interrupt => 2,
        Key::Quit => 3,
        Key::Suspend => 20,
    };
    // SAFETY: TIOCSIG takes a number, and accepts these three.
    let request = unsafe { IntegerSetter::<TIOCSIG>::new_usize(signal) };
    // SAFETY: the kernel dereferences no pointer for it.
    Ok(unsafe { ioctl(master, request) }?)
}
