//! JSON: strictly valid, conforming to the contract, and consistent with the victim.

use serde_json::{Value, json};
use testkit::{Victim, have, skip};

use super::contract::{assert_host, assert_snapshot, assert_snapshots};
use super::{run, snap};

fn record(document: &Value, fd: u32) -> &Value {
    let fds = document["fds"].as_array().unwrap();
    fds.iter().find(|record| record["fd"] == fd).unwrap()
}

#[test]
fn r1_r2_a_snapshot_keeps_the_contract_and_says_what_the_victim_says() {
    for victim in [
        Victim::start("everything"),
        Victim::of_c("everything").start(),
        Victim::start("parent"),
        Victim::start("starved"),
        Victim::start("inheritor"),
    ] {
        let document = snap(victim.pid(), &["--json"]).good_json();
        assert_snapshot(&document);
        assert_eq!(document["count"], victim.holdings().len());
        let found: Vec<String> = victim
            .holdings()
            .iter()
            .flat_map(|holding| holding.disagreements(record(&document, holding.fd)))
            .collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        victim.finish();
    }
}

#[test]
fn names_that_are_no_text_are_bytes_and_come_back() {
    let victim = Victim::start("everything");
    let held = victim.holding("file with a name that is no text").unwrap();
    let said = snap(victim.pid(), &["--json"]);
    let document = said.good_json();
    let record = record(&document, held.fd);
    assert!(record["target"]["bytes"].is_string(), "{record}");
    assert_eq!(record["detail"]["path"], held.detail["path"]);
    if !have("python3") {
        skip("needs python3");
    } else {
        // An independent, strict reader.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot.json");
        std::fs::write(&path, &said.stdout).unwrap();
        let strict = "import json,sys; json.loads(open(sys.argv[1],'rb').read().decode('utf-8'), \
                      parse_constant=lambda name: sys.exit(name))";
        let status = std::process::Command::new("python3")
            .args(["-c", strict])
            .arg(&path)
            .status();
        assert!(status.unwrap().success());
    }
    victim.finish();
}

#[test]
fn r3_targets_are_collapsed_and_add_up() {
    let mut victim = Victim::start("leaker");
    victim.tell("48 file");
    let document = snap(victim.pid(), &["--json"]).good_json();
    assert_snapshot(&document);
    let first = &document["targets"][0];
    assert_eq!(
        (&first["class"], &first["count"]),
        (&json!("regular"), &json!(48))
    );
    let target = first["target"].as_str().unwrap();
    assert!(target.ends_with("/leaked-*.log"), "{target}");
    victim.finish();
}

#[test]
fn every_process_at_once_keeps_the_contract() {
    let victim = Victim::start("everything");
    let said = run(["snap", "--all", "--json", "--no-peers"]);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let document = said.json();
    assert_snapshots(&document);
    let members = document["snapshots"].as_array().unwrap();
    let mine = members
        .iter()
        .find(|member| member["process"]["pid"] == victim.pid());
    assert_eq!(mine.unwrap()["count"], victim.holdings().len());
    victim.finish();
}

#[test]
fn r8_the_host_keeps_the_contract() {
    let victim = Victim::of("leaker").nofile(4321).start();
    let document = run(["top", "--json"]).good_json();
    assert_host(&document);
    let rows = document["processes"].as_array().unwrap();
    let mine = rows.iter().find(|row| row["pid"] == victim.pid()).unwrap();
    assert_eq!(
        (&mine["count"], &mine["limits"]["soft"]),
        (&json!(3), &json!(4321))
    );
    assert_eq!(
        run(["top", "--once", "--json"]).good_json()["schema"],
        "fdguard.host/1"
    );
    let filtered = run(["top", "--json", "--filter", "leaker"]).good_json();
    let rows = filtered["processes"].as_array().unwrap();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| {
        row["comm"].as_str().unwrap().contains("leaker")
            || row["pid"].to_string().contains("leaker")
    }));
    victim.finish();
}

