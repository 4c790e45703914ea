use proptest::prelude::*;

use super::model::Model;
use super::{FdProvenance, Ledger, ObservedFd};
use crate::event::{CloseCall, Errno, FdCall, OpenCall, StackId, TraceEvent, What};
use crate::testing::trace_script::{MAIN, TraceScript, process, traced};
use crate::{Class, Fd, FileId, TraceKey};

const CHILD: TraceKey = process(1001);

fn ledger(told: &TraceScript) -> Ledger {
    let mut ledger = Ledger::new();
    for event in &told.events {
        ledger.apply(event);
    }
    ledger
}

fn open(ledger: &Ledger, process: TraceKey) -> Vec<Fd> {
    ledger.live(process).map(|(fd, _)| fd).collect()
}

fn fork(t: &mut TraceScript, child: TraceKey, shares_table: bool) {
    let fork = What::Fork {
        child,
        shares_table,
    };
    t.add(1, "spawn", fork);
}

#[test]
fn r19_places_are_ranked_by_what_is_still_open() {
    let told = traced(|t| {
        for fd in 3..6 {
            t.file(1, "cache", fd);
        }
        for _ in 0..10 {
            t.file(2, "request", 9);
            t.close(2, "request", 9);
        }
        t.socket(7, "connect", 6);
    });
    let ledger = ledger(&told);
    let origins = ledger.origins(MAIN);
    let counts: Vec<_> = origins
        .iter()
        .map(|one| (one.live, one.opened, one.closed))
        .collect();
    assert_eq!(counts, [(3, 3, 0), (1, 1, 0), (0, 10, 10)]);
    let first = origins[0].origin(1_000_001_000, &|id| told.resolve(id));
    assert_eq!(first.culprit.unwrap().function.as_deref(), Some("cache"));
    assert_eq!(
        (first.thread, first.oldest_age_seconds),
        (Some(1), Some(1.0))
    );
    assert_eq!(origins[2].oldest, None);
}

#[test]
fn r21_who_closed_a_number_is_remembered_with_thread_and_place() {
    let told = traced(|t| {
        t.socket(1, "connect", 5);
        t.close(2, "interrupt", 5);
        t.file(3, "journal", 5);
    });
    let ledger = ledger(&told);
    let closes: Vec<_> = ledger.closes_of(MAIN, 5).collect();
    assert_eq!(closes.len(), 1);
    let closer = closes[0].closer.unwrap();
    assert_eq!((closer.thread, closes[0].call), (2, CloseCall::Close));
    assert!(closes[0].life.is_opened_by(1));
    let now = ledger.slot(MAIN, 5).unwrap().current().unwrap();
    assert!(now.generation > closes[0].life.generation);
}

#[test]
fn a_forked_child_has_its_own_copy_and_no_past() {
    let told = traced(|t| {
        t.file(1, "log", 4);
        t.file(1, "log", 5);
        t.close(1, "log", 5);
        fork(t, CHILD, false);
        t.switch(CHILD);
        t.close(9, "child", 4);
    });
    let ledger = ledger(&told);
    assert_eq!(
        (open(&ledger, MAIN), open(&ledger, CHILD)),
        (vec![4], vec![])
    );
    assert_eq!(ledger.closes_of(CHILD, 5).count(), 0);
    assert!(ledger.closes_of(CHILD, 4).next().unwrap().life.inherited);
}

#[test]
fn a_shared_table_is_one_table_until_exec() {
    let told = traced(|t| {
        t.file(1, "log", 4);
        fork(t, CHILD, true);
        t.switch(CHILD);
        t.file(9, "child", 5);
        t.add(9, "child", What::Cloexec { fd: 4, on: false });
    });
    let mut ledger = ledger(&told);
    assert!(ledger.share_table(MAIN, CHILD));
    assert_eq!(open(&ledger, MAIN), [4, 5]);
    let exec = TraceEvent {
        process: CHILD,
        thread: 9,
        at: 1 << 20,
        stack: None,
        what: What::Exec { kept: None },
    };
    ledger.apply(&exec);
    assert!(!ledger.share_table(MAIN, CHILD));
    assert_eq!(
        (open(&ledger, MAIN), open(&ledger, CHILD)),
        (vec![4, 5], vec![4])
    );
}

#[test]
fn r19_what_was_open_at_the_end_can_still_be_asked() {
    let told = traced(|t| {
        t.file(1, "leak", 4);
        t.add(1, "main", What::Exit);
    });
    let ledger = ledger(&told);
    assert!(open(&ledger, MAIN).is_empty());
    assert_eq!(ledger.origins(MAIN)[0].live, 1);
    assert_eq!(ledger.processes().count(), 0);
}

#[test]
fn a_close_that_is_told_late_belongs_to_the_one_before() {
    let mut told = traced(|t| {
        t.socket(1, "connect", 5);
        t.close(2, "interrupt", 5);
        t.file(3, "journal", 5);
    });
    told.events.swap(1, 2);
    let ledger = ledger(&told);
    assert_eq!(open(&ledger, MAIN), [5]);
    let past = ledger.closes_of(MAIN, 5).next().unwrap();
    assert_eq!(past.closer.unwrap().thread, 2);
    assert!(past.life.is_opened_by(1));
}

#[test]
fn r20_a_close_without_a_birth_was_opened_unseen() {
    let ledger = ledger(&traced(|t| t.close(1, "main", 5)));
    assert_eq!(ledger.unseen_opens(), 1);
    let past = ledger.closes_of(MAIN, 5).next().unwrap();
    assert_eq!(
        (past.life.opener, past.life.call),
        (None, OpenCall::Unknown)
    );
}

