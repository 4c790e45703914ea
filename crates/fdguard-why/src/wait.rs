//! How long a thread has waited, and in which call: from what the kernel says of it. Both come from
//! its own account, so a thread that ran meanwhile never seems to have waited.

use std::time::Duration;

/// A thread that waits in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadWait {
    /// The call, as programmers name it.
    pub call: &'static str,
    /// Since it last ran.
    pub waited: Duration,
}

/// Shorter waits are ordinary.
const LEAST: Duration = Duration::from_secs(1);

/// Calls that wait, of x86-64. Whatever else takes long is not named.
const CALLS: [(u64, &str); 26] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (19, "readv"),
    (23, "select"),
    (34, "pause"),
    (35, "nanosleep"),
    (42, "connect"),
    (43, "accept"),
    (44, "send"),
    (45, "recv"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (72, "fcntl"),
    (73, "flock"),
    (74, "fsync"),
    (128, "rt_sigtimedwait"),
    (202, "futex"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (270, "pselect"),
    (271, "ppoll"),
    (281, "epoll_wait"),
    (288, "accept"),
];

impl ThreadWait {
    /// From the files `syscall` and `sched` of a thread, and `sched` of the thread that reads them,
    /// which runs now. `None` if it runs, waits for a moment only, or the kernel does not tell.
    #[must_use]
    pub fn read(syscall: &str, sched: &str, own_sched: &str) -> Option<Self> {
        let call = syscall.split_ascii_whitespace().next()?.parse().ok()?;
        let (_, call) = CALLS.iter().find(|(number, _)| *number == call)?;
        let waited = last_run(own_sched)?.checked_sub(last_run(sched)?)?;
        (waited >= LEAST).then_some(Self { call, waited })
    }

    /// `which has waited 310 s in recv`.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "which has waited {} s in {}",
            self.waited.as_secs(),
            self.call
        )
    }
}

/// When a thread last ran, by the clock of the scheduler: `se.exec_start : 4012964.733444`, in
/// milliseconds.
fn last_run(sched: &str) -> Option<Duration> {
    let line = sched
        .lines()
        .find_map(|line| line.strip_prefix("se.exec_start"))?;
    let (whole, part) = line.trim_start_matches([' ', ':']).split_once('.')?;
    let (whole, part): (u64, u64) = (whole.parse().ok()?, part.trim().parse().ok()?);
    Some(Duration::from_millis(whole) + Duration::from_nanos(part.min(999_999)))
}

/// The number that a thread has in its own namespace, which is the one that Python knows: the last
/// of the line `NSpid` of its status.
#[must_use]
pub fn inner_thread_number(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ThreadWait, inner_thread_number};

    const RECV: &str = "45 0x3 0x7f00 0x400 0x0 0x0 0x0 0x7ffd 0x7f11\n";

    fn sched(start: &str) -> String {
        format!("python (12, #threads: 2)\n-----\nse.exec_start          :   {start}\nse.x : 1.0\n")
    }

    #[test]
    fn a_thread_in_recv_has_waited_since_it_last_ran() {
        let wait = ThreadWait::read(RECV, &sched("1000.500000"), &sched("311000.750000"));
        let wait = wait.unwrap();
        assert_eq!(wait.waited, Duration::new(310, 250_000));
        assert_eq!(wait.text(), "which has waited 310 s in recv");
    }

    #[test]
    fn what_is_not_known_exactly_is_left_out() {
        let (then, now) = (sched("1000.5"), sched("9000.5"));
        for syscall in ["running\n", "-1 0x7ffd 0x7f11\n", "", "45x", "9999 0x0"] {
            assert_eq!(ThreadWait::read(syscall, &then, &now), None, "{syscall}");
        }
        assert_eq!(ThreadWait::read(RECV, "", &now), None);
        assert_eq!(ThreadWait::read(RECV, &sched("much"), &now), None);
        // It ran a moment ago, or after the reader was counted.
        assert_eq!(ThreadWait::read(RECV, &sched("8500.5"), &now), None);
        assert_eq!(ThreadWait::read(RECV, &now, &then), None);
    }

    #[test]
    fn the_number_of_a_thread_is_the_one_that_the_program_sees() {
        assert_eq!(inner_thread_number("Name:\tx\nNSpid:\t845\t17\n"), Some(17));
        assert_eq!(inner_thread_number("Name:\tx\nNSpid:\t845\n"), Some(845));
        assert_eq!(inner_thread_number("Name:\tx\n"), None);
    }
}
