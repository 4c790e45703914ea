//! Reads known descriptors again: those that were reused, were renamed, or lost their peer.

use std::fs::File;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use fdguard_core::{Class, Fd, FdEntry, TcpState};
use fdguard_probe::{Error, Probe, ProcessWatcher, WatcherTick};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use testkit::{Victim, number};

/// All known descriptors.
const ALL: usize = usize::MAX / 2;

/// A watcher of the test itself, after its first tick.
fn own_watcher(probe: &Probe) -> ProcessWatcher<'_> {
    let mut watcher = ProcessWatcher::new(probe, std::process::id()).unwrap();
    watcher.tick().unwrap();
    watcher.verify(ALL).unwrap();
    watcher
}

/// Replaces `held` with `fresh` in one step: the count stays the same.
fn swap(held: &mut OwnedFd, fresh: impl AsFd) {
    rustix::io::dup3(fresh, held, DupFlags::CLOEXEC).unwrap();
}

fn numbers(entries: &[FdEntry]) -> Vec<Fd> {
    entries.iter().map(|entry| entry.fd).collect()
}

/// Opened, closed and changed numbers.
fn told(tick: &WatcherTick) -> (Vec<Fd>, Vec<Fd>, Vec<Fd>) {
    (
        numbers(&tick.opened),
        tick.closed.clone(),
        numbers(&tick.changed),
    )
}

const NOTHING: (Vec<Fd>, Vec<Fd>, Vec<Fd>) = (Vec::new(), Vec::new(), Vec::new());

fn file(dir: &tempfile::TempDir, name: &str) -> File {
    File::create(dir.path().join(name)).unwrap()
}

#[test]
fn r14_a_number_that_changed_hands_at_an_equal_count_is_closed_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, other) = (OwnedFd::from(file(&dir, "one")), file(&dir, "other"));
    let probe = Probe::new().unwrap();
    let mut watcher = own_watcher(&probe);
    swap(&mut one, &other);
    assert!(!watcher.tick().unwrap().listed, "the count tells nothing");
    let tick = watcher.verify(ALL).unwrap();
    let fd = number(&one);
    assert_eq!(told(&tick), (vec![fd], vec![fd], vec![]));
    let target = tick.opened[0].target.as_str().unwrap();
    assert!(target.ends_with("/other"), "{target}");
    assert_eq!(told(&watcher.verify(ALL).unwrap()), NOTHING, "told once");
}

#[test]
fn r14_a_renamed_and_a_deleted_file_stay_the_same_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let (moved, gone) = (file(&dir, "old"), file(&dir, "gone"));
    let probe = Probe::new().unwrap();
    let mut watcher = own_watcher(&probe);
    let at = |name: &str| dir.path().join(name);
    std::fs::rename(at("old"), at("new")).unwrap();
    std::fs::remove_file(at("gone")).unwrap();
    let tick = watcher.verify(ALL).unwrap();
    let both = vec![number(&moved), number(&gone)];
    assert_eq!(told(&tick), (vec![], vec![], both));
    let target = tick.changed[0].target.as_str().unwrap();
    assert!(target.ends_with("/new"), "{target}");
    assert_eq!(tick.changed[0].class, Class::Regular);
    assert_eq!(tick.changed[1].class, Class::Deleted);
    assert_eq!(told(&watcher.verify(ALL).unwrap()), NOTHING, "told once");
}

#[test]
fn r14_a_connection_whose_peer_closes_is_the_same_one_in_another_state() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    let probe = Probe::new().unwrap();
    let mut watcher = own_watcher(&probe);
    let closed = number(&server);
    drop(server);
    // A read shows that the end has arrived.
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let tick = watcher.tick().unwrap();
    assert_eq!(told(&tick), (vec![], vec![closed], vec![]));
    let tick = watcher.verify(ALL).unwrap();
    assert_eq!(told(&tick), (vec![], vec![], vec![number(&client)]));
    assert_eq!(tick.changed[0].class, Class::Tcp(TcpState::CloseWait));
}

#[test]
fn r14_a_socket_that_was_seen_before_it_was_connected_is_told_when_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, std::process::id()).unwrap();
    let first = watcher.tick().unwrap();
    let seen = first.opened.iter().find(|one| one.fd == number(&socket));
    assert_eq!(seen.unwrap().class, Class::Tcp(TcpState::Unbound));
    rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
    let tick = watcher.verify(ALL).unwrap();
    assert_eq!(told(&tick), (vec![], vec![], vec![number(&socket)]));
    assert_eq!(tick.changed[0].class, Class::Tcp(TcpState::Established));
}

