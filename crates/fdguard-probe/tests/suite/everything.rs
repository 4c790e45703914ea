//! One of everything: fdguard reports exactly what the holder reports.

use rustix::process::{Resource, getrlimit};
use serde_json::json;
use testkit::{NOBODY, Namespace, Victim, have, is_root, skip};

use super::{assert_exact, record};

#[test]
fn r1_r2_everything_is_told_as_the_victim_tells_it() {
    let victim = Victim::start("everything");
    let document = assert_exact(&victim);
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(
        document["limits"],
        json!({"soft": limit.current, "hard": limit.maximum})
    );
    assert_eq!(document["tier"], "full");
    victim.finish();
}

#[test]
fn r1_r2_everything_of_a_c_program_is_told_as_it_tells_it() {
    let victim = Victim::of_c("everything").start();
    assert_exact(&victim);
    victim.finish();
}

#[test]
fn r1_the_limit_is_the_targets_and_not_ours() {
    let victim = Victim::of("everything").nofile(777).start();
    let document = assert_exact(&victim);
    assert_eq!(document["limits"]["soft"], 777);
    victim.finish();
}

#[test]
fn r2_everything_of_another_user_is_told_as_well() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::of("everything").as_user(NOBODY).start();
    let document = assert_exact(&victim);
    assert_eq!(document["process"]["uid"], NOBODY);
    victim.finish();
}

#[test]
fn r6_everything_in_another_mount_namespace_is_told_as_well() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    let victim = Victim::of("everything").in_new(Namespace::Mount).start();
    assert_exact(&victim);
    victim.finish();
}

#[test]
fn r2_without_the_walk_over_others_only_peers_are_missing() {
    let victim = Victim::start("everything");
    let probe = fdguard_probe::Probe::new().unwrap();
    let options = fdguard_probe::Options {
        peers: false,
        threads: 1,
        ..fdguard_probe::Options::default()
    };
    let snapshot = probe.snapshot(victim.pid(), options).unwrap();
    let document = super::document(&snapshot);
    for holding in victim.holdings() {
        let mut rest = holding.clone();
        rest.detail.remove("peer");
        let found = rest.disagreements(record(&document, holding.fd));
        assert!(found.is_empty(), "{found:?}");
    }
    victim.finish();
}
