//! The victim that holds one of everything: its report agrees with `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use testkit::{Victim, VictimHolding, is_root, skip};

use super::harness::assert_complete;

#[test]
fn it_holds_what_it_says() {
    let victim = Victim::start("everything");
    assert_complete(&victim);
    victim.finish();
}

#[test]
fn the_c_victim_holds_what_it_says() {
    let victim = Victim::of_c("everything").start();
    assert_complete(&victim);
    assert_links_fit(&victim);
    assert_eq!(victim.holdings().len(), 10);
    victim.finish();
}

#[test]
fn every_class_fits_the_link_that_the_kernel_shows() {
    let victim = Victim::start("everything");
    assert_links_fit(&victim);
    victim.finish();
}

#[test]
fn every_description_is_given_once() {
    let victim = Victim::start("everything");
    let names: BTreeSet<_> = victim.holdings().iter().map(|held| &held.what).collect();
    assert_eq!(names.len(), victim.holdings().len());
    victim.finish();
}

#[test]
fn nothing_is_refused_to_root_but_what_the_kernel_lacks() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::start("everything");
    for refused in victim.line()["refused"].as_array().unwrap() {
        skip(&format!("the kernel refused: {refused}"));
    }
    assert!(victim.holdings().len() > 90);
    victim.finish();
}

#[test]
fn deletion_is_told_by_the_link_count() {
    let victim = Victim::start("everything");
    let files = victim
        .holdings()
        .iter()
        .filter(|held| matches!(held.class.as_deref(), Some("regular" | "deleted")) && held.fd > 2);
    for held in files {
        let found = fs::metadata(format!("/proc/{}/fd/{}", victim.pid(), held.fd)).unwrap();
        assert_eq!(held.deleted, found.nlink() == 0, "{held:?}");
        if let Some(size) = held.detail.get("size") {
            assert_eq!(size.as_u64(), Some(found.len()), "{held:?}");
        }
    }
    victim.finish();
}

#[test]
fn it_runs_as_another_user() {
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::of("everything").as_user(testkit::NOBODY).start();
    let owner = fs::metadata(format!("/proc/{}/fd", victim.pid()))
        .unwrap()
        .uid();
    assert_eq!(owner, testkit::NOBODY);
    assert_complete(&victim);
    victim.finish();
}

fn assert_links_fit(victim: &Victim) {
    for held in victim.holdings() {
        let Some(expected) = link_of(held) else {
            continue;
        };
        let link = fs::read_link(format!("/proc/{}/fd/{}", victim.pid(), held.fd)).unwrap();
        let link = link.to_string_lossy();
        assert!(link.starts_with(&expected), "{link} for {held:?}");
    }
}

/// The beginning of a holding's link.
fn link_of(held: &VictimHolding) -> Option<String> {
    let class = held.class.as_deref()?;
    Some(match class {
        _ if held.target.is_some() => held.target.clone()?,
        "pipe" => "pipe:[".to_owned(),
        "udp" | "unix" | "netlink" | "packet" | "raw" | "vsock" => "socket:[".to_owned(),
        "eventpoll" | "eventfd" | "timerfd" | "signalfd" | "io_uring" | "userfaultfd" => {
            format!("anon_inode:[{class}]")
        }
        "perf-event" => "anon_inode:[perf_event]".to_owned(),
        "inotify" => "anon_inode:inotify".to_owned(),
        "fanotify" => "anon_inode:[fanotify]".to_owned(),
        "pidfd" => "anon_inode:[pidfd]".to_owned(),
        "bpf-map" | "bpf-prog" => format!("anon_inode:{class}"),
        "other:[landlock-ruleset]" => "anon_inode:[landlock-ruleset]".to_owned(),
        "other:net" => "net:[".to_owned(),
        "other:secretmem" => "/secretmem".to_owned(),
        "memfd" => format!("/memfd:{}", held.detail["name"].as_str()?),
        _ if class.starts_with("tcp:") => "socket:[".to_owned(),
        _ => return None,
    })
}