#[test]
fn r14_an_anonymous_inode_of_another_kind_is_another_descriptor() {
    let mut counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
    let probe = Probe::new().unwrap();
    let mut watcher = own_watcher(&probe);
    swap(&mut counter, &timer);
    let tick = watcher.verify(ALL).unwrap();
    let fd = number(&counter);
    assert_eq!(told(&tick), (vec![fd], vec![fd], vec![]));
    assert_eq!(tick.opened[0].class, Class::Timerfd);
}

/// Room for thousands.
fn raise_our_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
}

#[test]
fn r14_of_two_thousand_all_are_looked_at_again_within_a_round() {
    raise_our_limit();
    let dir = tempfile::tempdir().unwrap();
    let mut held: Vec<OwnedFd> = (0..2000)
        .map(|index| file(&dir, &format!("held-{index}")).into())
        .collect();
    let probe = Probe::new().unwrap();
    let mut watcher = own_watcher(&probe);
    let other = file(&dir, "other");
    // The new one is no longer fresh after this.
    watcher.tick().unwrap();
    watcher.verify(1).unwrap();
    let mut swapped = Vec::new();
    for index in [0, 1, 700, 1300, 1999] {
        swap(&mut held[index], &other);
        swapped.push(number(&held[index]));
    }
    let mut found = Vec::new();
    let round = watcher.tick().unwrap().count.div_ceil(64);
    assert!(round <= 33, "{round}");
    for _ in 0..round {
        let tick = watcher.verify(64).unwrap();
        assert_eq!(numbers(&tick.opened), tick.closed);
        found.extend(tick.closed);
    }
    found.sort_unstable();
    assert_eq!(found, swapped, "each once");
}

#[test]
fn a_number_that_changed_hands_before_its_first_second_look_is_told() {
    raise_our_limit();
    let dir = tempfile::tempdir().unwrap();
    // The links of these are not known from the first tick.
    let mut held: Vec<OwnedFd> = (0..200)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap())
        .collect();
    let other = file(&dir, "other");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, std::process::id()).unwrap();
    watcher.tick().unwrap();
    swap(&mut held[150], &other);
    let looks = (0..8).map(|_| watcher.verify(64).unwrap());
    let closed: Vec<Fd> = looks.flat_map(|tick| tick.closed).collect();
    assert_eq!(closed, [number(&held[150])]);
}

#[test]
fn r14_what_stays_as_it_is_is_never_told_again() {
    let victim = Victim::start("everything");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    watcher.tick().unwrap();
    for most in [ALL, 1, 7, ALL] {
        let tick = watcher.verify(most).unwrap();
        assert_eq!(told(&tick), NOTHING, "{most}: {tick:?}");
    }
    victim.finish();
}

#[test]
fn r14_a_process_that_ended_is_told_as_ended_by_every_kind_of_look() {
    type Kind = fn(&mut ProcessWatcher<'_>) -> Result<WatcherTick, Error>;
    let kinds: [Kind; 3] = [
        |watcher| watcher.glance(),
        |watcher| watcher.tick(),
        |watcher| watcher.list(),
    ];
    for look in kinds {
        let mut victim = Victim::start("exiter");
        let pid = victim.pid();
        let probe = Probe::new().unwrap();
        let mut watcher = ProcessWatcher::new(&probe, pid).unwrap();
        assert_eq!(watcher.tick().unwrap().count, 103);
        victim.send("go");
        // It stays a zombie until it is waited for.
        let handle = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        let options = rustix::process::WaitIdOptions::EXITED;
        let stays = options | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(handle), stays).unwrap();
        let zombie = look(&mut watcher);
        assert!(matches!(zombie, Err(Error::Vanished(_))), "{zombie:?}");
        assert!(victim.ended_well());
        let gone = look(&mut watcher);
        assert!(matches!(gone, Err(Error::Vanished(_))), "{gone:?}");
    }
}

#[test]
fn r6_our_own_full_table_is_not_the_end_of_the_watched_process() {
    let mut victim = Victim::start("leaker");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    watcher.tick().unwrap();
    victim.tell("5 file");
    let maximum = getrlimit(Resource::Nofile).maximum;
    let low = Rlimit {
        current: Some(64),
        maximum,
    };
    setrlimit(Resource::Nofile, low).unwrap();
    let fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = watcher.tick().unwrap_err();
    let Error::Io { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("Too many open files"));
    assert_eq!(watcher.glance().unwrap().count, 8, "a count needs no room");
    drop(fillers);
    assert_eq!(watcher.tick().unwrap().opened.len(), 5, "nothing was lost");
    victim.finish();
}
