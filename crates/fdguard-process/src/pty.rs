//! A pseudo-terminal without races: both ends are closed by an exec from their first moment, and
//! the program's end is opened by its master, never by a path.

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

/// `_IOW('T', 0x36, int)`; the kernel takes the number itself and not a pointer to it.
const TIOCSIG: Opcode = opcode::write::<c_int>(b'T', 0x36);

/// A terminal: fdguard's end and the program's.
#[derive(Debug)]
pub struct Pty {
    /// fdguard's end; nonblocking.
    pub master: OwnedFd,
    /// The program's. Drop it when the program runs: the master then reports when the last holder
    /// is gone.
    pub slave: OwnedFd,
}

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its width.
    pub columns: u16,
    /// Its height.
    pub rows: u16,
}

/// What can be sent to the group in the foreground of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// INT, as of Ctrl-C.
    Interrupt,
    /// QUIT, as of Ctrl-\.
    Quit,
    /// TSTP, as of Ctrl-Z.
    Suspend,
}

impl Pty {
    /// Opens a terminal that shows what programs write and nothing else: no echo of what is written
    /// to it, and no translation of line ends.
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

/// Gives a terminal another size; the group in the foreground gets WINCH.
pub fn resize(master: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}

/// The group in the foreground; absent where there is none, or none of our pid namespace.
pub fn foreground(master: impl AsFd) -> Option<u32> {
    let group = tcgetpgrp(master).ok()?;
    u32::try_from(group.as_raw_nonzero().get()).ok()
}

/// Sends a signal to the group in the foreground, whatever modes the terminal is in. The kernel
/// finds the group itself: no number of a process is involved that could change hands.
pub fn press(master: impl AsFd, key: Key) -> io::Result<()> {
    let signal: usize = match key {
        Key::Interrupt => 2,
        Key::Quit => 3,
        Key::Suspend => 20,
    };
    // SAFETY: TIOCSIG takes a number, and takes these three.
    let request = unsafe { IntegerSetter::<TIOCSIG>::new_usize(signal) };
    // SAFETY: the kernel follows no pointer for it.
    Ok(unsafe { ioctl(master, request) }?)
}
