//! Every smaller victim by name.

use std::fs;

use serde_json::Value;
use testkit::{Victim, VictimHolding, is_root, listed, skip};

use super::harness::assert_complete;

fn listed_in(pid: &Value) -> Vec<u32> {
    listed(u32::try_from(pid.as_u64().unwrap()).unwrap())
}

#[test]
fn churn_stays_within_its_numbers() {
    let mut victim = Victim::of("churn").arg("8").start();
    let line = victim.line().clone();
    let numbers = |key: &str| -> Vec<u64> {
        line[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|fd| fd.as_u64().unwrap())
            .collect()
    };
    let allowed = [vec![0, 1, 2], numbers("scratch"), numbers("slots")].concat();
    for _ in 0..200 {
        let seen = victim.listed();
        assert!(
            seen.iter().all(|fd| allowed.contains(&u64::from(*fd))),
            "{seen:?}"
        );
    }
    let before = victim.tell("laps")["laps"].as_u64().unwrap();
    while victim.tell("laps")["laps"].as_u64().unwrap() == before {}
    victim.finish();
}

#[test]
fn churn_shows_files_that_are_of_one_piece() {
    let victim = Victim::start("churn");
    let first = &victim.line()["files"][3];
    assert_eq!(first["size"], 1003);
    assert_eq!(first["pos"], 3);
    assert_eq!(first["mode"], "rw");
    victim.finish();
}

#[test]
fn leaker_leaks_what_it_is_told() {
    let mut victim = Victim::start("leaker");
    assert_complete(&victim);
    for (order, count) in [
        ("10", 13),
        ("5 file", 18),
        ("2 pipe", 22),
        ("3 socket", 25),
        ("-5", 20),
    ] {
        assert_eq!(victim.tell(order)["count"], count, "{order}");
        assert_eq!(victim.listed().len(), count, "{order}");
    }
    victim.finish();
}

#[test]
fn starved_has_no_number_left() {
    let victim = Victim::start("starved");
    assert_complete(&victim);
    assert_eq!(victim.line()["count"], 32);
    assert_eq!(victim.listed(), (0..32).collect::<Vec<_>>());
    victim.finish();
}

#[test]
fn parent_has_children_and_zombies() {
    let victim = Victim::of("parent").arg("3").arg("2").start();
    assert_complete(&victim);
    let children = victim.line()["children"].as_array().unwrap();
    assert_eq!(children.len(), 5);
    for child in children {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child["pid"])).unwrap();
        assert_eq!(child["zombie"], stat.contains(") Z "), "{stat}");
        if child["zombie"] == false {
            assert_eq!(listed_in(&child["pid"]), [0, 1, 2]);
        }
    }
    victim.finish();
}

#[test]
fn inheritor_shares_its_listener_with_the_child() {
    let mut victim = Victim::start("inheritor");
    assert_complete(&victim);
    let child = victim.line()["child"].clone();
    assert_eq!(Value::from(listed_in(&child["pid"])), child["fds"]);
    let listener = victim
        .holding("listener that the child has too")
        .unwrap()
        .fd;
    let link = |pid: &Value| fs::read_link(format!("/proc/{pid}/fd/{listener}"));
    assert_eq!(
        link(&victim.pid().into()).unwrap(),
        link(&child["pid"]).unwrap()
    );
    assert_eq!(victim.tell("close")["closed"], listener);
    assert!(link(&victim.pid().into()).is_err());
    assert!(link(&child["pid"]).is_ok());
    victim.finish();
}

#[test]
fn crosser_has_a_large_table_with_little_in_it() {
    let victim = Victim::start("crosser");
    assert_complete(&victim);
    assert_eq!(victim.line()["crossed"], 1500);
    assert!(victim.line()["table_size"].as_u64().unwrap() >= 1501);
    assert_eq!(victim.listed().len(), 4);
    victim.finish();
}

#[test]
fn exiter_exits_when_told() {
    let mut victim = Victim::start("exiter");
    assert_complete(&victim);
    victim.send("go");
    assert!(victim.ended_well());
    Victim::start("exiter").finish();
}

#[test]
fn namespaced_is_seen_from_both_sides() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::start("namespaced");
    assert_complete(&victim);
    let inside = &victim.line()["inside"];
    assert_eq!(inside["inner_pid"], 1);
    let held: Vec<VictimHolding> = serde_json::from_value(inside["holdings"].clone()).unwrap();
    let mut said: Vec<u32> = held.iter().map(|one| one.fd).collect();
    said.sort_unstable();
    assert_eq!(said, listed_in(&inside["pid"]));
    for name in ["net", "pid", "mnt"] {
        let its = fs::read_link(format!("/proc/{}/ns/{name}", inside["pid"])).unwrap();
        assert_ne!(its, fs::read_link(format!("/proc/self/ns/{name}")).unwrap());
    }
    assert!(!victim.dir().join("seen-inside-only.txt").exists());
    victim.finish();
}
