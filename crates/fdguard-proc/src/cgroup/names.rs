//! The owner of a process by its cgroup path: a systemd unit, a container, a pod.
//!
//! The forms that are known are those of systemd, Docker, Podman, containerd, CRI-O, LXC,
//! systemd-nspawn and kubelet with both of its drivers (`cgroupfs` and `systemd`), in version 1 and
//! version 2 hierarchies.

use bstr::ByteSlice as _;

use super::paths;
use crate::ascii::lines;

/// What a cgroup path shows about the owner of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupNames {
    /// The innermost systemd unit: a service, or a scope that is not a container's.
    pub unit: Option<String>,
    /// The innermost container.
    pub container: Option<CgroupContainer>,
    /// The UID of the Kubernetes pod, with dashes where it is a UUID.
    pub pod: Option<String>,
}

/// A container as a cgroup path shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupContainer {
    /// 64 hexadecimal digits; the name itself for LXC and systemd-nspawn.
    pub id: String,
    /// The runtime, where the path shows it.
    pub runtime: Option<&'static str>,
}

impl CgroupNames {
    /// Reads the content of `/proc/PID/cgroup`. With version 1 each controller has a line: the
    /// first that shows something counts.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut names = Self::default();
        for path in paths(bytes) {
            let components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            let found = container_at(&components);
            if names.pod.is_none() {
                names.pod = components.iter().find_map(|one| pod_uid(one, path));
            }
            let inside = found.as_ref().map_or(0, |(at, _)| at + 1);
            if names.unit.is_none() {
                names.unit = unit_in(&components[inside..]);
            }
            if names.container.is_none() {
                names.container = found.map(|(_, container)| container);
            }
        }
        // Only version 1 has lines of controllers in which no manager has placed the process.
        if names.container.is_some() && is_version_1(bytes) {
            names.unit = None;
        }
        names
    }
}

fn is_version_1(bytes: &[u8]) -> bool {
    lines(bytes).any(|line| !line.is_empty() && !line.starts_with(b"0::"))
}

/// The innermost container and the position of its component.
fn container_at(components: &[&[u8]]) -> Option<(usize, CgroupContainer)> {
    let positions = (0..components.len()).rev();
    let mut found = positions.filter_map(|at| {
        let parent = at.checked_sub(1).map_or(&b""[..], |at| components[at]);
        let container = by_id(components[at], parent).or_else(|| by_name(components[at], parent));
        Some((at, container?))
    });
    found.next()
}

/// `docker-ID.scope`, `libpod-ID.scope`, `…:cri-containerd:ID`, or an id alone.
fn by_id(component: &[u8], parent: &[u8]) -> Option<CgroupContainer> {
    let (prefix, id) = id_of(component)?;
    // The monitor of a container runs beside it, not in it.
    if prefix.ends_with(b"conmon") {
        return None;
    }
    let prefix = prefix.rsplit(|byte| *byte == b':').next().unwrap_or(prefix);
    let runtime = match (prefix, parent) {
        (b"docker", _) | (b"", b"docker") => Some("docker"),
        (b"libpod", _) | (b"", b"libpod_parent") => Some("podman"),
        (b"cri-containerd" | b"nerdctl", _) => Some("containerd"),
        (b"crio", _) => Some("cri-o"),
        // The namespace of containerd is the parent group of what its own client starts.
        (b"", b"default" | b"moby" | b"k8s.io") => Some("containerd"),
        _ => None,
    };
    Some(CgroupContainer { id, runtime })
}

/// `lxc.payload.NAME`, `/lxc/NAME`, `machine.slice/machine-NAME.scope`.
fn by_name(component: &[u8], parent: &[u8]) -> Option<CgroupContainer> {
    let machine = || {
        let name = component.strip_prefix(b"machine-")?;
        name.strip_suffix(b".scope")
            .filter(|_| parent == b"machine.slice")
    };
    let lxc = component
        .strip_prefix(b"lxc.payload.")
        .or_else(|| (parent == b"lxc").then_some(component));
    let (name, runtime) = match lxc {
        Some(name) => (name, "lxc"),
        None => (machine()?, "systemd-nspawn"),
    };
    (!name.is_empty()).then(|| CgroupContainer {
        id: unescape(name),
        runtime: Some(runtime),
    })
}

/// What stands before 64 hexadecimal digits, without its separator, and the digits.
pub(super) fn id_of(component: &[u8]) -> Option<(&[u8], String)> {
    let stem = component.strip_suffix(b".scope").unwrap_or(component);
    let (prefix, id) = stem.split_at_checked(stem.len().checked_sub(64)?)?;
    let prefix = match prefix.split_last() {
        None => prefix,
        Some((b'-' | b':', prefix)) => prefix,
        Some(_) => return None,
    };
    let is_id = id.iter().all(u8::is_ascii_hexdigit);
    is_id.then(|| (prefix, id.to_str_lossy().into_owned()))
}

