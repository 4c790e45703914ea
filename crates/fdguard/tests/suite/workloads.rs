//! `--unit`, `--container` and `--pod` select real processes by their cgroup.

use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{TestCgroup, Victim, is_root, skip};

use super::watching::Watching;
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

/// A victim in a pod of kubelet, and a command that sees the pod's name: `shop/cart-0`.
fn pod_with_victim() -> Option<(Victim, TestCgroup, impl Fn(&[&str]) -> CommandOutput)> {
    let uid = format!("{:08x}-90ab-cdef-1234-567890abcdef", std::process::id());
    let path = format!("kubepods/burstable/pod{uid}/{}", id());
    let (victim, group) = victim_in(&path)?;
    // Kubelet's directory of logs has the name; it is seen by this command only.
    let script = format!(
        "mount -t tmpfs tmpfs /var/log && mkdir -p /var/log/pods/shop_cart-0_{uid} && exec \"$@\""
    );
    let within = move |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(fdguard().get_program()).args(args);
        CommandOutput::of(command.output().unwrap())
    };
    Some((victim, group, within))
}

#[test]
fn a_pod_selects_its_processes_for_snap_and_watch() {
    let Some((victim, _group, within)) = pod_with_victim() else {
        return;
    };
    for command in [&SNAP[..], &WATCH] {
        let output = within(&[command, &["--pod", "shop/cart-0"]].concat());
        assert_eq!(only_process(&output), victim.pid(), "{command:?}");
    }
    let other = within(&["snap", "--json", "--pod", "shop/cart-1"]);
    assert_eq!((other.code, other.text()), (3, ""));
    victim.finish();
}

#[test]
fn a_pod_selects_its_processes_for_top_and_trace() {
    let Some((victim, _group, within)) = pod_with_victim() else {
        return;
    };
    let pod = ["--pod", "shop/cart-0"];
    let document = within(&[&["top", "--json"], &pod[..]].concat()).json();
    let pids = document["processes"].as_array().unwrap().iter();
    let pids: Vec<&Value> = pids.map(|row| &row["pid"]).collect();
    assert_eq!(pids, [&Value::from(victim.pid())]);
    let traced = within(&[&["trace", "--for", "300ms", "--json"], &pod[..]].concat());
    assert!(matches!(traced.code, 0 | 1), "{}", traced.stderr);
    let traced: Value = serde_json::from_str(traced.text()).unwrap();
    assert_eq!(traced["processes"][0]["pid"], victim.pid(), "{traced}");
    for command in [&["top", "--once"][..], &["trace", "--for", "300ms"]] {
        let other = within(&[command, &["--pod", "shop/cart-1"]].concat());
        assert_eq!((other.code, other.text()), (3, ""), "{command:?}");
    }
    victim.finish();
}

#[test]
fn a_unit_and_a_container_select_the_process_for_doctor() {
    for name in ["unit", "container"] {
        let unit = format!("fdguard-doctor-{}.service", std::process::id());
        let (path, select) = match name {
            "unit" => (format!("system.slice/{unit}"), unit),
            _ => (format!("docker/{}", id()), id()),
        };
        let Some((victim, _group)) = victim_in(&path) else {
            return;
        };
        let option = format!("--{name}");
        let output = run(["doctor", "--for", "300ms", "--json", &option, &select]);
        assert_eq!(only_process(&output), victim.pid(), "{name}");
        victim.finish();
    }
}

#[test]
fn the_text_of_a_watch_names_the_workload() {
    let Some((unit, victim, _group)) = unit_with_victim("label") else {
        return;
    };
    let watch = [
        "watch", "--for", "300ms", "--every", "50ms", "--unit", &unit,
    ];
    let output = run(watch);
    let expected = format!("leaker (pid {}, {unit})", victim.pid());
    assert!(output.text().contains(&expected), "{}", output.text());
    let pid = victim.pid().to_string();
    let by_pid = run([&watch[..5], &[&pid]].concat());
    assert!(by_pid.text().contains(&expected), "{}", by_pid.text());
    victim.finish();
}

