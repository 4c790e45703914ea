//! `/proc/PID/sched`: a name may hold anything, so the line may be there twice.

use fdguard_proc::sched::last_run;

pub(crate) fn run(bytes: &[u8]) {
    if let Some(time) = last_run(bytes) {
        let (whole, part) = (time.as_millis(), time.subsec_nanos() % 1_000_000);
        // Leading zeros, which the kernel does not write, are read as well.
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains(&format!("{whole}")) && text.contains(&format!("{part:06}")));
    }
}
