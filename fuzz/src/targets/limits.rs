//! `/proc/PID/limits`.

use fdguard_proc::limits::open_files;

pub(crate) fn run(bytes: &[u8]) {
    let limits = open_files(bytes);
    if !bytes.windows(14).any(|part| part == b"Max open files") {
        assert_eq!(limits, (None, None));
    }
}
