//! `/proc/PID/cgroup`: the cgroups of a process, and the container that they show.

use bstr::ByteSlice as _;

use crate::ascii::lines;

mod names;

pub use names::{CgroupContainer, CgroupNames};

/// The path in the unified hierarchy (version 2).
#[must_use]
pub fn unified(bytes: &[u8]) -> Option<&[u8]> {
    lines(bytes).find_map(|line| line.strip_prefix(b"0::"))
}

/// The path in the hierarchy of a controller (version 1).
#[must_use]
pub fn of_controller<'a>(bytes: &'a [u8], controller: &[u8]) -> Option<&'a [u8]> {
    lines(bytes).find_map(|line| {
        let mut fields = line.splitn_str(3, b":").skip(1);
        let is_there = fields.next()?.split_str(b",").any(|one| one == controller);
        fields.next().filter(|_| is_there)
    })
}

/// The container id: 64 hexadecimal digits in a cgroup path, bare or between a runtime's prefix and
/// suffix; the name for LXC and systemd-nspawn.
#[must_use]
pub fn container_id(bytes: &[u8]) -> Option<String> {
    CgroupNames::parse(bytes).container.map(|one| one.id)
}

/// The paths of all hierarchies.
fn paths(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(bytes).filter_map(|line| line.splitn_str(3, b":").nth(2))
}

/// Whether a cgroup path shows that the process belongs to a systemd unit. A name without a suffix
/// is a service.
#[must_use]
pub fn is_of_unit(bytes: &[u8], unit: &str) -> bool {
    const SUFFIXES: [&str; 4] = [".service", ".scope", ".slice", ".socket"];
    let has_suffix = SUFFIXES.iter().any(|suffix| unit.ends_with(suffix));
    let service = format!("{unit}.service");
    let wanted = if has_suffix { unit } else { &*service };
    let mut components = paths(bytes).flat_map(|path| path.split(|byte| *byte == b'/'));
    components.any(|component| component == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{container_id, is_of_unit, of_controller, unified};

    const ID: &str = "3f4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";

    #[test]
    fn ids_of_the_usual_runtimes() {
        for path in [
            format!("0::/system.slice/docker-{ID}.scope\n"),
            format!("12:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"),
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{ID}.scope\n"
            ),
            format!("0::/kubepods/besteffort/pod1/{ID}\n"),
            format!("0::/machine.slice/libpod-{ID}.scope/container\n"),
            format!("0::/user.slice/user-1000.slice/crio-{ID}.scope\n"),
        ] {
            assert_eq!(container_id(path.as_bytes()).as_deref(), Some(ID), "{path}");
        }
        assert_eq!(
            container_id(b"0::/lxc.payload.web/init.scope\n").as_deref(),
            Some("web")
        );
    }

    #[test]
    fn a_unit_is_a_part_of_the_path() {
        let web = b"0::/system.slice/web.service/worker\n";
        for unit in ["web", "web.service", "system.slice"] {
            assert!(is_of_unit(web, unit), "{unit}");
        }
        for other in ["we", "worker", "web.scope", ""] {
            assert!(!is_of_unit(web, other), "{other}");
        }
    }

    #[test]
    fn outside_containers_there_is_none() {
        assert_eq!(
            container_id(b"0::/user.slice/user-0.slice/session-1.scope\n"),
            None
        );
        assert_eq!(container_id(b"0::/\n"), None);
    }

    #[test]
    fn the_path_of_a_controller_is_that_of_its_hierarchy() {
        let text = b"5:cpu,cpuacct:/a\n4:memory:/b:c\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(of_controller(text, b"memory"), Some(&b"/b:c"[..]));
        assert_eq!(of_controller(text, b"cpuacct"), Some(&b"/a"[..]));
        assert_eq!(of_controller(text, b"blkio"), None);
    }

    #[test]
    fn the_unified_path_is_that_of_hierarchy_0() {
        assert_eq!(unified(b"4:memory:/x\n0::/a:b c\n"), Some(&b"/a:b c"[..]));
        assert_eq!(unified(b"10::/x\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            drop((container_id(&bytes), unified(&bytes), is_of_unit(&bytes, "a")));
            let _path = of_controller(&bytes, b"memory");
        }
    }
}
