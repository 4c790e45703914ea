//! How long a thread has waited, and in which call. The caller has both from the kernel's account
//! of the thread, so one that ran meanwhile never seems to have waited.

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
    /// A wait in the call with this number. `None` if it is short, or the call none that waits.
    #[must_use]
    pub fn new(number: u64, waited: Duration) -> Option<Self> {
        let (_, call) = CALLS.iter().find(|(known, _)| *known == number)?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ThreadWait;

    #[test]
    fn a_thread_in_recv_has_waited_since_it_last_ran() {
        let waited = Duration::new(310, 250_000);
        let wait = ThreadWait::new(45, waited).unwrap();
        assert_eq!(wait.waited, waited);
        assert_eq!(wait.text(), "which has waited 310 s in recv");
    }

    #[test]
    fn short_waits_and_other_calls_are_left_out() {
        assert_eq!(ThreadWait::new(45, Duration::from_millis(999)), None);
        assert_eq!(ThreadWait::new(9999, Duration::from_secs(9)), None);
    }
}
