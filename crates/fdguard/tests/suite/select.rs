//! Which processes: several, by name, a tree.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::Victim;

use super::contract::assert_snapshots;
use super::{run, snap};

fn pids(document: &Value) -> BTreeSet<u64> {
    let members = document["snapshots"].as_array().unwrap();
    let pid = |member: &Value| member["process"]["pid"].as_u64().unwrap();
    members.iter().map(pid).collect()
}

#[test]
fn r8_a_tree_is_the_process_and_all_of_its_descendants() {
    let victim = Victim::of("parent").arg("5").arg("2").start();
    let document = snap(victim.pid(), &["--tree", "--json"]).good_json();
    assert_snapshots(&document);
    let mut expected = BTreeSet::from([u64::from(victim.pid())]);
    for child in victim.line()["children"].as_array().unwrap() {
        // A zombie has no descriptors to show.
        if child["zombie"] == false {
            expected.insert(child["pid"].as_u64().unwrap());
        }
    }
    assert_eq!(pids(&document), expected);
    // One budget: the parent's and three streams for each child.
    assert_eq!(document["count"], victim.holdings().len() + 5 * 3);
    let human = snap(victim.pid(), &["--tree"]);
    assert_eq!(human.code, 0);
    assert!(
        human.text().starts_with("6 processes have "),
        "{}",
        human.text()
    );
    victim.finish();
}

#[test]
fn r8_a_tree_of_one_is_a_list_all_the_same() {
    let victim = Victim::start("leaker");
    let document = snap(victim.pid(), &["--tree", "--json"]).good_json();
    assert_snapshots(&document);
    assert_eq!(document["processes"], 1);
    victim.finish();
}

#[test]
fn a_name_finds_every_process_of_that_command() {
    let victims: Vec<Victim> = (0..3).map(|_| Victim::start("crosser")).collect();
    let said = run(["snap", "--name", "crosser", "--json", "--no-peers"]);
    let document = said.json();
    let found = pids(&document);
    for victim in &victims {
        assert!(found.contains(&u64::from(victim.pid())));
    }
    for member in document["snapshots"].as_array().unwrap() {
        assert_eq!(member["process"]["comm"], "crosser");
    }
    for victim in victims {
        victim.finish();
    }
}

#[test]
fn several_numbers_come_in_the_order_asked_for_and_once() {
    let victims: Vec<Victim> = (0..2).map(|_| Victim::start("leaker")).collect();
    let [a, b] = [0, 1].map(|at| victims[at].pid().to_string());
    let document = run(["snap", &b, &a, "-p", &b, "--json"]).good_json();
    let members = document["snapshots"].as_array().unwrap();
    let order: Vec<&Value> = members
        .iter()
        .map(|member| &member["process"]["pid"])
        .collect();
    assert_eq!(order, [victims[1].pid(), victims[0].pid()]);
    let list = format!("{a},{b}");
    let document = run(["snap", "-p", &list, "--json"]).good_json();
    assert_eq!(document["processes"], 2);
    for victim in victims {
        victim.finish();
    }
}
