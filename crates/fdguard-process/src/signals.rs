//! Signals as a readable descriptor: nothing runs in a handler.
//!
//! The signals are blocked in this thread, so a program with several threads must take them before
//! it starts the others. A program started by a [`Plan`](crate::plan::Plan) begins with no signal
//! blocked.

#![expect(
    unsafe_code,
    reason = "signalfd and the mask of signals: rustix has neither"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: i32,
    /// The sender's pid; 0 for the kernel and invisible processes.
    pub sender: u32,
}

/// The signals that are read here. On drop they regain their previous effect.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: Mask,
}

struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Signals {
    /// Takes these signals; the kernel ignores invalid numbers, KILL and STOP.
    pub fn block(signals: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let set = set_of(signals);
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both point to sets of this frame; the kernel writes the second.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: pthread_sigmask succeeded, so it wrote the set.
        let before = Mask(unsafe { before.assume_init() });
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set lives in this frame, and -1 requests a new descriptor.
        let number = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if number < 0 {
            let error = io::Error::last_os_error();
            restore(&before);
            return Err(error);
        }
        // SAFETY: the kernel returned this new descriptor, and nothing else uses it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let fd = crate::reserve::raise(fd);
        Ok(Self { fd, before })
    }

    /// The next received signal; never waits.
    #[must_use]
    pub fn next(&self) -> Option<ReceivedSignal> {
        let mut buffer = [0; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.fd, &mut buffer).ok()?;
        if count != buffer.len() {
            return None;
        }
        // The record starts with the number, then errno and code, then the sender: 32 bits each.
        let word = |at: usize| {
            let bytes = buffer.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        Some(ReceivedSignal {
            signal: i32::try_from(word(0)?).ok()?,
            sender: word(12)?,
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Discard pending signals: otherwise they would act when unblocked.
        while self.next().is_some() {}
        restore(&self.before);
    }
}

fn set_of(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set lives in this frame; the call fills all of it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset fills the set and cannot fail for a valid address.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: the set is valid; an invalid signal number is rejected without effect.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

fn restore(before: &Mask) {
    // SAFETY: the kernel filled the set, and nothing is written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before.0, std::ptr::null_mut()) };
}

/// Signal numbers by name, such as `TERM` or `SIGTERM`.
const NAMES: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CONT", libc::SIGCONT),
    ("WINCH", libc::SIGWINCH),
    ("PWR", libc::SIGPWR),
    ("IO", libc::SIGIO),
    ("SEGV", libc::SIGSEGV),
    ("BUS", libc::SIGBUS),
    ("ILL", libc::SIGILL),
    ("FPE", libc::SIGFPE),
    ("TRAP", libc::SIGTRAP),
    ("SYS", libc::SIGSYS),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("URG", libc::SIGURG),
];

/// The signal with this name or number.
#[must_use]
pub fn by_name(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let found = NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}

/// The name of a signal: `SIGTERM`, or `signal 40`.
#[must_use]
pub fn name_of(signal: i32) -> String {
    match NAMES.iter().find(|(_, number)| *number == signal) {
        Some((name, _)) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

/// Signals that a wrapper passes on: those that a program may be sent and that are neither job
/// control of the terminal nor faults of the program itself.
#[must_use]
pub fn forwardable() -> Vec<i32> {
    let plain = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGWINCH,
        libc::SIGURG,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    plain
        .into_iter()
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ReceivedSignal, Signals, by_name, name_of};

    #[test]
    fn a_signal_is_read_with_its_sender() {
        let signals = Signals::block([libc::SIGUSR1, libc::SIGTERM]).unwrap();
        assert_eq!(signals.next(), None);
        let signal = libc::SIGTERM;
        // SAFETY: takes a number and signals this thread, which blocks it.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
        let sender = std::process::id();
        assert_eq!(signals.next(), Some(ReceivedSignal { signal, sender }));
        assert_eq!(signals.next(), None);
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!((by_name("TERM"), by_name("SIGHUP")), (Some(15), Some(1)));
        assert_eq!(
            (by_name("10"), by_name("0"), by_name("65")),
            (Some(10), None, None)
        );
        assert_eq!(by_name("term"), None);
        assert_eq!(
            (name_of(9), name_of(40)),
            ("SIGKILL".to_owned(), "signal 40".to_owned())
        );
    }
}
