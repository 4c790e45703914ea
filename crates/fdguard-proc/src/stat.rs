//! `/proc/PID/stat`.

use bstr::ByteSlice as _;

use crate::ProcKey;
use crate::ascii::{decimal, words};

const PF_KTHREAD: u64 = 0x0020_0000;
const PF_EXITING: u64 = 0x0000_0004;

/// Clock ticks in a second: fixed by the kernel's interface on every supported platform.
pub const TICKS_PER_SECOND: u16 = 100;

/// The relevant fields of a stat line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat<'a> {
    /// Command name; may contain anything, including parentheses.
    pub comm: &'a [u8],
    /// State letter.
    pub state: u8,
    /// Parent.
    pub ppid: u32,
    /// Process group; `None` for a process that is almost gone.
    pub pgid: Option<u32>,
    /// Session; `None` for a process that is almost gone.
    pub session: Option<u32>,
    /// Whether this is a kernel thread.
    pub kernel_thread: bool,
    /// Whether it is exiting: set before the kernel closes its first descriptor.
    pub exiting: bool,
    /// Number of threads.
    pub threads: u64,
    /// Start in clock ticks after boot.
    pub start_ticks: u64,
}

impl<'a> ProcStat<'a> {
    /// Reads a stat line.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let open = bytes.find_byte(b'(')?;
        let close = bytes.rfind_byte(b')')?;
        let comm = bytes.get(open + 1..close)?;
        // Field 3 (the state) is the first after the name.
        let mut fields = words(bytes.get(close + 1..)?);
        let state = *fields.next()?.first()?;
        let ppid = u32::try_from(decimal(fields.next()?)?).ok()?;
        let mut number = || Some(decimal(fields.next()?).and_then(|n| u32::try_from(n).ok()));
        let (pgid, session) = (number()?, number()?);
        let flags = decimal(fields.nth(2)?)?;
        let threads = decimal(fields.nth(10)?)?;
        let start_ticks = decimal(fields.nth(1)?)?;
        Some(Self {
            comm,
            state,
            ppid,
            pgid,
            session,
            kernel_thread: flags & PF_KTHREAD != 0,
            exiting: flags & PF_EXITING != 0,
            threads,
            start_ticks,
        })
    }

    /// The identity of the process that this line is about.
    #[must_use]
    pub fn key(&self, pid: u32) -> ProcKey {
        ProcKey {
            pid,
            start_ticks: self.start_ticks,
        }
    }

    /// Whether its table is being, or may already have been, torn down.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.exiting || self.is_zombie()
    }

    /// Whether its first thread exited and waits to be reaped.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether the whole process has ended: the first thread may exit before the others.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_zombie() && self.threads <= 1
    }

    /// Whether it is stopped by a signal or a tracer.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// Processor time of children that ended and were waited for, with theirs, in clock ticks: fields
/// 16 and 17.
#[must_use]
pub fn children_ticks(bytes: &[u8]) -> Option<u64> {
    let close = bytes.rfind_byte(b')')?;
    let mut fields = words(bytes.get(close + 1..)?);
    let user = decimal(fields.nth(13)?)?;
    Some(user.saturating_add(decimal(fields.next()?)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ProcStat, children_ticks};

    #[test]
    fn time_of_children_is_that_of_the_user_and_of_the_system() {
        let line = b"2038 (a) b) S 77 2038 2034 34816 2038 4194304 515 0 0 0 1 2 30 400 20 0 3 0 9";
        assert_eq!(children_ticks(line), Some(430));
        for part in [&b""[..], b"2038 (a", b"2038 (a) S 77 2038 2034 34816"] {
            assert_eq!(children_ticks(part), None);
        }
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"2038 (a) b (c) S 77 2038 2034 34816 2038 4194304 515 0 0 0 1 0 0 0 20 0 3 0 123456 9 1 18446744073709551615";
        let stat = ProcStat::parse(line).unwrap();
        assert_eq!(stat.comm, b"a) b (c");
        assert_eq!(
            (stat.state, stat.ppid, stat.threads, stat.start_ticks),
            (b'S', 77, 3, 123_456)
        );
        assert_eq!((stat.pgid, stat.session), (Some(2038), Some(2034)));
        assert!(!stat.kernel_thread && !stat.is_zombie() && !stat.is_stopped());
        for part in [&b""[..], b"2038 (a", b"2038 (a) S 1", b"2038 a) ( S 1"] {
            assert_eq!(ProcStat::parse(part), None);
        }
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let state = |letter: &str, threads: u32| {
            let line =
                format!("9 (a) b) {letter} 1 9 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0");
            let stat = ProcStat::parse(line.as_bytes()).unwrap();
            (stat.is_zombie(), stat.has_ended(), stat.is_stopped())
        };
        assert_eq!(state("Z", 1), (true, true, false));
        assert_eq!(state("X", 0), (true, true, false));
        assert_eq!(state("Z", 2), (true, false, false));
        assert_eq!(state("S", 1), (false, false, false));
        assert_eq!(state("t", 1), (false, false, true));
    }

    #[test]
    fn kernel_threads_and_zombies_are_told() {
        let kernel = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0";
        assert!(ProcStat::parse(kernel).unwrap().kernel_thread);
        let zombie = b"9 (x) Z 1 9 9 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0";
        assert!(ProcStat::parse(zombie).unwrap().is_zombie());
        let gone = b"9 (x) X 0 -1 -1 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 0 0 99 0 0";
        let gone = ProcStat::parse(gone).unwrap();
        assert_eq!((gone.pgid, gone.session), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ticks = children_ticks(&bytes);
            let _ = ProcStat::parse(&bytes);
        }
    }
}
