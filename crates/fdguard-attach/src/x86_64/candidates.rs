//! Which thread to borrow: chosen before any is stopped, by the system call that it waits in.

use std::fs;
use std::io;

use fdguard_proc::stat::ProcStat;
use fdguard_proc::syscall::ThreadCall;

/// A thread and how well it can be borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) fitness: Fitness,
    pub(crate) tid: u32,
}

/// What an interruption means for a thread; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// The kernel restarts its call without a trace.
    Restarts,
    /// Its call can be made again without a difference, or it waits for data.
    Repeats,
    /// It does not wait.
    Runs,
    /// Its call can be made again, but its timeout begins again.
    StartsOver,
}

/// The threads of a process that can be borrowed, the best first.
pub(crate) fn candidates(pid: u32) -> io::Result<Vec<Candidate>> {
    let fit = |tid| fitness_of(pid, tid).map(|fitness| Candidate { fitness, tid });
    let mut found: Vec<_> = threads(pid)?.into_iter().filter_map(fit).collect();
    found.sort_unstable();
    Ok(found)
}

/// The numbers of a process's threads.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

fn fitness_of(pid: u32, tid: u32) -> Option<Fitness> {
    let directory = format!("/proc/{pid}/task/{tid}");
    let stat = fs::read(format!("{directory}/stat")).ok()?;
    let stat = ProcStat::parse(&stat)?;
    match stat.state {
        b'R' => Some(Fitness::Runs),
        b'S' => fitness(&fs::read(format!("{directory}/syscall")).ok()?),
        // D does not stop soon; T, t, Z and X must be left alone.
        _ => None,
    }
}

/// Judges a line of `/proc/PID/task/TID/syscall`.
fn fitness(line: &[u8]) -> Option<Fitness> {
    match ThreadCall::parse(line)? {
        ThreadCall::Running => Some(Fitness::Runs),
        ThreadCall::Outside => None,
        ThreadCall::Waiting { number, arguments } => waiting(number, arguments),
    }
}

/// Judges a call that waits. What is not listed is not borrowed: a write may be partly done.
fn waiting(number: u64, arguments: [u64; 6]) -> Option<Fitness> {
    const LOCKS: [u64; 2] = [7, 38]; // F_SETLKW, F_OFD_SETLKW
    const MSG_WAITALL: u64 = 0x100;
    let [_, second, third, fourth, ..] = arguments;
    let limited = |is_limited: bool| {
        if is_limited {
            Fitness::StartsOver
        } else {
            Fitness::Repeats
        }
    };
    match number {
        // poll, select, nanosleep, pause, wait4, msgrcv, flock, rt_sigsuspend, futex,
        // restart_syscall, clock_nanosleep, waitid, pselect6, ppoll, mq_timedreceive, futex_waitv
        7 | 23 | 34 | 35 | 61 | 70 | 73 | 130 | 202 | 219 | 230 | 243 | 247 | 270 | 271 | 449 => {
            Some(Fitness::Restarts)
        }
        72 if LOCKS.contains(&second) => Some(Fitness::Restarts),
        // read, readv, accept, accept4, recvmmsg: a socket may have a time limit
        0 | 19 | 43 | 288 => Some(Fitness::Repeats),
        45 if fourth & MSG_WAITALL == 0 => Some(Fitness::Repeats),
        47 if third & MSG_WAITALL == 0 => Some(Fitness::Repeats),
        65 => Some(Fitness::Repeats),
        // epoll_wait, epoll_pwait: milliseconds, negative for none
        232 | 281 => Some(limited(fourth & 0x8000_0000 == 0)),
        // epoll_pwait2, semtimedop: a pointer
        220 | 441 => Some(limited(fourth != 0)),
        // rt_sigtimedwait
        128 => Some(limited(third != 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Fitness, fitness};

    #[test]
    fn lines_of_a_real_kernel() {
        let cases: [(&[u8], Option<Fitness>); 7] = [
            (b"running\n", Some(Fitness::Runs)),
            (
                b"7 0x7ffc 0x1 0xffffffff 0x0 0x0 0x0 0x7ffc10 0x7f20\n",
                Some(Fitness::Restarts),
            ),
            (
                b"232 0x5 0x7ffc 0x20 0xffffffffffffffff 0x0 0x8 0x7ffc10 0x7f20\n",
                Some(Fitness::Repeats),
            ),
            (
                b"232 0x5 0x7ffc 0x20 0x64 0x0 0x8 0x7ffc10 0x7f20\n",
                Some(Fitness::StartsOver),
            ),
            (b"1 0x5 0x7ffc 0x20 0x64 0x0 0x8 0x7ffc10 0x7f20\n", None),
            (b"45 0x5 0x7ffc 0x20 0x100 0x0 0x8 0x7ffc10 0x7f20\n", None),
            (b"-1 0x7ffc 0x7f20\n", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(fitness(line), wanted, "{}", String::from_utf8_lossy(line));
        }
    }
}
