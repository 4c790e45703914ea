//! `/proc/PID/status`.

use fdguard_proc::status::{ProcStatus, resident};

pub(crate) fn run(bytes: &[u8]) {
    let status = ProcStatus::parse(bytes);
    assert!(status.name.len() <= bytes.len());
    assert!(status.unescaped_name().len() <= status.name.len());
    assert!(resident(bytes).is_none_or(|size| size % 1024 == 0));
    assert_eq!(status, ProcStatus::parse(bytes));
}
