//! What a thread continues with after it was borrowed: an interrupted system call is made again.

use crate::x86_64::ptrace::Registers;

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;
const EINTR: i64 = -4;
const RESTART_SYSCALL: u64 = 219;
/// The size of the instruction `syscall`.
const INSTRUCTION: u64 = 2;

/// How a stopped thread was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// It was in its own code.
    None,
    /// It was in a system call that the kernel restarts by itself.
    Restarts,
    /// The system call has returned EINTR, and would not have without the stop or a signal.
    Eintr,
    /// A system call has ended.
    Ended,
}

impl Interruption {
    /// Judges the registers of a stop.
    pub(crate) fn judge(registers: &Registers) -> Self {
        if registers.orig_rax.cast_signed() < 0 {
            return Self::None;
        }
        match registers.rax.cast_signed() {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK => Self::Restarts,
            EINTR if may_repeat(registers.orig_rax) => Self::Eintr,
            _ => Self::Ended,
        }
    }

    /// The registers with which code in the process continues. `signal` says whether a signal that
    /// is not blocked is pending: then EINTR is the signal's.
    pub(crate) fn continued(self, registers: &Registers, signal: bool) -> Registers {
        let again = match (self, registers.rax.cast_signed()) {
            (Self::Restarts, ERESTART_RESTARTBLOCK) => Some(RESTART_SYSCALL),
            (Self::Restarts, _) => Some(registers.orig_rax),
            (Self::Eintr, _) if !signal => Some(registers.orig_rax),
            _ => None,
        };
        let plain = Registers {
            orig_rax: u64::MAX,
            ..*registers
        };
        again.map_or(plain, |number| Registers {
            rax: number,
            rip: registers.rip.wrapping_sub(INSTRUCTION),
            ..plain
        })
    }

    /// The registers to set in a stop. The kernel itself restarts the call, unless a signal has a
    /// handler, also one that arrives while the thread waits for a processor: a program that waits
    /// for its flag to be set by the handler must see EINTR.
    pub(crate) fn at_stop(self, registers: &Registers) -> Registers {
        match self {
            Self::Eintr => Registers {
                rax: ERESTARTNOHAND.cast_unsigned(),
                ..*registers
            },
            _ => *registers,
        }
    }
}

/// Calls that can be made again after EINTR, because nothing was done: epoll_wait and its kin,
/// receiving with a time limit, semaphores, sigtimedwait, io_getevents, io_uring_enter.
fn may_repeat(number: u64) -> bool {
    const READS: [u64; 7] = [0, 19, 43, 45, 47, 288, 299];
    const WAITS: [u64; 10] = [65, 128, 208, 220, 232, 281, 333, 416, 426, 441];
    READS.contains(&number) || WAITS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::Interruption;
    use crate::x86_64::ptrace::Registers;

    fn stopped(number: i64, result: i64) -> Registers {
        Registers {
            orig_rax: number.cast_unsigned(),
            rax: result.cast_unsigned(),
            rip: 102,
            ..crate::x86_64::ptrace::zeroed()
        }
    }

    #[test]
    fn the_restart_table() {
        let cases = [
            (0, -512, 0),
            (23, -514, 23),
            (7, -516, 219),
            (232, -4, 232),
            (45, -4, 45),
        ];
        for (number, result, again) in cases {
            let registers = stopped(number, result);
            let judged = Interruption::judge(&registers);
            let continued = judged.continued(&registers, false);
            assert_eq!((continued.rip, continued.rax), (100, again), "{number}");
            let stopped = judged.at_stop(&registers);
            let wanted = if result == -4 { -514 } else { result };
            assert_eq!(stopped.rax.cast_signed(), wanted, "{number}");
            assert_eq!((stopped.rip, stopped.orig_rax), (102, registers.orig_rax));
        }
    }

    #[test]
    fn a_signal_or_an_ended_call_is_left_alone() {
        for (number, result, signal) in [(232, -4, true), (3, -4, false), (1, 4096, false)] {
            let registers = stopped(number, result);
            let judged = Interruption::judge(&registers);
            assert_eq!(judged == Interruption::Eintr, signal);
            assert_eq!(judged.continued(&registers, signal).rip, 102);
        }
        let registers = stopped(-1, -512);
        assert_eq!(Interruption::judge(&registers), Interruption::None);
    }
}