/// A unit of this test with a victim in it.
fn unit_with_victim(name: &str) -> Option<(String, Victim, TestCgroup)> {
    let unit = format!("fdguard-{name}-{}.service", std::process::id());
    let (victim, group) = victim_in(&format!("system.slice/{unit}"))?;
    Some((unit, victim, group))
}

#[test]
fn a_unit_selects_its_processes_for_top() {
    let Some((unit, victim, _group)) = unit_with_victim("top") else {
        return;
    };
    let document = run(["top", "--json", "--unit", &unit]).json();
    let pids = document["processes"].as_array().unwrap().iter();
    let pids: Vec<&Value> = pids.map(|row| &row["pid"]).collect();
    assert_eq!(pids, [&Value::from(victim.pid())]);
    let table = run(["top", "--once", "--unit", &unit]);
    assert!(table.text().contains(&unit), "{}", table.text());
    let nobody = run(["top", "--once", "--unit", "fdguard-no-such.service"]);
    assert_eq!((nobody.code, nobody.text()), (3, ""));
    victim.finish();
}

#[test]
fn a_unit_selects_the_process_for_explain() {
    let Some((unit, victim, _group)) = unit_with_victim("explain") else {
        return;
    };
    let document = run(["explain", "/dev/null", "--json", "--unit", &unit]).json();
    assert_eq!(document["held_by"]["process"]["pid"], victim.pid());
    victim.finish();
}

#[test]
fn a_unit_selects_the_server_for_check() {
    let Some((unit, victim, _group)) = unit_with_victim("check") else {
        return;
    };
    let exercise = ["check", "--exercise", "true", "--cycles", "10"];
    let output = run([&exercise[..], &["--warmup", "0", "--json", "--unit", &unit]].concat());
    assert_eq!(only_process(&output), victim.pid());
    let idle = run(["check", "--unit", &unit]);
    assert_eq!(idle.code, 2, "{}", idle.stderr);
    victim.finish();
}

#[test]
fn a_unit_selects_the_process_for_why() {
    let unit = format!("fdguard-why-{}.service", std::process::id());
    let group = TestCgroup::create(&format!("system.slice/{unit}")).filter(|_| is_root());
    let Some(group) = group else {
        return skip("needs root and a cgroup that can be created");
    };
    let program = "held = open('/dev/null')\nprint('ready', flush=True)\ninput()";
    let mut python = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(python.stdout.as_mut().unwrap(), &mut line).unwrap();
    group.add(python.id());
    let answer = run(["why", "--json", "--unit", &unit]).json();
    assert_eq!(answer["processes"][0]["pid"], python.id());
    drop(python.stdin.take());
    python.wait().unwrap();
}

#[test]
fn a_command_for_one_process_names_the_candidates() {
    let Some((unit, victim, group)) = unit_with_victim("several") else {
        return;
    };
    let other = Victim::start("leaker");
    group.add(other.pid());
    let check = ["check", "--exercise", "true"];
    for command in [&["why"][..], &["explain", "/dev/null"], &check] {
        let refused = run([command, &["--unit", &unit]].concat());
        assert_eq!((refused.code, refused.text()), (2, ""), "{command:?}");
        for pid in [victim.pid(), other.pid()] {
            let candidate = format!("{pid} (leaker)");
            assert!(refused.stderr.contains(&candidate), "{}", refused.stderr);
        }
    }
    other.finish();
    victim.finish();
}

#[test]
fn a_watch_of_a_unit_goes_on_after_its_restart() {
    let Some((unit, first, group)) = unit_with_victim("restart") else {
        return;
    };
    let args = ["--unit", &unit, "--json", "--samples"];
    let mut watching = Watching::start(args);
    watching.idle(20);
    first.finish();
    let second = Victim::start("leaker");
    group.add(second.pid());
    watching.wait_for(&format!("\"pid\":{}", second.pid()));
    watching.idle(20);
    let said = watching.stop();
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    assert_eq!(only_process(&said), second.pid());
    second.finish();
}
