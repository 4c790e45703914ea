//! `/proc/PID/syscall`: a call has six arguments.

use fdguard_proc::syscall::ThreadCall;

pub(crate) fn run(bytes: &[u8]) {
    let words = bytes.split(u8::is_ascii_whitespace);
    let words = words.filter(|word| !word.is_empty()).count();
    match ThreadCall::parse(bytes) {
        Some(ThreadCall::Waiting { .. }) => assert!(words >= 7),
        Some(_) => assert!(words >= 1),
        None => {}
    }
}
