//! fdguard examines itself and leaves nothing open.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use fdguard_probe::{Options, Probe, ProcessWatcher, Radar};
use testkit::{Victim, number};

use super::{document, numbers, own_table, record};

#[test]
fn r1_a_look_at_ourselves_leaves_out_what_the_look_takes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("held.txt");
    let file = File::create(&path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (read, write): (OwnedFd, OwnedFd) = rustix::pipe::pipe().unwrap();
    let counter = rustix::event::eventfd(3, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    // A directory of the same kind as the probe's own, but the test's: it counts.
    let proc = File::open("/proc/self/fd").unwrap();
    let held: Vec<u32> = own_table().iter().map(|(fd, _)| *fd).collect();
    assert!([0, 1, 2].iter().all(|fd| held.contains(fd)));
    for options in [
        Options::default(),
        Options {
            peers: false,
            threads: 1,
            ..Options::default()
        },
    ] {
        let probe = Probe::new().unwrap();
        let pid = std::process::id();
        let document = document(&probe.snapshot(pid, options).unwrap());
        assert_eq!(numbers(&document), held);
        assert_eq!(document["count"], held.len());
        let class = |fd: u32| record(&document, fd)["class"].as_str().unwrap().to_owned();
        assert_eq!(class(number(&file)), "regular");
        assert_eq!(class(number(&listener)), "tcp:LISTEN");
        assert_eq!(class(number(&read)), "pipe");
        assert_eq!(class(number(&write)), "pipe");
        assert_eq!(class(number(&counter)), "eventfd");
        assert_eq!(class(number(&proc)), "directory");
    }
}

#[test]
fn r1_among_all_processes_we_are_listed_without_what_the_look_takes() {
    let held: Vec<u32> = own_table().iter().map(|(fd, _)| *fd).collect();
    let probe = Probe::new().unwrap();
    let pids = probe.pids().unwrap();
    for _ in 0..2 {
        let own = pids.iter().position(|pid| *pid == std::process::id());
        let snapshots = probe.snapshots(&pids, Options::default());
        let document = document(snapshots[own.unwrap()].as_ref().unwrap());
        assert_eq!(numbers(&document), held);
    }
}

#[test]
fn r1_two_hundred_of_everything_leave_our_own_table_as_it_was() {
    let victim = Victim::start("everything");
    let leaker = &mut Victim::start("leaker");
    let before = own_table();
    {
        let probe = Probe::new().unwrap();
        let with_probe = own_table();
        let mut radar = Radar::new();
        let mut watcher = ProcessWatcher::new(&probe, leaker.pid()).unwrap();
        let with_watcher = own_table();
        for round in 0..200 {
            let options = Options {
                peers: round % 50 == 0,
                threads: 1 + round % 2,
                ..Options::default()
            };
            let looked = probe.snapshot(victim.pid(), options).unwrap();
            assert_eq!(looked.count, Some(victim.holdings().len() as u64));
            radar.scan(&probe).unwrap();
            leaker.tell(if round % 2 == 0 { "2 socket" } else { "-2" });
            watcher.tick().unwrap();
        }
        assert_eq!(own_table(), with_watcher);
        drop(watcher);
        assert_eq!(own_table(), with_probe);
        assert!(with_probe.len() <= before.len() + 2, "{with_probe:?}");
        assert!(
            with_watcher.len() <= with_probe.len() + 4,
            "{with_watcher:?}"
        );
    }
    assert_eq!(own_table(), before);
    victim.finish();
}
