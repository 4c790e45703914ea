//! `/proc/PID/comm`.

use fdguard_proc::comm::name;

pub(crate) fn run(bytes: &[u8]) {
    assert!(bytes.starts_with(name(bytes)) && bytes.len() - name(bytes).len() <= 1);
}
