//! `/proc/sys/kernel/random/boot_id`, and the identity of a process that contains it.

use fdguard_proc::{BootId, ProcessId};

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(boot) = BootId::parse(bytes) {
        assert_eq!(boot.to_string().parse(), Ok(boot));
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if let Ok(id) = text.parse::<ProcessId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}
