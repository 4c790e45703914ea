//! Whether a signal waits for a thread that ends its call.

use fdguard_proc::status::SignalMasks;

/// Whether a signal that is handled and not blocked is pending for a thread; also if that cannot be
/// read. One that is ignored is pending as well while the thread is traced, and ends no call.
pub(crate) fn has_pending_signal(pid: u32, tid: u32) -> bool {
    let status = std::fs::read(format!("/proc/{pid}/task/{tid}/status"));
    status
        .ok()
        .and_then(|status| is_pending(&status))
        .unwrap_or(true)
}

fn is_pending(status: &[u8]) -> Option<bool> {
    let masks = SignalMasks::parse(status)?;
    Some(masks.pending & !masks.blocked & masks.caught != 0)
}

#[cfg(test)]
mod tests {
    use super::is_pending;

    #[test]
    fn only_signals_that_are_handled_and_not_blocked_count() {
        let status = |own: u64, shared: u64, blocked: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n\
                 SigIgn:\t0000000000000008\nSigCgt:\t0000000000000005\n"
            )
        };
        for (own, shared, blocked, wanted) in [
            (0, 0, 0, false),
            (4, 0, 0, true),
            (0, 4, 4, false),
            (1, 4, 1, true),
            (8, 8, 0, false),
        ] {
            let status = status(own, shared, blocked);
            assert_eq!(is_pending(status.as_bytes()), Some(wanted));
        }
        assert_eq!(is_pending(b""), None);
    }
}