#[test]
fn proc_corrects_what_was_closed_inside_libc_and_adds_what_nobody_saw() {
    let told = traced(|t| {
        t.inode(1, "fopen", 4, 44);
        t.inode(1, "open", 5, 55);
        t.file(1, "open", 6);
        t.file(1, "late", 9);
    });
    let mut ledger = ledger(&told);
    let seen = |fd, ino| ObservedFd {
        fd,
        file: Some(FileId { mnt: 1, ino }),
        class: Some(Class::SqliteDb),
    };
    let shown = [seen(0, 1), seen(5, 77), seen(6, 66)];
    let outcome = ledger.reconcile(MAIN, 3500, &shown);
    assert_eq!(outcome.corrected, [4, 5], "9 was opened after the look");
    let standings: Vec<Fd> = outcome.live.keys().copied().collect();
    assert_eq!(standings, [0, 5, 6, 9]);
    assert_eq!(outcome.live[&0], FdProvenance::Unknown);
    assert_eq!(outcome.live[&5], FdProvenance::Unknown);
    assert!(matches!(
        outcome.live[&6],
        FdProvenance::TraceScript(Some(_))
    ));
    assert_eq!(outcome.attributed(), 2);
    let six = ledger.slot(MAIN, 6).unwrap().current().unwrap();
    assert_eq!(
        (six.class.as_ref(), six.file.unwrap().ino),
        (Some(&Class::SqliteDb), 66)
    );
    let again = ledger.reconcile(MAIN, 3500, &shown);
    assert!(again.corrected.is_empty(), "once is enough");
}

#[test]
fn a_million_events_of_ever_new_numbers_processes_and_places_stay_small() {
    let mut ledger = Ledger::new();
    for step in 0..1_000_000_u32 {
        let what = match step % 3 {
            0 => What::Open {
                fd: step,
                call: OpenCall::Open,
                class: None,
                file: None,
                cloexec: false,
            },
            1 => What::Close {
                fd: step - 1,
                call: CloseCall::Close,
                errno: None,
            },
            _ => What::Close {
                fd: step,
                call: CloseCall::Close,
                errno: None,
            },
        };
        let pid = if step % 200 == 0 { step } else { 7 };
        ledger.apply(&TraceEvent {
            process: process(pid),
            thread: step,
            at: u64::from(step),
            stack: Some(StackId(step)),
            what,
        });
    }
    assert!(ledger.processes().count() <= super::MOST_PROCESSES);
    let table = ledger.table(process(7)).unwrap();
    assert!(table.size() < 1 << 15, "{}", table.size());
    assert!(ledger.origins(process(7)).len() <= 1 << 16);
}

const NUMBERS: std::ops::Range<Fd> = 0..8;

fn processes() -> impl Strategy<Value = TraceKey> {
    (1_u32..4).prop_map(process)
}

fn what() -> impl Strategy<Value = What> {
    let cloexec = any::<bool>();
    let errno = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Errno::Ebadf)),
        1 => Just(Some(Errno::Eintr)),
    ];
    let call = prop_oneof![Just(CloseCall::Close), Just(CloseCall::Dup2)];
    let open = (NUMBERS, cloexec).prop_map(|(fd, cloexec)| What::Open {
        fd,
        call: OpenCall::Open,
        class: None,
        file: None,
        cloexec,
    });
    let close = (NUMBERS, call, errno.clone()).prop_map(|(fd, call, errno)| What::Close {
        fd,
        call,
        errno,
    });
    let used = (NUMBERS, errno).prop_map(|(fd, errno)| What::Use {
        fd,
        call: FdCall::Read,
        bytes: Vec::new(),
        errno,
    });
    let range =
        (NUMBERS, NUMBERS, any::<bool>()).prop_map(|(first, last, at_exec)| What::CloseRange {
            first,
            last,
            at_exec,
        });
    let marked = (NUMBERS, any::<bool>()).prop_map(|(fd, on)| What::Cloexec { fd, on });
    let fork = (processes(), any::<bool>()).prop_map(|(child, shares_table)| What::Fork {
        child,
        shares_table,
    });
    let kept = prop::option::of(prop::collection::vec(NUMBERS, 0..4));
    prop_oneof![
        10 => open,
        8 => close,
        3 => used,
        1 => range,
        2 => marked,
        2 => fork,
        1 => kept.prop_map(|kept| What::Exec { kept }),
        1 => Just(What::Exit),
        1 => Just(What::Lost { count: 3 }),
        1 => Just(What::Leave),
    ]
}

fn events() -> impl Strategy<Value = Vec<TraceEvent>> {
    let event = (
        processes(),
        1_u32..4,
        prop::option::of((0_u32..4).prop_map(StackId)),
        0_u64..40,
        what(),
    );
    prop::collection::vec(event, 0..120).prop_map(|told| {
        let event = |(step, (process, thread, stack, late, what)): (usize, _)| TraceEvent {
            process,
            thread,
            // Occasionally a time before that of the previous event.
            at: 100 + 10 * u64::try_from(step).unwrap() - late,
            stack,
            what,
        };
        told.into_iter().enumerate().map(event).collect()
    })
}

proptest! {
    #[test]
    fn r19_the_ledger_says_what_the_simple_model_says(events in events()) {
        let (mut ledger, mut model) = (Ledger::new(), Model::default());
        for event in &events {
            ledger.apply(event);
            model.apply(event);
            for pid in 1..4 {
                model.compare(&ledger, process(pid), NUMBERS);
            }
        }
    }
}
