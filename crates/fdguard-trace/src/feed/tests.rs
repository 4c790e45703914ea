//! Synthetic records.

use fdguard_core::event::{StackId, TraceEvent, What};
use fdguard_core::{Class, TcpState, TraceKey};
use fdguard_wire::{CloseCall, EventKind, EventRecord, FdCall, OpenCall, PreventedHarm};

use super::{Delivery, Feed, PATIENCE};
use crate::ring::DrainedEvents;

const PROCESS: TraceKey = TraceKey { pid: 7, began: 70 };

fn record(kind: EventKind, tid: u32, fd: u32, code: u8) -> EventRecord {
    EventRecord {
        kind,
        code,
        errno: 0,
        tid,
        ns: 1000,
        fd,
        stack: 0,
        more: [0; 2],
    }
}

/// Adds events with the next tickets.
fn give<const N: usize>(feed: &mut Feed, events: [EventRecord; N]) {
    let next = feed.read + N as u64;
    let tickets = (feed.read..next).collect();
    give_as(feed, events, tickets, next);
}

fn give_as<const N: usize>(
    feed: &mut Feed,
    events: [EventRecord; N],
    tickets: Vec<u64>,
    next: u64,
) {
    feed.push(DrainedEvents {
        events: events.to_vec(),
        tickets,
        next,
        ..DrainedEvents::default()
    });
}

fn drain(feed: &mut Feed, now: u64, is_end: bool) -> Vec<TraceEvent> {
    let events = std::iter::from_fn(|| feed.next(now, is_end, &mut StackId));
    let is_told = |event: &TraceEvent| !matches!(event.what, What::CloseReturned { .. });
    events.filter(is_told).collect()
}

fn class_of(event: &TraceEvent) -> Option<&Class> {
    match &event.what {
        What::Open { class, .. } => class.as_ref(),
        _ => None,
    }
}

#[test]
fn what_comes_out_of_another_number_is_what_that_one_is() {
    let mut feed = Feed::new(PROCESS);
    let mut socket = record(EventKind::Open, 1, 3, OpenCall::Socket as u8);
    socket.more[0] = 2 << 32 | 1 | 0o2_000_000;
    let mut accepted = record(EventKind::Open, 1, 4, OpenCall::Accept as u8);
    accepted.more[0] = 3 + 1;
    let mut copied = record(EventKind::Open, 1, 5, OpenCall::Dup as u8);
    copied.more[0] = 4 + 1;
    let closed = record(EventKind::Close, 1, 4, 0);
    let mut stale = record(EventKind::Open, 1, 6, OpenCall::Dup as u8);
    stale.more[0] = 4 + 1;
    give(&mut feed, [socket, accepted, copied, closed, stale]);
    let events = drain(&mut feed, 1000, false);
    let classes: Vec<_> = events.iter().map(class_of).collect();
    let tcp = [TcpState::Unbound, TcpState::Established].map(Class::Tcp);
    let expected = [Some(&tcp[0]), Some(&tcp[1]), Some(&tcp[1]), None, None];
    assert_eq!(classes, expected);
}

#[test]
fn a_close_under_a_call_waits_for_who_is_inside_to_tell_where_it_is() {
    let mut feed = Feed::new(PROCESS);
    let inside = record(EventKind::Inside, 9, 5, FdCall::Recv as u8);
    give(&mut feed, [inside, record(EventKind::Close, 1, 5, 0)]);
    assert_eq!(drain(&mut feed, 2000, false), []);
    let mut out = record(EventKind::Use, 9, 5, FdCall::Recv as u8 | FdCall::TORN);
    out.stack = 33;
    give(&mut feed, [out]);
    let events = drain(&mut feed, 2000, false);
    assert_eq!(events.len(), 3);
    assert_eq!((events[0].thread, events[0].stack), (9, Some(StackId(33))));
    let call = FdCall::Recv;
    assert_eq!(events[0].what, What::Enter { fd: 5, call });
}

#[test]
fn who_never_comes_out_is_not_waited_for_without_end() {
    for (now, is_end) in [(1001 + PATIENCE, false), (1001, true)] {
        let mut feed = Feed::new(PROCESS);
        let inside = record(EventKind::Inside, 9, 5, FdCall::Recv as u8);
        give(&mut feed, [inside, record(EventKind::Close, 1, 5, 0)]);
        let events = drain(&mut feed, now, is_end);
        assert_eq!((events.len(), events[0].stack), (2, None));
    }
}

#[test]
fn who_a_prevented_close_waited_for_was_inside_although_it_came_out_first() {
    for (bits, expected) in [(0, 1), (PreventedHarm::BIT, 2)] {
        let mut feed = Feed::new(PROCESS);
        let inside = record(EventKind::Inside, 9, 5, FdCall::Recv as u8);
        let mut close = record(EventKind::Close, 1, 5, bits);
        close.more[0] = 10;
        let out = record(EventKind::Use, 9, 5, FdCall::Recv as u8 | FdCall::TORN);
        give(&mut feed, [inside, close, out]);
        let events = drain(&mut feed, 0, true);
        let told = events
            .iter()
            .filter(|event| matches!(event.what, What::Enter { .. } | What::Close { .. }));
        assert_eq!(told.count(), expected);
    }
}

