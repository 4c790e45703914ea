//! `--unit`, `--container` and `--pod` select real processes by their cgroup.

use std::process::Command;

use serde_json::Value;
use testkit::{TestCgroup, Victim, is_root, skip};

use super::{CommandOutput, fdguard, run};

/// 64 digits that begin with the number of this process.
fn id() -> String {
    format!("{:012x}{:052x}", std::process::id(), 0)
}

/// A victim in a cgroup with this path. Drop the victim first.
fn victim_in(path: &str) -> Option<(Victim, TestCgroup)> {
    let group = TestCgroup::create(path).filter(|_| is_root());
    if group.is_none() {
        skip("needs root and a cgroup that can be created");
    }
    let group = group?;
    let victim = Victim::start("leaker");
    group.add(victim.pid());
    Some((victim, group))
}

/// The one process that a document is about.
fn only_process(output: &CommandOutput) -> Value {
    assert!(matches!(output.code, 0 | 1), "{}", output.stderr);
    let line = output.text().lines().last().unwrap();
    let document: Value = serde_json::from_str(line).unwrap_or_else(|_| output.json());
    let process = match document["snapshots"].as_array() {
        Some(members) => {
            assert_eq!(members.len(), 1, "{document}");
            members[0]["process"].clone()
        }
        None => document["process"].clone(),
    };
    process["pid"].clone()
}

const WATCH: [&str; 6] = ["watch", "--for", "500ms", "--every", "50ms", "--json"];
const SNAP: [&str; 2] = ["snap", "--json"];

#[test]
fn a_unit_selects_its_processes_for_snap_and_watch() {
    let unit = format!("fdguard-select-{}.service", std::process::id());
    let Some((victim, _group)) = victim_in(&format!("system.slice/{unit}")) else {
        return;
    };
    let short = unit.trim_end_matches(".service");
    for name in [unit.as_str(), short] {
        for command in [&SNAP[..], &WATCH] {
            let output = run([command, &["--unit", name]].concat());
            assert_eq!(only_process(&output), victim.pid(), "{name}: {command:?}");
        }
    }
    let nobody = run(["snap", "--json", "--unit", "fdguard-no-such.service"]);
    assert_eq!((nobody.code, nobody.text()), (3, ""));
    victim.finish();
}

#[test]
fn a_container_selects_its_processes_for_snap_and_watch() {
    let id = id();
    let Some((victim, _group)) = victim_in(&format!("docker/{id}")) else {
        return;
    };
    for name in [id.as_str(), &id[..12]] {
        for command in [&SNAP[..], &WATCH] {
            let output = run([command, &["--container", name]].concat());
            assert_eq!(only_process(&output), victim.pid(), "{name}: {command:?}");
        }
    }
    victim.finish();
}

#[test]
fn a_pod_selects_its_processes_for_snap_and_watch() {
    let uid = format!("{:08x}-90ab-cdef-1234-567890abcdef", std::process::id());
    let path = format!("kubepods/burstable/pod{uid}/{}", id());
    let Some((victim, _group)) = victim_in(&path) else {
        return;
    };
    // Kubelet's directory of logs has the name; it is seen by this command only.
    let script = format!(
        "mount -t tmpfs tmpfs /var/log && mkdir -p /var/log/pods/shop_cart-0_{uid} && exec \"$@\""
    );
    let within = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(fdguard().get_program()).args(args);
        CommandOutput::of(command.output().unwrap())
    };
    for command in [&SNAP[..], &WATCH] {
        let output = within(&[command, &["--pod", "shop/cart-0"]].concat());
        assert_eq!(only_process(&output), victim.pid(), "{command:?}");
    }
    let other = within(&["snap", "--json", "--pod", "shop/cart-1"]);
    assert_eq!((other.code, other.text()), (3, ""));
    victim.finish();
}
