//! Programs in containers of podman, whose files are nothing but the victim and its libraries.

use std::path::Path;
use std::process::{Command, Stdio};

use fdguard_attach::{Refusal, Target};

use super::refusals::small_root;
use super::victim::{Borrowed, library, wait_until_it_waits};

/// A container without network and with limits that this machine allows.
fn container(root: &Path, name: &str) -> Command {
    let mut command = Command::new("podman");
    command
        .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
        .args(["run", "--rm", "-i", "--network", "none", "--name", name])
        .args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ]);
    if name.ends_with("open") {
        command.args(["--security-opt", "seccomp=unconfined"]);
    }
    command.arg("--rootfs").arg(root).arg("/borrowed-c");
    command
}

fn pid_of(name: &str) -> u32 {
    let mut command = Command::new("podman");
    let output = command.args(["inspect", "--format", "{{.State.Pid}}", name]);
    let output = output.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn a_container_is_entered_unless_it_has_a_filter() {
    let dir = tempfile::tempdir().unwrap();
    small_root(dir.path());
    let name = format!("fdguard-test-{}", std::process::id());
    let mut probe = container(dir.path(), &name);
    let probe = probe.arg("none").stdin(Stdio::null()).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return testkit::skip("there is no podman, or it cannot start containers here");
    }
    let filtered = format!("{name}-filtered");
    let victim = Borrowed::of(container(dir.path(), &filtered).arg("read"));
    let refusal = Target::examine(pid_of(&filtered)).unwrap_err();
    assert!(matches!(refusal, Refusal::Seccomp { .. }), "{refusal}");
    assert_eq!(victim.finish().outcome(), (3, 0));
    let open = format!("{name}-open");
    let victim = Borrowed::of(container(dir.path(), &open).arg("read"));
    let pid = pid_of(&open);
    wait_until_it_waits(pid);
    let target = Target::examine(pid).unwrap();
    for calls in 1..=3 {
        let call = target.call(&library(), c"count", b"").unwrap();
        assert_eq!(call.returned, calls);
    }
    assert_eq!(victim.finish().outcome(), (3, 0));
}
