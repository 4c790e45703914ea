//! fdguard's own descriptor limit is nearly used up.

use std::fs::File;

use fdguard_probe::{Error, Options, Probe, ProcessWatcher, Radar};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::{FakeProc, Victim};

use super::{assert_says_the_same, document};

fn set_soft(soft: u64) {
    let present = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: Some(soft),
        maximum: present.maximum,
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
}

#[test]
fn r6_sixteen_descriptors_are_enough_for_everything() {
    let victim = Victim::start("everything");
    let mut leaker = Victim::start("leaker");
    leaker.tell("900");
    set_soft(16);
    let probe = Probe::new().unwrap();
    for threads in [1, 2] {
        let options = Options {
            peers: true,
            threads,
            ..Options::default()
        };
        let snapshot = probe.snapshot(victim.pid(), options).unwrap();
        assert_says_the_same(&document(&snapshot), victim.holdings());
        let long = probe.snapshot(leaker.pid(), options).unwrap();
        assert_eq!(long.fds.unwrap().len(), 903);
        let view = Radar::new().scan(&probe).unwrap();
        let row = view.rows.iter().find(|row| row.pid == leaker.pid());
        assert_eq!(row.unwrap().count, Some(903));
    }
    let mut watcher = ProcessWatcher::new(&probe, leaker.pid()).unwrap();
    assert_eq!(watcher.tick().unwrap().opened.len(), 903);
    victim.finish();
    leaker.finish();
}

#[test]
fn r6_hundreds_of_processes_at_once_take_no_more_room_than_one() {
    let mut tree = FakeProc::new();
    let info = "pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t4\n";
    for pid in 1000..1300 {
        tree.process(pid).fd(0, "/dev/null", info);
    }
    let probe = Probe::at(tree.root()).unwrap();
    let real = Probe::new().unwrap();
    set_soft(24);
    let pids = probe.pids().unwrap();
    for threads in [1, 2] {
        let options = Options {
            peers: true,
            threads,
            ..Options::default()
        };
        let looked = probe.snapshots(&pids, options);
        assert_eq!(looked.len(), 300);
        for one in looked {
            assert_eq!(one.unwrap().count, Some(1));
        }
        // And the processes that really run: an exit meanwhile is the only allowed failure.
        for one in real.snapshots(&real.pids().unwrap(), options) {
            assert!(!matches!(one, Err(Error::Io { .. })), "{one:?}");
        }
    }
}

#[test]
fn r6_with_no_room_at_all_there_is_an_error_and_never_a_shorter_list() {
    let victim = Victim::start("everything");
    let probe = Probe::new().unwrap();
    let held: Vec<u64> = victim.holdings().iter().map(|it| it.fd.into()).collect();
    set_soft(64);
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let (mut whole, mut refused) = (0, 0);
    for room in 0..16 {
        let options = Options {
            peers: false,
            threads: 1 + room % 2,
            ..Options::default()
        };
        match probe.snapshot(victim.pid(), options) {
            Ok(snapshot) => {
                let fds = snapshot.fds.expect("a list, since we may list it");
                let seen: Vec<u64> = fds.iter().map(|entry| entry.fd.into()).collect();
                let mut held = held.clone();
                held.sort_unstable();
                assert_eq!(seen, held, "with room for {room}");
                whole += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }), "{error:?}");
                let source = std::error::Error::source(&error).unwrap().to_string();
                assert!(source.contains("Too many open files"), "{source}");
                refused += 1;
            }
        }
        fillers.pop();
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
    drop(fillers);
    victim.finish();
}

#[test]
fn r6_the_radar_without_room_does_not_show_fewer_processes() {
    let mut victim = Victim::start("leaker");
    victim.tell("10");
    let probe = Probe::new().unwrap();
    set_soft(64);
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for room in 0..8 {
        // A scan that could not run is an error; a scan that ran has every process.
        if let Ok(view) = Radar::new().scan(&probe) {
            let row = view.rows.iter().find(|row| row.pid == victim.pid());
            let row = row.unwrap_or_else(|| panic!("missing with room for {room}"));
            assert_eq!(row.count, Some(13), "with room for {room}");
            assert!(row.table_size.is_some(), "with room for {room}");
        }
        fillers.pop();
    }
    drop(fillers);
    victim.finish();
}

#[test]
fn r6_two_threads_of_the_radar_that_fight_for_room_lose_no_process() {
    let mut tree = FakeProc::new();
    for pid in 1000..1300 {
        tree.process(pid);
    }
    let probe = Probe::at(tree.root()).unwrap();
    set_soft(64);
    let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let (mut whole, mut refused) = (0, 0);
    for room in 0..8 {
        match Radar::new().scan(&probe) {
            Ok(view) => {
                assert_eq!(view.rows.len(), 300, "with room for {room}");
                whole += 1;
            }
            Err(_) => refused += 1,
        }
        fillers.pop();
    }
    drop(fillers);
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}
