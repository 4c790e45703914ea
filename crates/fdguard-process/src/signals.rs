//! Signals as a readable descriptor: the only way in which fdguard receives them.
//!
//! A handler writes each signal and its sender to a pipe. Several listeners may exist at the same
//! time; each receives every signal. A signal without a listener has its default effect. Programs
//! start with default handlers and no blocked signal, however they are started: an `exec` resets
//! handlers, but would pass a mask on, which is why nothing is blocked here (decision 069).

#![expect(
    unsafe_code,
    reason = "code in a signal handler, and the sender of a signal"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use signal_hook::SigId;
use signal_hook::low_level::{emulate_default_handler, unregister};

use fdguard_proc::clock::monotonic;

/// The signals that ask a command to end.
pub const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// From this long after the first signal, another one ends the process at once. `timeout` sends
/// each signal twice.
const GRACE: Duration = Duration::from_secs(1);

/// A record in the pipe: the signal and its sender, four bytes each, and the time in eight. So
/// short a write is atomic.
const RECORD: usize = 16;

/// The number of listeners by signal. The signals of Linux are 1 to 64.
static LISTENERS: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

/// The signals with a handler, as bits. Handlers are never removed.
static HANDLED: Mutex<u64> = Mutex::new(0);

/// From here on, writing past the limit for the size of files (`ulimit -f`) is an error that is
/// reported, and does not end the process. A handler, unlike an ignored signal, is not passed on to
/// programs that are started.
pub fn survive_file_size_limit() -> io::Result<()> {
    let was_reached = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGXFSZ, was_reached).map(drop)
}

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: i32,
    /// The sender's pid; 0 for the kernel and invisible processes.
    pub sender: u32,
    /// When it arrived, by the monotonic clock: a busy process may read it much later.
    pub at: Duration,
}

/// A listener: the signals that are read here. When it is dropped, a signal without another
/// listener has its default effect again.
#[derive(Debug)]
pub struct Signals {
    pipe: OwnedFd,
    /// What the handlers do for this listener; empty once it is released.
    actions: Mutex<Vec<(i32, SigId)>>,
}

impl Signals {
    /// Listens to these signals. Invalid numbers, KILL and STOP are skipped.
    pub fn listen(signals: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let (pipe, out) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let out = Arc::new(crate::reserve::raise(out));
        let listener = Self {
            pipe: crate::reserve::raise(pipe),
            actions: Mutex::new(Vec::new()),
        };
        let can_be_heard = |signal: &i32| {
            (1..=64).contains(signal) && ![libc::SIGKILL, libc::SIGSTOP].contains(signal)
        };
        for signal in signals.into_iter().filter(can_be_heard) {
            handle(signal)?;
            let out = Arc::clone(&out);
            let action = move |info: &libc::siginfo_t| {
                let mut record = [0; RECORD];
                record[..4].copy_from_slice(&info.si_signo.to_ne_bytes());
                record[4..8].copy_from_slice(&sender(info).to_ne_bytes());
                record[8..].copy_from_slice(&nanoseconds(monotonic()).to_ne_bytes());
                // If the pipe is full, the listener has thousands of signals to read.
                let _full = rustix::io::write(&*out, &record);
            };
            // SAFETY: the action makes two system calls and neither allocates, locks nor panics:
            // the lengths are constant.
            let action = unsafe { signal_hook_registry::register_sigaction(signal, action) }?;
            listeners(signal).fetch_add(1, Ordering::SeqCst);
            listener.lock().push((signal, action));
        }
        Ok(listener)
    }

    /// Listens to the signals that ask a command to end. A second one, some time after the first,
    /// ends the process even if it is stuck: it may be writing to a reader that does not read. The
    /// owner must leave the first one in the pipe.
    pub fn listen_for_end() -> io::Result<Arc<Self>> {
        let signals = Arc::new(Self::listen(ENDING)?);
        let seen = Arc::clone(&signals);
        std::thread::Builder::new().spawn(move || {
            while poll(&mut [PollFd::new(&*seen, PollFlags::IN)], None).is_err() {}
            std::thread::sleep(GRACE);
            seen.release();
        })?;
        Ok(signals)
    }

