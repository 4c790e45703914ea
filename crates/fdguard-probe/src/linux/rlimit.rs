//! Another process's descriptor limit by one system call, where that is allowed.
#![expect(
    unsafe_code,
    reason = "no safe wrapper reads another process's limit without setting it"
)]

use fdguard_core::Pid;
use fdguard_core::snapshot::Limits;

/// The limits of a process of the same user, or of any process with `CAP_SYS_RESOURCE`; `None` if
/// refused. Ten times cheaper than the text in `/proc/PID/limits`, which any user may read.
pub(super) fn read_limits(pid: Pid) -> Option<Limits> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the new limit is null, so nothing is set; the old one goes to a local struct that
    // outlives the call.
    let outcome =
        unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    let finite = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    (outcome == 0).then(|| Limits {
        soft: finite(limit.rlim_cur),
        hard: finite(limit.rlim_max),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn our_own_limits_are_what_the_text_says() {
        let text = std::fs::read("/proc/self/limits").unwrap();
        let (soft, hard) = fdguard_proc::limits::open_files(&text);
        let expected = super::Limits { soft, hard };
        assert_eq!(super::read_limits(std::process::id()), Some(expected));
    }

    #[test]
    fn a_process_that_is_not_there_has_none() {
        assert_eq!(super::read_limits(1 << 22), None);
    }
}