/// The UID in a component of kubelet: `kubepods-burstable-podUID.slice` with underscores for
/// dashes, or `podUID` below a group `kubepods`. A reader in a pod of its own, with a cgroup
/// namespace of its own, gets paths that begin with `/..` and lack the groups around them.
fn pod_uid(component: &[u8], path: &[u8]) -> Option<String> {
    let first = component.split(|byte| *byte == b':').next()?;
    let stem = first.strip_suffix(b".slice").unwrap_or(first);
    let is_kubelets = path.contains_str("kubepods") || path.starts_with(b"/../");
    let uid = match stem.rsplit_once_str("-pod") {
        Some((group, uid)) if group.contains_str("kubepods") => uid,
        _ => stem.strip_prefix(b"pod").filter(|_| is_kubelets)?,
    };
    let uid = uid.to_str().ok()?.replace('_', "-");
    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    // A UUID, or the hash of the manifest of a static pod.
    let is_uid = matches!(uid.len(), 32 | 36) && uid.bytes().all(is_digit);
    is_uid.then_some(uid)
}

/// The innermost service or scope. The manager of a user's services is in `init.scope` below its
/// service.
fn unit_in(components: &[&[u8]]) -> Option<String> {
    let is_unit = |name: &&&[u8]| {
        let is_named = name.ends_with(b".service") || name.ends_with(b".scope");
        is_named && id_of(name).is_none()
    };
    let mut units = components.iter().rev().filter(is_unit);
    let innermost = units.next()?;
    let manager = (*innermost == b"init.scope").then(|| units.next());
    let unit = manager.flatten().unwrap_or(innermost);
    Some(unit.to_str_lossy().into_owned())
}

