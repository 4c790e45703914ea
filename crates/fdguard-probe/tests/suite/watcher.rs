//! Watching: exactly what opened and closed, and nothing read when nothing changed.

use fdguard_probe::{Error, Probe, ProcessWatcher, WatcherTick};
use testkit::Victim;

fn numbers(tick: &WatcherTick) -> Vec<u32> {
    tick.opened.iter().map(|entry| entry.fd).collect()
}

#[test]
fn r14_what_opens_and_closes_is_told_exactly() {
    let mut victim = Victim::start("leaker");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    let first = watcher.tick().unwrap();
    assert_eq!((numbers(&first), first.listed), (vec![0, 1, 2], true));

    victim.tell("5 file");
    let tick = watcher.tick().unwrap();
    assert_eq!(numbers(&tick), [3, 4, 5, 6, 7]);
    assert_eq!((tick.count, tick.closed.len()), (8, 0));
    for (entry, made) in tick.opened.iter().zip(1..) {
        let path = victim.dir().canonicalize().unwrap();
        let path = path.join(format!("leaked-{made:06}.log"));
        assert_eq!(entry.target.as_str(), path.to_str());
    }

    victim.tell("-2");
    let tick = watcher.tick().unwrap();
    assert_eq!((tick.opened.len(), tick.closed), (0, vec![6, 7]));
    victim.tell("3 pipe");
    let tick = watcher.tick().unwrap();
    assert_eq!(numbers(&tick), [6, 7, 8, 9, 10, 11]);
    assert_eq!(tick.count, 12);
    victim.finish();
}

#[test]
fn r14_a_tick_without_a_change_does_not_list() {
    let mut victim = Victim::start("leaker");
    victim.tell("1000");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    assert!(watcher.tick().unwrap().listed);
    for _ in 0..100 {
        let tick = watcher.tick().unwrap();
        assert_eq!((tick.count, tick.listed), (1003, false));
        assert!(tick.opened.is_empty() && tick.closed.is_empty());
    }
    let listed = watcher.list().unwrap();
    assert!(listed.listed && listed.opened.is_empty());
    victim.finish();
}

#[test]
fn r1_watching_ourselves_lists_only_after_a_change_too() {
    let expected: Vec<u32> = super::own_table().iter().map(|(fd, _)| *fd).collect();
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, std::process::id()).unwrap();
    let first = watcher.tick().unwrap();
    assert_eq!(numbers(&first), expected);
    assert!(!watcher.tick().unwrap().listed);
    let file = std::fs::File::open("/dev/null").unwrap();
    let tick = watcher.tick().unwrap();
    assert_eq!(numbers(&tick), [testkit::number(&file)]);
}

#[test]
fn a_watch_on_nobody_is_an_error() {
    let probe = Probe::new().unwrap();
    let error = ProcessWatcher::new(&probe, 4_194_303).unwrap_err();
    assert!(matches!(error, Error::NoSuchProcess(4_194_303)));
}

#[test]
fn what_opens_later_is_told_as_well_as_by_a_snapshot() {
    let mut victim = Victim::start("leaker");
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    watcher.tick().unwrap();
    victim.tell("4 socket");
    let tick = watcher.tick().unwrap();
    let whole = super::look(victim.pid()).fds.unwrap();
    assert_eq!(tick.opened.len(), 4);
    for seen in &tick.opened {
        let there = whole.iter().find(|entry| entry.fd == seen.fd).unwrap();
        assert_eq!((&seen.class, &seen.target), (&there.class, &there.target));
        assert_eq!(seen.detail, there.detail);
    }
    victim.finish();
}

#[test]
fn a_part_of_a_table_makes_no_ghosts() {
    let victim = Victim::start("everything");
    let probe = Probe::new().unwrap();
    let tick = ProcessWatcher::new(&probe, victim.pid())
        .unwrap()
        .tick()
        .unwrap();
    let holdings = victim.holdings().iter();
    for holding in holdings.filter(|held| held.class.as_deref() == Some("eventpoll")) {
        let seen = tick.opened.iter().find(|entry| entry.fd == holding.fd);
        let Some(fdguard_core::Detail::Eventpoll(epoll)) = seen.map(|entry| &entry.detail) else {
            panic!("{holding:?}");
        };
        assert_eq!(epoll.ghosts, None, "not looked for, so not known");
    }
    // Everything else is reported as in a snapshot.
    for holding in victim.holdings() {
        let seen = tick
            .opened
            .iter()
            .find(|entry| entry.fd == holding.fd)
            .unwrap();
        if let Some(class) = &holding.class {
            assert_eq!(&seen.class.to_string(), class, "{holding:?}");
        }
    }
    victim.finish();
}
