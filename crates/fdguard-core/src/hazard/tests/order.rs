//! No hazard depends on the order in which two threads' events arrive.
//!
//! Simulates a program with several threads that open, lock, unlock and close descriptors of one
//! file. Each call takes some steps of a common clock and has its effect at one of them. The events
//! are those that the tracer reports: a close before and after the call, a lock before and after
//! it, an open after it. The moments of the effects are drawn again for the same events: a reported
//! hazard must be true in every such order.

use std::collections::BTreeSet;

use jiff::Timestamp;
use proptest::prelude::*;

use crate::event::{CloseCall, CollectedEvents, OpenCall, StackId, TraceEvent, What};
use crate::hazard::HazardDetector;
use crate::testing::trace_script::MAIN;
use crate::{Class, FileId};

const FILE: FileId = FileId { mnt: 1, ino: 9 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Open,
    Lock,
    Unlock,
    Close,
}

/// A call on the descriptor of a thread, which has one at a time.
#[derive(Clone, Debug)]
struct Call {
    thread: u32,
    act: Act,
    fd: u32,
    /// Steps of the clock: when it began and when it was over.
    span: (u64, u64),
}

/// The actions of threads, in sequence: open, lock, unlock or keep it, close.
fn calls() -> impl Strategy<Value = Vec<Call>> {
    let round = (
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec((0_u64..6, 0_u64..6), 4),
    );
    let thread = prop::collection::vec(round, 1..4);
    prop::collection::vec(thread, 1..4).prop_map(|threads| {
        let mut calls = Vec::new();
        for (thread, rounds) in (1..).zip(threads) {
            let mut now = 0;
            for (number, (locks, unlocks, pauses)) in (0..).zip(rounds) {
                let acts = [
                    (Act::Open, true),
                    (Act::Lock, locks),
                    (Act::Unlock, locks && unlocks),
                    (Act::Close, true),
                ];
                for ((act, happens), (pause, length)) in acts.into_iter().zip(pauses) {
                    if happens {
                        let began = now + 1 + pause;
                        now = began + 1 + length;
                        let fd = 10 * thread + number;
                        let span = (began, now);
                        calls.push(Call {
                            thread,
                            act,
                            fd,
                            span,
                        });
                    }
                }
            }
        }
        calls
    })
}

/// The tracer's events for a call, with the step of the clock.
fn told_of(call: &Call) -> Vec<(u64, What)> {
    let (began, over) = call.span;
    let fd = call.fd;
    let (file, range, errno) = (None, None, None);
    let lock = |taken| What::Lock {
        fd,
        file,
        range,
        taken,
    };
    let open = What::Open {
        fd,
        call: OpenCall::Open,
        class: Some(Class::Regular),
        file: Some(FILE),
        cloexec: true,
    };
    let close = CloseCall::Close;
    match call.act {
        Act::Open => vec![(over, open)],
        Act::Lock => vec![(began, What::Locking { fd }), (over, lock(true))],
        Act::Unlock => vec![(began, What::Locking { fd }), (over, lock(false))],
        Act::Close => vec![
            (
                began,
                What::Close {
                    fd,
                    call: close,
                    errno,
                },
            ),
            (over, What::CloseReturned { fd }),
        ],
    }
}

/// The tracer's events in order, and the exit of the process.
fn events(calls: &[Call]) -> Vec<TraceEvent> {
    let told = calls.iter().flat_map(|call| {
        let told = told_of(call).into_iter();
        told.map(|(at, what)| (at, call.thread, what))
    });
    let mut told: Vec<(u64, u32, What)> = told.collect();
    told.sort_by_key(|(at, thread, _)| (*at, *thread));
    told.push((u64::MAX, 0, What::Exit));
    let event = |(at, thread, what): (u64, u32, What)| TraceEvent {
        process: MAIN,
        thread,
        at,
        stack: Some(StackId(match what {
            What::Open { fd, .. } | What::Close { fd, .. } => fd,
            _ => 0,
        })),
        what,
    };
    told.into_iter().map(event).collect()
}

