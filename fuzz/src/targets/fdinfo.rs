//! `/proc/PID/fdinfo/N`, with everything that is read from the part behind the head.

use fdguard_proc::fdinfo::Fdinfo;

pub(crate) fn run(bytes: &[u8]) {
    let info = Fdinfo::parse(bytes);
    assert!(bytes.ends_with(info.rest));
    assert!(info.epoll_targets().count() <= info.fields().count());
    assert!(info.locks().count() <= info.fields().count());
    assert!(info.watches() <= bytes.len() as u64);
    assert!(info.signals().is_sorted_by(|a, b| a < b));
    assert!(info.watched().count() as u64 <= info.watches());
    let _ = (
        info.pidfd(),
        info.tty_index(),
        info.cloexec(),
        info.is_kept(),
    );
    let _interface = info.interface();
}
