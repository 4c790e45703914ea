//! `/proc/PID/status`.

use fdguard_proc::status::{ProcStatus, SignalMasks, has_thread_features, number_of, resident};

pub(crate) fn run(bytes: &[u8]) {
    let status = ProcStatus::parse(bytes);
    assert!(status.name.len() <= bytes.len());
    assert!(status.unescaped_name().len() <= status.name.len());
    assert_eq!(
        resident(bytes),
        number_of(bytes, b"VmRSS").and_then(|kilobytes| kilobytes.checked_mul(1024))
    );
    for key in [&b"Tgid"[..], b"TracerPid", b"Seccomp", b"RssAnon"] {
        let digits = number_of(bytes, key).map(|number| number.to_string());
        assert!(digits.is_none_or(|digits| digits.len() + key.len() < bytes.len()));
    }
    assert!(SignalMasks::parse(bytes).is_none() || bytes.len() >= 28);
    assert!(!has_thread_features(bytes) || bytes.len() > 20);
    assert_eq!(status, ProcStatus::parse(bytes));
}
