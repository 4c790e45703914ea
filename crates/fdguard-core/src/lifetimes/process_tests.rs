use std::collections::{BTreeSet, HashMap};

use super::testing::{PATH, ns};
use super::{Peak, ProcessLifetimes};
use crate::event::OpenCall;

fn process() -> ProcessLifetimes {
    ProcessLifetimes::new(0, BTreeSet::from([0, 1, 2]))
}

#[test]
fn the_peak_counts_what_was_there_before() {
    let mut process = process();
    process.open(3, PATH, 10, OpenCall::Open, 1);
    process.open(4, PATH, 20, OpenCall::Open, 1);
    process.close(3, 30, false);
    process.close(2, 35, false);
    process.open(3, PATH, 40, OpenCall::Open, 1);
    assert_eq!(process.peak(), Peak { count: 5, at: 20 });
    assert_eq!(process.count(), 4);
}

#[test]
fn an_open_that_is_reported_after_its_close_is_not_open_for_ever() {
    let mut process = process();
    process.close(3, 20, false);
    process.open(3, PATH, 10, OpenCall::Open, 1);
    let history = &process.histories(30)[&PATH];
    assert!(history.live.is_empty());
    assert_eq!((history.opened, history.closed), (1, 1));
    // A close older than the current descriptor of the number belongs to the one before.
    process.open(3, PATH, 40, OpenCall::Open, 1);
    process.close(3, 35, false);
    assert_eq!(process.histories(50)[&PATH].live.len(), 1);
}

#[test]
fn what_the_process_wrote_down_puts_lost_events_right() {
    let mut process = process();
    process.open(3, PATH, 10, OpenCall::Open, 1);
    process.open(4, PATH, 20, OpenCall::Open, 1);
    process.lose(100);
    let open = HashMap::from([
        (4, (PATH, 20, OpenCall::Open, 1)),
        (7, (PATH, 50, OpenCall::Socket, 1)),
    ]);
    process.reconcile(&open, [(PATH, 53, 51)], 60);
    let history = &process.histories(70)[&PATH];
    let fds: Vec<u32> = history.live.iter().map(|one| one.fd).collect();
    assert_eq!(fds, [4, 7]);
    assert_eq!((history.opened, history.closed), (53, 51));
    assert_eq!(process.lost(), 100);
}

#[test]
fn the_moment_the_end_begins_freezes_what_is_open() {
    let mut process = process();
    for nth in 0..10 {
        process.open(3 + nth, PATH, ns(f64::from(nth)), OpenCall::Open, 1);
    }
    process.end_begins(ns(9.5));
    process.open(40, PATH, ns(9.6), OpenCall::Open, 1);
    for nth in 0..10 {
        process.close(3 + nth, ns(10.0), false);
    }
    process.close(40, ns(10.1), false);
    let history = &process.histories(ns(60.0))[&PATH];
    assert_eq!((history.live.len(), history.recent.len()), (0, 10));
    assert!((history.until.real - 9.5).abs() < 1e-9);
}

#[test]
fn close_range_ends_all_that_it_covers() {
    let mut process = process();
    process.open(3, PATH, 10, OpenCall::Open, 1);
    process.open(9, PATH, 11, OpenCall::Open, 1);
    process.close_range(0, 5, 20);
    assert_eq!(process.count(), 1);
    let known: HashMap<u32, Option<u64>> = process.known().collect();
    assert_eq!(known, HashMap::from([(3, Some(20)), (9, None)]));
    assert_eq!(
        (process.opened_at(9), process.opened_at(3)),
        (Some(11), None)
    );
}

#[test]
fn a_number_whose_later_open_was_not_seen_is_known_only_until_the_close_before() {
    let mut process = process();
    process.open(3, PATH, 10, OpenCall::Open, 1);
    process.close(3, 20, false);
    // Opened by a direct system call, and closed by the C library.
    process.close(3, 50, false);
    assert_eq!(process.known().collect::<Vec<_>>(), [(3, Some(20))]);
}

#[test]
fn another_path_takes_over_what_it_asked_for() {
    let mut process = process();
    process.open(3, PATH, 10, OpenCall::Open, 1);
    process.assign(3, 9);
    let histories = process.histories(20);
    assert_eq!((histories[&PATH].opened, histories[&9].opened), (0, 1));
    assert_eq!(histories[&9].live.len(), 1);
}