/// systemd writes `\x2d` for a dash within a name.
fn unescape(name: &[u8]) -> String {
    name.to_str_lossy().replace("\\x2d", "-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::CgroupNames;

    const ID: &str = "3f4c1b2a9d8e7f60514233425160718293a4b5c6d7e8f90a1b2c3d4e5f607182";
    const POD: &str = "12345678-90ab-cdef-1234-567890abcdef";

    type Expected<'a> = (Option<&'a str>, Option<(&'a str, &'a str)>, Option<&'a str>);

    /// The unit, the container's runtime and id, the pod.
    fn check(path: &str, (unit, container, pod): Expected<'_>) {
        let names = CgroupNames::parse(path.as_bytes());
        assert_eq!(names.unit.as_deref(), unit, "unit of {path}");
        let found = names.container.as_ref();
        let found = found.map(|one| (one.runtime.unwrap_or("?"), one.id.as_str()));
        assert_eq!(found, container, "container of {path}");
        assert_eq!(names.pod.as_deref(), pod, "pod of {path}");
    }

    #[test]
    fn units_of_systemd() {
        for (path, unit) in [
            ("0::/system.slice/web.service\n", Some("web.service")),
            (
                "0::/system.slice/system-getty.slice/getty@tty1.service",
                Some("getty@tty1.service"),
            ),
            ("0::/system.slice/web.service/worker/0", Some("web.service")),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service",
                Some("sync.service"),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/init.scope",
                Some("user@1000.service"),
            ),
            ("0::/init.scope", Some("init.scope")),
            (
                "0::/user.slice/user-0.slice/session-1.scope",
                Some("session-1.scope"),
            ),
            (
                "12:pids:/system.slice/web.service\n1:name=systemd:/system.slice/web.service\n",
                Some("web.service"),
            ),
            ("0::/\n", None),
            ("0::/system.slice\n", None),
            ("", None),
        ] {
            check(path, (unit, None, None));
        }
    }

    #[test]
    fn containers_of_docker_podman_and_containerd() {
        for (path, runtime) in [
            (format!("0::/system.slice/docker-{ID}.scope\n"), "docker"),
            (
                format!("12:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"),
                "docker",
            ),
            (
                format!("0::/machine.slice/libpod-{ID}.scope/container\n"),
                "podman",
            ),
            (
                format!(
                    "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
                ),
                "podman",
            ),
            (format!("4:memory:/libpod_parent/libpod-{ID}"), "podman"),
            (format!("0::/system.slice/nerdctl-{ID}.scope"), "containerd"),
            (format!("0::/default/{ID}"), "containerd"),
            (format!("0::/{ID}"), "?"),
        ] {
            check(&path, (None, Some((runtime, ID)), None));
        }
    }

    #[test]
    fn a_service_inside_a_container_is_a_unit_and_one_around_it_is_not() {
        check(
            &format!("0::/system.slice/docker-{ID}.scope/system.slice/db.service"),
            (Some("db.service"), Some(("docker", ID)), None),
        );
        check(
            &format!("0::/system.slice/containerd.service/default/{ID}"),
            (None, Some(("containerd", ID)), None),
        );
    }

    #[test]
    fn containers_with_names() {
        check(
            "0::/lxc.payload.web/init.scope\n",
            (Some("init.scope"), Some(("lxc", "web")), None),
        );
        check("2:cpu:/lxc/web", (None, Some(("lxc", "web")), None));
        check(
            "0::/machine.slice/machine-my\\x2ddb.scope/payload",
            (None, Some(("systemd-nspawn", "my-db")), None),
        );
    }

    #[test]
    fn the_monitor_of_a_container_is_not_in_it() {
        for runtime in ["libpod", "crio"] {
            check(
                &format!("0::/machine.slice/{runtime}-conmon-{ID}.scope"),
                (None, None, None),
            );
        }
    }

    #[test]
    fn pods_of_both_drivers_and_every_runtime() {
        let systemd = POD.replace('-', "_");
        let static_pod = "b1946ac92492d2347c6235b4d2611184";
        for (path, runtime, pod) in [
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"
                ),
                "containerd",
                POD,
            ),
            (
                format!("0::/kubepods.slice/kubepods-pod{systemd}.slice/crio-{ID}.scope"),
                "cri-o",
                POD,
            ),
            (
                format!(
                    "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{systemd}.slice/docker-{ID}.scope"
                ),
                "docker",
                POD,
            ),
            (format!("0::/kubepods/besteffort/pod{POD}/{ID}"), "?", POD),
            (
                format!("11:memory:/kubepods/pod{POD}/{ID}\n10:cpu:/kubepods/pod{POD}/{ID}"),
                "?",
                POD,
            ),
            (
                format!("0::/kubepods/burstable/pod{static_pod}/{ID}"),
                "?",
                static_pod,
            ),
            (
                format!(
                    "0::/system.slice/containerd.service/kubepods-burstable-pod{systemd}.slice:cri-containerd:{ID}"
                ),
                "containerd",
                POD,
            ),
            (
                format!(
                    "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"
                ),
                "containerd",
                POD,
            ),
        ] {
            check(&path, (None, Some((runtime, ID)), Some(pod)));
        }
    }

    #[test]
    fn pods_as_another_pod_sees_them() {
        let systemd = POD.replace('-', "_");
        for (path, container, pod) in [
            // The same class of service as the reader, and another one.
            (
                format!("0::/../../pod{POD}/{ID}\n"),
                Some(("?", ID)),
                Some(POD),
            ),
            (
                format!("0::/../../../burstable/pod{POD}/{ID}\n"),
                Some(("?", ID)),
                Some(POD),
            ),
            (
                format!("0::/../../../pod{POD}/{ID}/worker\n"),
                Some(("?", ID)),
                Some(POD),
            ),
            (
                format!(
                    "0::/../../kubepods-besteffort-pod{systemd}.slice/cri-containerd-{ID}.scope\n"
                ),
                Some(("containerd", ID)),
                Some(POD),
            ),
            (
                format!("0::/../cri-containerd-{ID}.scope\n"),
                Some(("containerd", ID)),
                None,
            ),
            ("0::/../../podinfo/x\n".to_owned(), None, None),
            (format!("0::/pod{POD}/x\n"), None, None),
            ("0::/\n".to_owned(), None, None),
        ] {
            check(&path, (None, container, pod));
        }
        check(
            "0::/../../../../system.slice/kubelet.service\n",
            (Some("kubelet.service"), None, None),
        );
    }

    #[test]
    fn what_only_looks_like_a_pod_or_an_id_is_none() {
        let short = &ID[..63];
        check(&format!("0::/docker/{short}"), (None, None, None));
        check(&format!("0::/docker/x{ID}"), (None, None, None));
        check("0::/kubepods/podinfo/x", (None, None, None));
        check(
            &format!("0::/system.slice/pod{POD}.service"),
            (Some(&format!("pod{POD}.service")), None, None),
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            drop(CgroupNames::parse(&bytes));
        }

        #[test]
        fn any_path_of_components_is_survived(path in "(/[a-z0-9.:_-]{0,80}){0,6}") {
            drop(CgroupNames::parse(format!("0::{path}\n").as_bytes()));
        }
    }
}
