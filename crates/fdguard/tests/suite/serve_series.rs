//! One series for one service: `fdguard serve` over cgroups as systemd and kubelet make them, whose
//! process is restarted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use testkit::{TestCgroup, Victim, VictimLaunch, is_root};

use super::serve::{ServeProcess, with_pace};
use super::{fdguard, run};

/// Stops the server. Its history must have one series of this name, with one restart.
pub(super) fn assert_one_series(served: ServeProcess, name: &str, kind: &str) {
    let (state, _log) = served.stop();
    let dir = state.path().to_str().unwrap();
    let listed = run(["history", "--state", dir]);
    let own = listed.text().lines().filter(|line| line.contains(name));
    let own: Vec<&str> = own.collect();
    assert_eq!(own, [format!("{kind} {name}")], "{}", listed.text());
    let history = run(["history", name, "--state", dir, "--json"]).json();
    assert_eq!(history["service"]["kind"], kind);
    let events = history["events"].as_array().unwrap().iter();
    let restarts = events.filter(|one| one["event"] == "restarted");
    assert_eq!(restarts.count(), 1, "{history}");
}

/// A victim that enters the group before it is the program: a server that sees it earlier asks
/// again after the exec.
fn start_in(group: &TestCgroup) -> Victim {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("enter");
    let (procs, program) = (group.procs(), testkit::victim_path("leaker"));
    let text = format!(
        "#!/bin/sh\necho $$ > '{}'\nexec '{}' \"$@\"\n",
        procs.display(),
        program.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    VictimLaunch::program(&script).start()
}

/// The process of a service is restarted under a running server: in the same cgroup, or in another
/// one of the same service.
fn restart_under(served: ServeProcess, groups: [&TestCgroup; 2], name: &str, kind: &str) {
    let find = |restarts: u64, count: usize| {
        testkit::wait_for("the service", || {
            let overview = served.overview();
            let all = overview["services"].as_array()?;
            let is_it = |one: &&Value| {
                one["name"] == name && one["restarts"] == restarts && one["open_fds"] == count
            };
            all.iter().find(is_it).cloned()
        })
    };
    let path = format!("/api/v1/service?kind={kind}&name={name}");
    for (restarts, group) in (0..).zip(groups) {
        let mut victim = start_in(group);
        victim.tell(if restarts == 0 { "10 file" } else { "20 file" });
        let count = victim.listed().len();
        let found = find(restarts, count);
        assert_eq!(
            (&found["kind"], &found["processes"]),
            (&kind.into(), &1.into())
        );
        // At most one sample in a time: the first of a new process may come a tick later.
        testkit::wait_until("its sample in the series", || {
            let document: Value = serde_json::from_slice(&served.get(&path).1).unwrap();
            let samples = document["history"]["samples"].as_array();
            samples.is_some_and(|all| all.iter().any(|one| one["open_fds"] == count))
        });
        victim.finish();
    }
    assert_one_series(served, name, kind);
}

#[test]
fn a_unit_whose_process_is_restarted_is_one_series() {
    let unit = format!("fdguard-series-{}.service", std::process::id());
    let group = TestCgroup::create(&format!("system.slice/{unit}")).filter(|_| is_root());
    let Some(group) = group else {
        return testkit::skip("needs root and a cgroup that can be created");
    };
    restart_under(ServeProcess::start(), [&group, &group], &unit, "unit");
}

#[test]
fn a_pod_that_is_replaced_is_one_series_of_its_workload() {
    let uid = |last: u32| format!("{:08x}-90ab-cdef-1234-{last:012x}", std::process::id());
    let group = |number: u32| {
        let id = format!("{:012x}{number:052x}", std::process::id());
        TestCgroup::create(&format!("kubepods/burstable/pod{}/{id}", uid(number)))
    };
    let first = group(1).filter(|_| is_root());
    let Some(first) = first else {
        return testkit::skip("needs root and a cgroup that can be created");
    };
    let second = group(2).expect("a second cgroup");
    // Kubelet's directories of logs have the names; they are seen by this server only.
    let workload = format!("cart{}", std::process::id());
    let logs = |suffix: &str, number| {
        format!(
            "/var/log/pods/shop_{workload}-7d4b9cf5d8-{suffix}_{}",
            uid(number)
        )
    };
    let script = format!(
        "mount -t tmpfs tmpfs /var/log && mkdir -p {} {} && exec \"$@\"",
        logs("x2k5z", 1),
        logs("qq8tv", 2)
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command.arg(fdguard().get_program());
    command.args(["serve", "--no-evidence"]);
    let state = tempfile::tempdir().unwrap();
    let command = with_pace(command, state.path());
    let served = ServeProcess::launch(state, command, &[]);
    let name = format!("shop/{workload}");
    restart_under(served, [&first, &second], &name, "pod");
}
