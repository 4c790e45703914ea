//! `/proc/PID/mountinfo`: one mount a line at most.

use fdguard_proc::mountinfo::{devices, hides_processes, mounts, unescaped};

pub(crate) fn run(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(mounts(bytes).count() <= lines);
    assert_eq!(mounts(bytes).count(), devices(bytes).count());
    for mount in mounts(bytes) {
        assert!(unescaped(mount.place).len() <= mount.place.len());
    }
    let _ = hides_processes(bytes, b"/proc");
}
