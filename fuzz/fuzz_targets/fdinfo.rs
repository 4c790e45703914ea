#![no_main]
//! `/proc/PID/fdinfo/N`, with everything that is read from the part behind the head.

use fdguard_proc::fdinfo::Fdinfo;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let info = Fdinfo::parse(bytes);
    assert!(bytes.ends_with(info.rest));
    assert_eq!(
        info.mode().is_some() || info.flags.is_some(),
        info.flags.is_some()
    );
    assert!(info.epoll_targets().count() <= info.fields().count());
    assert!(info.locks().len() <= info.fields().count());
    assert!(info.watches() <= bytes.len() as u64);
    assert!(info.signals().is_sorted_by(|a, b| a < b));
    let timer = info.timerfd();
    assert!(timer.remaining.is_none_or(f64::is_finite));
    assert!(timer.interval.is_none_or(f64::is_finite));
    let _ = (
        info.eventfd(),
        info.pidfd(),
        info.tty_index(),
        info.io_uring(),
        info.cloexec(),
    );
});
