//! The harness: clean starts, options, endings.

use std::fs;
use std::process::Command;

use testkit::{NOBODY, Namespace, Victim, have, is_root, run_as, skip};

/// The victim's numbers are exactly those that `/proc` lists.
pub(super) fn assert_complete(victim: &Victim) {
    let mut said: Vec<u32> = victim.holdings().iter().map(|held| held.fd).collect();
    said.sort_unstable();
    assert_eq!(said, victim.listed());
}

#[test]
fn twenty_starts_in_a_row_hold_the_same() {
    // A descriptor of this process that is open over exec must not get through.
    let stray = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let counts: Vec<usize> = (0..20)
        .map(|_| {
            let victim = Victim::start("everything");
            let count = victim.listed().len();
            assert_eq!(count, victim.holdings().len());
            victim.finish();
            count
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn a_dropped_victim_is_gone_with_its_dir() {
    let victim = Victim::start("everything");
    let (pid, dir) = (victim.pid(), victim.dir().to_owned());
    assert!(dir.join("plain.txt").exists());
    drop(victim);
    assert!(!dir.exists());
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
}

#[test]
fn the_soft_limit_is_what_was_asked_for() {
    let mut victim = Victim::of("leaker").nofile(40).start();
    let answer = victim.tell("100");
    assert_eq!(answer["count"], 40);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("Too many open files")
    );
    assert_eq!(victim.listed().len(), 40);
    victim.finish();
}

#[test]
fn a_victim_runs_in_namespaces_of_its_own() {
    if !is_root() || !have("unshare") {
        return skip("needs root and the program unshare");
    }
    let victim = Victim::of("leaker")
        .in_new(Namespace::Net)
        .in_new(Namespace::Pid)
        .in_new(Namespace::Mount)
        .start();
    assert_eq!(victim.line()["pid"], 1);
    assert_complete(&victim);
    for name in ["net", "pid", "mnt"] {
        let its = fs::read_link(format!("/proc/{}/ns/{name}", victim.pid())).unwrap();
        assert_ne!(its, fs::read_link(format!("/proc/self/ns/{name}")).unwrap());
    }
    victim.finish();
}

#[test]
fn a_victim_runs_as_another_user_in_a_namespace() {
    if !is_root() || !have("unshare") {
        return skip("needs root and the program unshare");
    }
    let victim = Victim::of("leaker")
        .as_user(NOBODY)
        .in_new(Namespace::Net)
        .start();
    let status = fs::read_to_string(format!("/proc/{}/status", victim.pid())).unwrap();
    assert!(
        status.contains("\nUid:\t65534\t65534\t65534\t65534\n"),
        "{status}"
    );
    assert_complete(&victim);
    victim.finish();
}

#[test]
fn a_command_runs_as_another_user() {
    if !is_root() {
        return skip("needs root");
    }
    let mut id = Command::new("id");
    id.arg("-u");
    let output = run_as(NOBODY, id).output().unwrap();
    assert_eq!(output.stdout, b"65534\n");
}

#[test]
fn programs_are_found_on_the_search_path() {
    assert!(have("sh"));
    assert!(!have("no-such-program-anywhere"));
}
