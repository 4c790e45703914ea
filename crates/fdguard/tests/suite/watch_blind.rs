//! Watching processes that cannot be read, or no longer, or for which there is no room.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{NOBODY, Victim, have, is_root, skip};

use super::failure::COULD_NOT_LOOK;
use super::watching::{Watching, diagnosis, value};
use super::{AsNobody, CommandOutput};

#[test]
fn r6_nobody_watches_the_count_and_says_what_is_missing() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let mut victim = Victim::start("leaker");
    victim.tell("39");
    let pid = victim.pid().to_string();
    let args = ["watch", &pid, "--every", "10ms", "--for", "1s"];
    let said = nobody.run(&args);
    assert_eq!((said.code, &*said.stderr), (COULD_NOT_LOOK, ""));
    let line = said.text().lines().next().unwrap();
    assert_eq!(value(line, "count"), "42");
    assert_eq!(value(line, "highest"), "unknown");
    assert!(said.text().contains("not seen: "), "{}", said.text());
    let said = nobody.run(&[&args[..], &["--json", "--samples"]].concat());
    assert_eq!(said.code, COULD_NOT_LOOK);
    let document = diagnosis(&said);
    assert_eq!(document["coverage"]["live_fds"], json!(null));
    assert_eq!(document["processes"][0]["highest"], json!(null));
    assert_eq!(document["processes"][0]["classes"], json!(null));
    assert_eq!(document["gaps"].as_array().unwrap().len(), 1);
    let remedy = document["gaps"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("sudo"), "{remedy}");
    let sample = said.text().lines().next().unwrap();
    let expected = "\"count\":42,\"highest\":null,\"opened\":null,\"closed\":null}";
    assert!(sample.ends_with(expected), "{sample}");
    // `--max` works even without a list of descriptors.
    let said = nobody.run(&[&args[..], &["--max", "40"]].concat());
    assert_eq!(said.code, 1, "{}", said.text());
    victim.finish();
}

#[test]
fn r6_of_two_processes_one_that_is_only_counted_is_not_looked_at() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let own = Victim::of("leaker").as_user(NOBODY).start();
    let roots = Victim::start("leaker");
    let pids = [&own, &roots].map(|victim| victim.pid().to_string());
    let args = ["watch", "--every", "10ms", "--for", "1s", "--json"];
    let alone = nobody.run(&[&args[..], &[&pids[0]]].concat());
    assert_eq!(alone.code, 0, "{}", alone.text());
    let both = nobody.run(&[&args[..], &[&pids[0], &pids[1]]].concat());
    assert_eq!(both.code, COULD_NOT_LOOK, "{}", both.text());
    own.finish();
    roots.finish();
}

#[test]
fn r6_numbers_that_can_be_listed_and_not_looked_at_are_no_clean_table() {
    if !is_root() || !have("setpriv") {
        return skip("needs root and setpriv");
    }
    let victim = Victim::of("leaker").as_user(NOBODY).start();
    let without = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let mut command = Command::new("setpriv");
    command.args(without).arg(env!("CARGO_BIN_EXE_fdguard"));
    let pid = victim.pid().to_string();
    command.args(["watch", &pid, "--every", "10ms", "--for", "1s", "--json"]);
    let said = CommandOutput::of(command.current_dir("/").output().unwrap());
    assert_eq!((said.code, &*said.stderr), (COULD_NOT_LOOK, ""));
    let document = diagnosis(&said);
    assert_eq!(document["final"], 3);
    assert_eq!(document["processes"][0]["classes"], json!(null));
    assert_eq!(document["gaps"].as_array().unwrap().len(), 1);
    victim.finish();
}

#[test]
fn r6_a_process_that_hides_during_the_watch_is_counted_from_then_on() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let mut victim = Victim::of("leaker").as_user(NOBODY).start();
    let pid = victim.pid().to_string();
    let args = ["watch", &pid, "--every", "10ms", "--json", "--samples"];
    let mut watching = Watching::of(nobody.command(&args));
    watching.wait_for("\"highest\":2");
    victim.tell("1 secrecy");
    victim.tell("5");
    watching.wait_for("\"count\":8,\"highest\":null");
    victim.tell("5");
    watching.wait_for("\"count\":13,\"highest\":null");
    let said = watching.stop();
    assert_eq!((said.code, &*said.stderr), (COULD_NOT_LOOK, ""));
    let document = diagnosis(&said);
    assert_eq!(document["process"]["pid"], victim.pid());
    assert_eq!(document["final"], 13);
    assert_eq!(document["processes"].as_array().unwrap().len(), 1);
    assert_eq!(document["processes"][0]["classes"], json!(null));
    assert!(document["predecessors"][0]["classes"].is_array());
    let gaps = document["gaps"].to_string();
    assert!(gaps.contains("from some point on"), "{gaps}");
    victim.finish();
}

#[test]
fn r6_processes_that_we_have_no_room_for_are_a_gap() {
    let victim = Victim::of("parent").arg("12").arg("0").start();
    let script = "ulimit -n 32; exec \"$0\" watch $1 --tree --json --every 10ms --for 200ms";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard")]);
    command.arg(victim.pid().to_string()).current_dir("/");
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.stderr, "");
    let document = diagnosis(&said);
    let gaps = document["gaps"].as_array().unwrap();
    let told = |gap: &&Value| gap["what"] == "some processes";
    let gap = gaps.iter().find(told).unwrap();
    assert!(gap["why"].to_string().contains("Too many open files"));
    assert_eq!(gaps.iter().filter(told).count(), 1);
    victim.finish();
}

#[test]
fn r6_a_low_soft_limit_of_ours_does_not_keep_us_from_a_family() {
    let victim = Victim::of("parent").arg("12").arg("0").start();
    let script = "ulimit -Sn 32; exec \"$0\" watch $1 --tree --json --every 10ms --for 200ms";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard")]);
    command.arg(victim.pid().to_string()).current_dir("/");
    let document = diagnosis(&CommandOutput::of(command.output().unwrap()));
    assert_eq!(document["gaps"], json!([]));
    assert_eq!(document["processes"].as_array().unwrap().len(), 13);
    victim.finish();
}
