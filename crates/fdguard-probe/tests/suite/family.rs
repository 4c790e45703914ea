//! Parents, heirs, namespaces, containers, the number 1024, the last free number.

use fdguard_core::Summary;
use fdguard_probe::{Error, Options, Probe};
use serde_json::{Value, json};
use testkit::{FakeProc, Victim, VictimHolding, is_root, skip};

use super::{assert_exact, assert_says_the_same, document, look, record};

#[test]
fn r6_a_starved_process_is_read_to_its_last_number() {
    let victim = Victim::start("starved");
    let document = assert_exact(&victim);
    assert_eq!(document["count"], 32);
    assert_eq!(document["limits"]["soft"], 32);
    assert_eq!(document["percent_of_soft"], 100.0);
    let walls = document["walls"].as_array().unwrap();
    let soft = walls.iter().find(|wall| wall["name"] == "soft-limit");
    assert_eq!(soft.unwrap()["left"], 0);
    victim.finish();
}

#[test]
fn r7_a_number_past_1024_is_remembered_by_the_table() {
    let victim = Victim::start("crosser");
    let document = assert_exact(&victim);
    assert_eq!(document["crossed_1024"], true);
    assert_eq!(document["highest"], 3);
    assert_eq!(document["table_size"], victim.line()["table_size"]);
    victim.finish();
}

#[test]
fn r7_who_never_had_a_high_number_has_not_crossed() {
    let victim = Victim::of("exiter").arg("5").start();
    assert_eq!(document(&look(victim.pid()))["crossed_1024"], false);
    victim.finish();
}

#[test]
fn r3_r8_children_zombies_cohorts_and_their_pipes() {
    let victim = Victim::of("parent").arg("6").arg("3").start();
    let document = assert_exact(&victim);
    let process = &document["process"];
    assert_eq!(process["children"], 9);
    assert_eq!(process["zombies"], 3);
    assert_eq!(
        process["cohorts"],
        json!([{"command": "parent", "count": 9, "zombies": 3}])
    );
    let patterns = document["patterns"].to_string();
    assert!(
        patterns.contains("9 children × 3 pipes + pidfd"),
        "{patterns}"
    );
    let rules: Vec<&Value> = lints(&document).map(|lint| &lint["rule"]).collect();
    assert!(rules.contains(&&json!("dead-pidfd")), "{rules:?}");
    victim.finish();
}

#[test]
fn r4_a_handle_names_the_command_it_leads_to() {
    let victim = Victim::of("parent").arg("1").arg("0").start();
    let document = assert_exact(&victim);
    let handle = victim.holding("handle of a child").unwrap();
    let record = record(&document, handle.fd);
    assert_eq!(record["detail"]["command"], "parent");
    let child = &victim.line()["children"][0]["pid"];
    assert_eq!(record["target"], format!("pid {child} parent"));
    victim.finish();
}

#[test]
fn a_zombie_is_an_error_that_names_who_should_wait() {
    let victim = Victim::of("parent").arg("0").arg("1").start();
    let zombie = victim.line()["children"][0]["pid"].as_u64().unwrap();
    let zombie = u32::try_from(zombie).unwrap();
    let probe = Probe::new().unwrap();
    match probe.snapshot(zombie, Options::default()) {
        Err(Error::Zombie { pid, ppid }) => assert_eq!((pid, ppid), (zombie, victim.pid())),
        other => panic!("{other:?}"),
    }
    victim.finish();
}

#[test]
fn r8_an_inherited_listener_is_shared_with_the_child_and_said() {
    let mut victim = Victim::start("inheritor");
    let document = assert_exact(&victim);
    let held = victim
        .holding("listener that the child has too")
        .unwrap()
        .fd;
    let child = victim.line()["child"]["pid"].clone();
    assert_eq!(
        record(&document, held)["shared_with"],
        json!([{"pid": child, "fd": held}])
    );
    let lint = lints(&document).find(|lint| lint["rule"] == "inherited-listener");
    assert_eq!(lint.unwrap()["fds"], json!([held]));

    victim.tell("close");
    let child = u32::try_from(child.as_u64().unwrap()).unwrap();
    let child = super::document(&look(child));
    assert_eq!(record(&child, held)["shared_with"], Value::Null);
    assert_eq!(record(&child, held)["class"], "tcp:LISTEN");
    victim.finish();
}

#[test]
fn r6_a_process_in_other_namespaces_is_read_from_the_host() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::start("namespaced");
    assert_exact(&victim);
    let inside = &victim.line()["inside"];
    let pid = u32::try_from(inside["pid"].as_u64().unwrap()).unwrap();
    let held: Vec<VictimHolding> = serde_json::from_value(inside["holdings"].clone()).unwrap();
    let document = document(&look(pid));
    assert_says_the_same(&document, &held);
    assert_eq!(document["process"]["pid"], pid);
    assert_eq!(document["process"]["ns_pid"], inside["inner_pid"]);
    assert_eq!(document["process"]["container"], Value::Null);
    let listeners = document["fds"].as_array().unwrap();
    let listeners = listeners.iter().filter(|fd| fd["class"] == "tcp:LISTEN");
    assert_eq!(listeners.count(), 1);
    victim.finish();
}

#[test]
fn r6_the_sockets_of_two_namespaces_are_not_confused_in_one_look() {
    if !is_root() {
        return skip("needs root");
    }
    let (inner, outer) = (Victim::start("namespaced"), Victim::start("inheritor"));
    let inside = u32::try_from(inner.line()["inside"]["pid"].as_u64().unwrap()).unwrap();
    let probe = Probe::new().unwrap();
    let pids = [inside, outer.pid(), inner.pid()];
    for snapshot in probe.snapshots(&pids, Options::default()) {
        let document = document(&snapshot.unwrap());
        let holdings: Vec<VictimHolding> = if document["process"]["pid"] == inside {
            serde_json::from_value(inner.line()["inside"]["holdings"].clone()).unwrap()
        } else if document["process"]["pid"] == outer.pid() {
            outer.holdings().to_vec()
        } else {
            inner.holdings().to_vec()
        };
        assert_says_the_same(&document, &holdings);
    }
    inner.finish();
    outer.finish();
}

#[test]
fn r6_the_container_is_named_by_its_cgroup() {
    let id = "4f6c8f1d2b7a9e0c3d5e7f9a1b3c5d7e9f0a2b4c6d8e0f1a3b5c7d9e1f3a5b7c";
    let mut tree = FakeProc::new();
    let cgroup = format!("0::/system.slice/docker-{id}.scope\n");
    let process = tree.process(4242).comm("agent").file("cgroup", &cgroup);
    process.fd(0, "/dev/null", "pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t4\n");
    let probe = Probe::at(tree.root()).unwrap();
    let snapshot = probe.snapshot(4242, Options::default()).unwrap();
    assert_eq!(snapshot.process.container.as_deref(), Some(id));
    assert_eq!(Summary::summarize(&snapshot).highest, Some(0));
}

fn lints(document: &Value) -> impl Iterator<Item = &Value> {
    document["lints"].as_array().unwrap().iter()
}
