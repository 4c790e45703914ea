//! Without any privilege: what is visible is reported, and what is not is named once.

use serde_json::{Value, json};
use testkit::{NOBODY, Victim, is_root, skip};

use super::AsNobody;
use super::contract::{assert_host, assert_snapshot, assert_snapshots};

#[test]
fn r6_a_process_of_root_gives_its_count_the_gap_and_exit_3() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let mut victim = Victim::start("leaker");
    victim.tell("39");
    let pid = victim.pid().to_string();
    let said = nobody.run(&["snap", &pid]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    let text = said.text();
    for part in [
        "tier radar",
        "42 of ",
        "not seen",
        "permission denied",
        "remedy: ",
        "sudo",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let said = nobody.run(&["snap", &pid, "--json"]);
    assert_eq!(said.code, 3);
    let document = said.json();
    assert_snapshot(&document);
    assert_eq!(
        (&document["tier"], &document["count"]),
        (&json!("radar"), &json!(42))
    );
    assert_eq!(document["gaps"].as_array().unwrap().len(), 1);
    victim.finish();
}

#[test]
fn r10_counts_need_no_privilege() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let victim = Victim::start("everything");
    let pid = victim.pid().to_string();
    let said = nobody.run(&["snap", &pid, "--counts"]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let count = format!("count={} ", victim.holdings().len());
    assert!(said.text().contains(&count), "{}", said.text());
    let document = nobody
        .run(&["snap", &pid, "--counts", "--json"])
        .good_json();
    assert_eq!(document["count"], victim.holdings().len());
    assert_eq!(document["classes"], Value::Null);
    victim.finish();
}

#[test]
fn r6_the_host_needs_no_privilege() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let mut victim = Victim::start("leaker");
    victim.tell("1231");
    let said = nobody.run(&["top", "--once"]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let pid = victim.pid().to_string();
    let line = said
        .text()
        .lines()
        .find(|line| line.split_whitespace().any(|word| word == pid));
    let line = line.expect("the victim's line").replace(',', "");
    assert!(line.contains("1234"), "{line}");
    let document = nobody.run(&["top", "--json"]).good_json();
    assert_host(&document);
    let rows = document["processes"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["count"].is_u64()),
        "every count is known"
    );
    assert!(rows.iter().any(|row| row["pid"] == 1));
    victim.finish();
}

#[test]
fn of_all_processes_the_refused_are_told_once() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let own = Victim::of("leaker").as_user(NOBODY).start();
    let said = nobody.run(&["snap", "--all", "--json", "--no-peers"]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let document = said.json();
    assert_snapshots(&document);
    let members = document["snapshots"].as_array().unwrap();
    let tier = |member: &&Value| member["process"]["pid"] == own.pid();
    assert_eq!(members.iter().find(tier).unwrap()["tier"], "full");
    let said = nobody.run(&["snap", "--all", "--no-peers"]);
    assert_eq!(said.code, 0);
    let refusals = said.text().matches("permission denied").count();
    assert_eq!(refusals, 1, "said {refusals} times");
    own.finish();
}

#[test]
fn r6_nobody_sees_its_own_process_in_full() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let victim = Victim::of("everything").as_user(NOBODY).start();
    let document = nobody.run(&["snap", &victim.pid().to_string(), "--json"]);
    assert_eq!(document.code, 0, "{}", document.stderr);
    let document = document.json();
    assert_snapshot(&document);
    assert_eq!(document["count"], victim.holdings().len());
    victim.finish();
}

#[test]
fn a_radar_snapshot_is_no_side_of_a_difference() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let said = nobody.run(&["diff", &pid, &pid]);
    assert_eq!(said.code, 3);
    assert!(said.stdout.is_empty());
    assert!(said.stderr.contains("hint: "), "{}", said.stderr);
    victim.finish();
}

#[test]
fn processes_that_are_hidden_are_a_gap_and_not_absent() {
    if !is_root() || !testkit::have("unshare") || !testkit::have("setpriv") {
        return skip("needs root, unshare and setpriv");
    }
    let nobody = AsNobody::new();
    for args in ["top --once --json", "snap --all --json"] {
        let Some(said) = nobody.run_where_others_are_hidden(args) else {
            return skip("no proc file system can be mounted here");
        };
        let document = said.good_json();
        let gaps = document["gaps"].to_string();
        assert!(
            gaps.contains("hidepid") && gaps.contains("run as root"),
            "{args}: {gaps}"
        );
    }
}

#[test]
fn r6_without_the_right_to_ask_the_kernel_the_tier_is_full_and_says_so() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let victim = Victim::of("everything").as_user(NOBODY).start();
    let pid = victim.pid().to_string();
    let said = nobody.run(&["snap", &pid, "--tier", "kernel", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let document = said.json();
    assert_snapshot(&document);
    assert_eq!(document["tier"], "full");
    assert_eq!(
        document["count"],
        victim.holdings().len(),
        "what the victim holds"
    );
    victim.finish();
}