/// The numbers whose close dropped a lock taken through another one, with these moments for the
/// effects of the calls; and those of them that are detectable, because that other one was the last
/// to take a lock.
fn dropping(calls: &[Call], moments: &[u64]) -> [BTreeSet<u32>; 2] {
    let mut order: Vec<(u64, &Call)> = calls
        .iter()
        .zip(moments)
        .map(|(call, moment)| {
            // Within the call, before the event that is reported after it.
            let (began, over) = call.span;
            (2 * began + 1 + moment % (2 * (over - began) - 1), call)
        })
        .collect();
    order.sort_by_key(|(at, call)| (*at, call.thread));
    let (mut holders, mut any, mut last) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (_, call) in order {
        match call.act {
            Act::Open => {}
            Act::Lock => holders.push(call.fd),
            // Every lock covers the whole file and belongs to the process.
            Act::Unlock => holders.clear(),
            Act::Close => {
                let is_other = |holder: &u32| *holder != call.fd;
                if holders.iter().any(is_other) {
                    any.insert(call.fd);
                }
                if holders.last().is_some_and(is_other) {
                    last.insert(call.fd);
                }
                holders.clear();
            }
        }
    }
    [any, last]
}

fn told(events: &[TraceEvent]) -> BTreeSet<u32> {
    let mut detector = HazardDetector::new(CollectedEvents::ALL);
    for event in events {
        detector.observe(event);
    }
    let found = detector.hazards(&|_| Vec::new(), &|_| Timestamp::UNIX_EPOCH);
    let dropped = found
        .iter()
        .inspect(|hazard| assert_eq!(hazard.rule, "lock-drop"));
    dropped.filter_map(|hazard| hazard.fd).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn r43_a_lock_drop_is_told_only_if_it_happened_in_every_order_of_overlapping_calls(
        calls in calls(),
        orders in prop::collection::vec(prop::collection::vec(any::<u64>(), 64), 12),
    ) {
        let told = told(&events(&calls));
        for moments in orders {
            let [happened, _] = dropping(&calls, &moments);
            prop_assert!(told.is_subset(&happened), "told {told:?}, happened {happened:?}: {calls:?}");
        }
    }

    /// Without overlapping calls nothing is uncertain and nothing is missed.
    #[test]
    fn r43_without_overlaps_every_lock_drop_is_told(calls in calls()) {
        let mut calls = calls;
        calls.sort_by_key(|call| (call.span, call.thread));
        for (step, call) in (1_u64..).zip(&mut calls) {
            call.span = (10 * step, 10 * step + 5);
        }
        let [_, happened] = dropping(&calls, &vec![0; calls.len()]);
        prop_assert_eq!(told(&events(&calls)), happened);
    }

    /// Every descriptor is opened, used and closed properly, by one thread after the other:
    /// whatever is missing or late, no thread is accused.
    #[test]
    fn r40_what_is_missing_or_late_makes_no_hazard(
        calls in calls(),
        late in prop::collection::vec((0_usize..64, 1_usize..8), 0..6),
    ) {
        // The numbers are reused.
        let again = |call: Call| Call { fd: 3 + call.thread, ..call };
        let calls = calls.into_iter().filter(|call| call.act != Act::Lock);
        let calls: Vec<Call> = calls.map(again).collect();
        let events = events(&calls);
        let mut detector = HazardDetector::new(CollectedEvents::ALL);
        let is_late = |at: usize| late.iter().find(|(one, _)| *one == at).map(|(_, by)| *by);
        let mut waiting: Vec<(usize, &TraceEvent)> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            for (_, event) in waiting.extract_if(.., |(due, _)| *due <= at) {
                detector.observe_late(event);
            }
            match is_late(at) {
                Some(by) => {
                    detector.observe(&TraceEvent { what: What::Missing, ..event.clone() });
                    waiting.push((at + by, event));
                }
                None => detector.observe(event),
            }
        }
        let found = detector.hazards(&|_| Vec::new(), &|_| Timestamp::UNIX_EPOCH);
        prop_assert!(found.is_empty(), "{found:?}");
    }
}