    /// The next received signal; never waits.
    #[must_use]
    pub fn next(&self) -> Option<ReceivedSignal> {
        let mut record = [0; RECORD];
        let count = rustix::io::read(&self.pipe, &mut record).ok()?;
        let (signal, rest) = record.split_first_chunk()?;
        let (sender, at) = rest.split_first_chunk()?;
        (count == RECORD).then_some(ReceivedSignal {
            signal: i32::from_ne_bytes(*signal),
            sender: u32::from_ne_bytes(*sender),
            at: Duration::from_nanos(u64::from_ne_bytes(at.try_into().ok()?)),
        })
    }

    /// Whether a signal was received that was not read yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        let now = rustix::event::Timespec::default();
        poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Stops listening.
    pub fn release(&self) {
        for (signal, action) in self.lock().drain(..) {
            unregister(action);
            listeners(signal).fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(i32, SigId)>> {
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> libc::c_int {
        self.pipe.as_raw_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.release();
    }
}

/// Ends the process by the default action of this signal, so that its parent sees the true status.
pub fn end_by(signal: i32) -> io::Result<()> {
    emulate_default_handler(signal)
}

/// Installs the handler of a signal: without a listener it does what the kernel would do.
fn handle(signal: i32) -> io::Result<()> {
    let mut handled = HANDLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *handled & crate::sys::bit(signal) == 0 {
        let action = move || {
            if listeners(signal).load(Ordering::SeqCst) == 0 {
                // An error means that the signal has no default action that matters.
                let _none = emulate_default_handler(signal);
            }
        };
        // SAFETY: the action reads a number and calls what is documented as safe in a handler.
        unsafe { signal_hook_registry::register(signal, action) }?;
        *handled |= crate::sys::bit(signal);
    }
    Ok(())
}

fn listeners(signal: i32) -> &'static AtomicU32 {
    let at = usize::try_from(signal).unwrap_or_default();
    LISTENERS.get(at).unwrap_or(&LISTENERS[0])
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The sender, where the kernel names one.
fn sender(info: &libc::siginfo_t) -> u32 {
    if ![libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code) {
        return 0;
    }
    // SAFETY: with these codes a process sent it, and the kernel filled in its pid.
    let pid = unsafe { info.si_pid() };
    u32::try_from(pid).unwrap_or_default()
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
    use std::os::unix::process::ExitStatusExt as _;

    use super::{Signals, by_name, monotonic, name_of};

    fn raise(signal: i32) {
        signal_hook::low_level::raise(signal).unwrap();
    }

    #[test]
    fn a_signal_is_read_with_its_sender_by_every_listener() {
        let signals = Signals::listen([libc::SIGUSR1, libc::SIGTERM, libc::SIGKILL, 99]).unwrap();
        let other = Signals::listen([libc::SIGTERM]).unwrap();
        assert_eq!(signals.next(), None);
        let before = monotonic();
        raise(libc::SIGTERM);
        let expected = (libc::SIGTERM, std::process::id());
        for listener in [&signals, &other] {
            let received = listener.next().unwrap();
            assert_eq!((received.signal, received.sender), expected);
            assert!((before..=monotonic()).contains(&received.at));
            assert_eq!(listener.next(), None);
        }
        drop(other);
        raise(libc::SIGTERM);
        assert_eq!(signals.next().unwrap().signal, libc::SIGTERM);
    }

    #[test]
    fn a_child_ends_by_a_signal_that_is_listened_to_here() {
        let _signals = Signals::listen(super::forwardable()).unwrap();
        let script = "kill -TERM $$; sleep 60";
        let mut shell = std::process::Command::new("sh");
        let status = shell.args(["-c", script]).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
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
