//! `/proc/PID/cgroup`: a container id is a part of the input.

use fdguard_proc::cgroup::{CgroupNames, container_id, is_of_unit, of_controller, unified};

pub(crate) fn run(bytes: &[u8]) {
    assert!(unified(bytes).is_none_or(|path| path.len() + 3 <= bytes.len()));
    for controller in [&b"memory"[..], b"name=systemd", b""] {
        // A number and two colons come before the path.
        let path = of_controller(bytes, controller);
        assert!(path.is_none_or(|path| path.len() + 2 <= bytes.len()));
    }
    if let Some(id) = container_id(bytes) {
        // In characters: what is not text becomes the longer replacement character.
        assert!(!id.is_empty() && id.chars().count() <= bytes.len());
    }
    let names = CgroupNames::parse(bytes);
    assert_eq!(names.container.map(|one| one.id), container_id(bytes));
    if let Some(unit) = names.unit {
        // What is not text in a name is replaced, and no component any more.
        assert!(is_of_unit(bytes, &unit) || unit.contains('\u{fffd}'));
    }
    assert!(!is_of_unit(bytes, "a/b"));
}