#[test]
fn r10_counts_have_no_path_no_peer_and_no_command_line() {
    let victim = Victim::start("everything");
    for args in [&["--counts", "--json"][..], &["--counts"]] {
        let said = snap(victim.pid(), args);
        assert_eq!((said.code, &*said.stderr), (0, ""));
        let text = said.text();
        let dir = victim.dir().file_name().unwrap().to_str().unwrap();
        for secret in [
            dir,
            "/tmp",
            "/dev/",
            "127.0.0.1",
            "[::1]",
            "plain.txt",
            "state.db",
        ] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert!(!text.contains("bytes\":"), "{text}");
    }
    let document = snap(victim.pid(), &["--counts", "--json"]).good_json();
    assert_eq!(document["schema"], "fdguard.counts/1");
    assert_eq!(document["count"], victim.holdings().len());
    let sum: u64 = document["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, victim.holdings().len() as u64);
    victim.finish();
}

/// The whole host in both tiers: the victims' reports are identical, word for word.
#[test]
fn r2_all_processes_are_told_the_same_by_the_kernel_and_by_proc() {
    let victims = [
        Victim::start("everything"),
        Victim::of_c("everything").start(),
    ];
    let mut documents = ["kernel", "full"].map(|tier| {
        let said = run(["snap", "--all", "--json", "--tier", tier]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let document = said.json();
        assert_snapshots(&document);
        document
    });
    for victim in &victims {
        let [by_kernel, in_full] = documents.each_mut().map(|document| {
            let members = document["snapshots"].as_array_mut().unwrap();
            let is_it = |member: &&mut Value| member["process"]["pid"] == victim.pid();
            let found = members.iter_mut().find(is_it).unwrap();
            for fd in found["fds"].as_array_mut().unwrap() {
                if fd["class"] == "timerfd" {
                    fd["detail"]["remaining"].take();
                }
            }
            found
        });
        if by_kernel["tier"] != "kernel" {
            skip("the kernel lets us load no iterator");
        }
        assert_eq!(in_full["tier"], "full");
        let ours = |key: &str| !["taken_at", "tier", "host", "walls"].contains(&key);
        let by_kernel = by_kernel.as_object().unwrap();
        assert!(by_kernel.len() > 10);
        for (key, value) in by_kernel.iter().filter(|(key, _)| ours(key)) {
            assert_eq!(value, &in_full[key], "{key}");
        }
    }
    victims.into_iter().for_each(Victim::finish);
}

#[test]
fn a_saved_snapshot_says_the_same_when_it_is_shown_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let victim = Victim::start("everything");
    let said = snap(victim.pid(), &["--json", "-o", path.to_str().unwrap()]);
    assert_eq!((said.code, said.stdout.len(), &*said.stderr), (0, 0, ""));
    victim.finish();
    let saved: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_snapshot(&saved);
    let again = run(["snap", "--from", path.to_str().unwrap(), "--json"]).good_json();
    assert_eq!(again, saved);
    let leftovers: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(leftovers.len(), 1, "{leftovers:?}");
}

#[test]
fn the_rules_are_listed_without_a_process() {
    let rules = run(["snap", "--list-rules", "--json"]).good_json();
    let text = rules.to_string();
    for rule in [
        "epoll-ghost",
        "dead-pidfd",
        "widowed-pipe",
        "inherited-listener",
    ] {
        assert!(text.contains(rule), "{rule}");
    }
    assert!(!run(["snap", "--list-rules"]).text().is_empty());
}

#[test]
fn r59_counts_carry_the_fields_of_a_health_endpoint() {
    let mut victim = Victim::of("leaker").nofile(100).start();
    for (order, count, status) in [
        ("0", 3, "ok"),
        ("67", 70, "ok"),
        ("1", 71, "warning"),
        ("18", 89, "warning"),
        ("1", 90, "critical"),
    ] {
        victim.tell(order);
        let document = snap(victim.pid(), &["--counts", "--json"]).good_json();
        let health = json!({
            "fd_count": count,
            "fd_soft_limit": 100,
            "fd_hard_limit": document["hard"],
            "fd_usage_percent": f64::from(count),
            "thread_count": 1,
            "status": status,
        });
        for (key, value) in health.as_object().unwrap() {
            assert_eq!(&document[key], value, "{key} of {count}");
        }
    }
    victim.finish();
}