#[test]
fn the_header_of_a_record_keeps_its_zeros() {
    let mut feed = Feed::new(PROCESS);
    let mut write = record(EventKind::Use, 1, 5, FdCall::Write as u8);
    write.more[0] = u64::from_ne_bytes([23, 3, 3, 0, 0, 0, 0, 0]);
    give(
        &mut feed,
        [write, record(EventKind::Use, 1, 5, FdCall::Read as u8)],
    );
    let bytes: Vec<Vec<u8>> = drain(&mut feed, 0, true)
        .into_iter()
        .map(|event| match event.what {
            What::Use { bytes, .. } => bytes,
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(bytes, [vec![23, 3, 3, 0, 0], vec![]]);
}

#[test]
fn a_write_that_succeeds_is_what_the_other_thread_waited_for_before_it_closed() {
    let inside = record(EventKind::Inside, 9, 5, FdCall::Send as u8);
    let mut out = record(EventKind::Use, 9, 5, FdCall::Send as u8 | FdCall::TORN);
    out.stack = 33;
    let told = |errno: u16| {
        let mut feed = Feed::new(PROCESS);
        give(
            &mut feed,
            [
                inside,
                record(EventKind::Close, 1, 5, 0),
                EventRecord { errno, ..out },
            ],
        );
        let events = drain(&mut feed, 2000, false);
        matches!(events[0].what, What::Enter { .. })
    };
    assert!(!told(0), "its message is why the number was closed");
    assert!(told(32), "it was cut off");
    let mut feed = Feed::new(PROCESS);
    give(&mut feed, [inside, record(EventKind::Close, 1, 5, 0)]);
    assert_eq!(
        drain(&mut feed, 1001 + PATIENCE, false).len(),
        2,
        "it is stuck"
    );
}

#[test]
fn what_protection_kept_from_happening_is_the_same_event_with_a_bit_more() {
    let mut feed = Feed::new(PROCESS);
    let close = record(EventKind::Close, 1, 4, PreventedHarm::BIT);
    let read = record(
        EventKind::Use,
        1,
        4,
        FdCall::Read as u8 | PreventedHarm::BIT,
    );
    // The same bit has another meaning here.
    let open = record(EventKind::Open, 1, 4, PreventedHarm::BIT);
    give(&mut feed, [close, read, open]);
    let mut next = || {
        let event = feed.next(1000, false, &mut StackId).unwrap();
        (event.what, feed.delivery() == Delivery::Prevented)
    };
    let (what, is_prevented) = next();
    let is_close = matches!(what, What::Close { call, .. } if call == CloseCall::Close);
    assert!(is_close && is_prevented, "{what:?}");
    assert!(matches!(next().0, What::CloseReturned { fd: 4 }));
    let (what, is_prevented) = next();
    let is_read = matches!(what, What::Use { call, .. } if call == FdCall::Read);
    assert!(is_read && is_prevented, "{what:?}");
    assert!(!next().1);
}

/// A closer that is not scheduled for a while between its check for threads inside and its close:
/// the reader may have continued since.
#[test]
fn who_came_out_with_success_before_the_close_returned_was_perhaps_not_inside() {
    let told = |until: u64, errno: u16| {
        let mut feed = Feed::new(PROCESS);
        let inside = record(EventKind::Inside, 9, 5, FdCall::Recv as u8);
        let mut close = record(EventKind::Close, 1, 5, 0);
        close.more[0] = until;
        let mut out = record(EventKind::Use, 9, 5, FdCall::Recv as u8 | FdCall::TORN);
        out.errno = errno;
        give(&mut feed, [inside, close, out]);
        let events = drain(&mut feed, 2000, false);
        matches!(events[0].what, What::Enter { .. })
    };
    assert!(told(2, 0), "the close had returned: it was still inside");
    assert!(!told(3, 0));
    assert!(told(3, 104), "it was cut off");
}

#[test]
fn a_close_is_over_before_the_first_event_that_took_its_ticket_after_it() {
    let mut feed = Feed::new(PROCESS);
    let mut close = record(EventKind::Close, 1, 5, 0);
    close.more[0] = 3;
    let lock = |kind, code| record(kind, 2, 6, code);
    let records = [
        close,
        lock(EventKind::Lock, fdguard_wire::LOCK_BEGINS),
        lock(EventKind::Unlock, 0),
        lock(EventKind::Lock, 0),
    ];
    give(&mut feed, records);
    let events: Vec<TraceEvent> =
        std::iter::from_fn(|| feed.next(2000, false, &mut StackId)).collect();
    let at = |is_it: fn(&What) -> bool| events.iter().position(|event| is_it(&event.what));
    assert_eq!(at(|what| matches!(what, What::Locking { fd: 6 })), Some(1));
    assert_eq!(
        at(|what| matches!(what, What::CloseReturned { fd: 5 })),
        Some(3)
    );
    assert_eq!(events.len(), 5);
    assert!(feed.closing.is_empty());
}

#[test]
fn a_ticket_that_is_passed_over_is_told_as_missing_and_its_event_as_late() {
    let mut feed = Feed::new(PROCESS);
    let open = |fd| record(EventKind::Open, 1, fd, OpenCall::Open as u8);
    give_as(&mut feed, [open(3), open(5)], vec![0, 2], 3);
    give_as(&mut feed, [open(4), open(6)], vec![1, 3], 4);
    let mut deliveries = Vec::new();
    while let Some(event) = feed.next(2000, false, &mut StackId) {
        deliveries.push((event.what == What::Missing, feed.delivery()));
    }
    let in_order = (false, Delivery::InOrder);
    let missing = (true, Delivery::InOrder);
    let late = (false, Delivery::Late);
    assert_eq!(deliveries, [in_order, missing, in_order, late, in_order]);
}
