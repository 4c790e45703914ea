//! `/proc/PID/cmdline` and `environ`: joined again, the arguments are the bytes.

use fdguard_proc::cmdline::arguments;
use fdguard_proc::environ::values;

pub(crate) fn run(bytes: &[u8]) {
    let words: Vec<_> = arguments(bytes).collect();
    let whole = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    assert_eq!(words.join(&0), whole);
    assert!(values(bytes, "PATH").count() <= words.len() + 1);
}
