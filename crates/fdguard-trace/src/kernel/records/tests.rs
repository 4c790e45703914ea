//! Events in, tables and records out.

use std::sync::Arc;

use fdguard_core::TraceKey;
use fdguard_kernel::{KernelEvent, Occurrence};
use fdguard_wire::{CloseCall, EventKind, EventRecord, OpenCall};

use super::{KernelRecords, ProcessChange};
use crate::kernel::stack_store::StackStore;
use crate::table::{ProcessTable, RawFrame};

const OWN: u32 = 1;
const OPENAT: u32 = 257;
const CLOSE: u32 = 3;
const DUP2: u32 = 33;
const IOCTL: u32 = 16;

/// A trace with a clock that ticks once per event.
struct Story {
    records: KernelRecords,
    stacks: Arc<StackStore>,
    at: u64,
}

impl Story {
    fn new() -> Self {
        Self {
            records: KernelRecords::new(OWN),
            stacks: Arc::default(),
            at: 100,
        }
    }

    /// A process that has these numbers open already.
    fn with(pid: u32, open: &[u32]) -> Self {
        let mut story = Self::new();
        let key = story.records.ensure(pid, story.at).unwrap();
        story.records.add_before(key, open.iter().copied());
        story
    }

    fn event(&mut self, (pid, tid): (u32, u32), table: u64, stack: u32, what: Occurrence) {
        self.at += 1;
        self.records.apply(&KernelEvent {
            at: self.at,
            pid,
            tid,
            table,
            stack,
            what,
        });
    }

    fn open(&mut self, pid: u32, table: u64, fd: u32, stack: u32) {
        let file = u64::from(fd) * 1000 + self.at;
        self.open_by(pid, table, (fd, OPENAT, file), stack);
    }

    fn open_by(&mut self, pid: u32, table: u64, (fd, call, file): (u32, u32, u64), stack: u32) {
        let what = Occurrence::Opened {
            fd,
            call,
            file,
            arguments: [0; 3],
        };
        self.event((pid, pid), table, stack, what);
    }

    fn close(&mut self, pid: u32, table: u64, fd: u32, errno: u16) {
        let what = Occurrence::Closed {
            fd,
            call: CLOSE,
            errno,
            file: u64::from(errno == 0),
            is_finalized: false,
        };
        self.event((pid, pid), table, 0, what);
    }

    fn fork(&mut self, pid: u32, table: u64, child: u32, child_table: u64) {
        let what = Occurrence::Forked {
            child,
            child_table,
            open: None,
        };
        self.event((pid, pid), table, 0, what);
    }

    fn exec(&mut self, pid: u32, table: u64, open: &[u32]) {
        let open = open.to_vec();
        self.event((pid, pid), table, 0, Occurrence::Executed { open });
    }

    fn key(&self, pid: u32) -> TraceKey {
        self.records.current(pid).unwrap()
    }

    fn table(&self, pid: u32) -> ProcessTable {
        self.table_at(self.key(pid))
    }

    fn table_at(&self, key: TraceKey) -> ProcessTable {
        self.records.table(key, &self.stacks).unwrap()
    }

    fn open_fds(&self, pid: u32) -> Vec<u32> {
        let table = self.table(pid);
        table.open.keys().copied().collect()
    }

    fn events(&mut self, pid: u32) -> Vec<EventRecord> {
        let key = self.key(pid);
        let drained = self.records.drain(key, &self.stacks, false);
        drained.unwrap().events
    }
}

fn kinds(events: &[EventRecord]) -> Vec<(EventKind, u32)> {
    events.iter().map(|one| (one.kind, one.fd)).collect()
}

#[test]
fn opens_and_closes_are_in_the_table_and_in_the_records() {
    let mut story = Story::with(7, &[0, 1, 2]);
    story.open(7, 0xa, 3, 11);
    story.open(7, 0xa, 4, 11);
    story.close(7, 0xa, 3, 0);
    let table = story.table(7);
    assert_eq!(story.open_fds(7), [4]);
    assert_eq!(table.inherited, [0, 1, 2]);
    assert!(table.is_attached && table.closed.contains(&3));
    let account = table.accounts[&11];
    assert_eq!((account.opened, account.closed), (2, 1));
    let events = story.events(7);
    let wanted = [
        (EventKind::Open, 3),
        (EventKind::Open, 4),
        (EventKind::Close, 3),
    ];
    assert_eq!(kinds(&events), wanted);
    assert_eq!(events[0].code, OpenCall::Open as u8);
    assert!(story.events(7).is_empty());
}

#[test]
fn an_event_waits_until_its_stack_is_unwound() {
    let mut story = Story::with(7, &[]);
    story.stacks.expect(11);
    story.close(7, 0xa, 9, 9);
    story.open(7, 0xa, 3, 11);
    story.close(7, 0xa, 3, 0);
    assert_eq!(kinds(&story.events(7)), [(EventKind::Close, 9)]);
    assert!(story.events(7).is_empty());
    story.stacks.insert(11, vec![RawFrame::Unknown(1)]);
    let key = story.key(7);
    let drained = story.records.drain(key, &story.stacks, false).unwrap();
    assert_eq!(drained.tickets, [1, 2]);
    assert_eq!(drained.next, 3);
    assert_eq!(story.table(7).raw_frames(11), [RawFrame::Unknown(1)]);
}

#[test]
fn a_child_has_a_copy_and_its_own_changes() {
    let mut story = Story::with(7, &[0]);
    story.open(7, 0xa, 3, 11);
    story.fork(7, 0xa, 8, 0xb);
    story.close(8, 0xb, 3, 0);
    story.open(8, 0xb, 4, 12);
    story.open(7, 0xa, 5, 13);
    assert_eq!(story.open_fds(7), [3, 5]);
    assert_eq!(story.open_fds(8), [4]);
    let child = story.table(8);
    assert_eq!(child.parent, Some(story.key(7)));
    assert!(!child.accounts.contains_key(&11), "the parent opened it");
    assert_eq!(child.inherited, [0]);
    let copied = Story::with(7, &[]).records;
    assert_eq!(copied.keys().len(), 1);
}

#[test]
fn a_descriptor_of_the_parent_keeps_its_stack_in_the_child() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.fork(7, 0xa, 8, 0xb);
    story.fork(8, 0xb, 9, 0xc);
    let open = story.table(9).open[&3];
    assert_eq!((open.forks, open.stack), (2, 11));
}

#[test]
fn processes_that_share_a_table_see_the_same() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.fork(7, 0xa, 8, 0xa);
    story.open(8, 0xa, 4, 12);
    story.close(8, 0xa, 3, 0);
    assert_eq!(story.open_fds(7), [4]);
    assert_eq!(story.open_fds(8), [4]);
    let account = story.table(7).accounts[&11];
    assert_eq!((account.opened, account.closed), (1, 1));
    story.event((8, 8), 0xa, 0, Occurrence::Exited);
    assert_eq!(story.open_fds(7), [4]);
}

#[test]
fn exec_begins_a_program_with_what_remains_and_keeps_what_was() {
    let mut story = Story::with(7, &[0, 1, 2]);
    story.open(7, 0xa, 3, 11);
    story.open(7, 0xa, 4, 11);
    let before = story.key(7);
    story.exec(7, 0xa, &[0, 1, 2, 4]);
    let after = story.key(7);
    assert!(after.began > before.began && after.pid == 7);
    assert_eq!(story.table(7).inherited, [0, 1, 2, 4]);
    assert!(story.open_fds(7).is_empty());
    let was: Vec<u32> = story.table_at(before).open.keys().copied().collect();
    assert_eq!(was, [3, 4]);
    assert!(story.records.is_over(before) && !story.records.is_over(after));
    story.records.remove(before);
    assert_eq!(story.records.keys(), [after]);
    story.records.remove(after);
    assert_eq!(story.records.keys(), [after], "it still runs");
}

#[test]
fn a_program_that_fdguard_starts_begins_with_its_exec() {
    let mut story = Story::new();
    story.fork(OWN, 0x1, 8, 0xb);
    story.open(8, 0xb, 3, 11);
    assert!(story.records.keys().is_empty());
    story.exec(8, 0xb, &[0, 1, 2]);
    let key = story.key(8);
    assert_eq!(story.records.keys(), [key]);
    assert_eq!(story.table(8).inherited, [0, 1, 2]);
    assert!(!story.table(8).is_attached);
    story.open(OWN, 0x1, 9, 11);
    assert_eq!(story.records.keys(), [key], "fdguard itself is not traced");
    let changes = story.records.take_changes();
    assert!(changes.contains(&ProcessChange::Executed(key)));
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let mut story = Story::new();
    story.fork(OWN, 0x1, 8, 0xb);
    story.event((8, 8), 0xb, 0, Occurrence::Exited);
    assert!(story.records.keys().is_empty() && story.records.pids().is_empty());
}

#[test]
fn a_spawned_program_has_no_record_of_the_fork() {
    let mut story = Story::with(7, &[0]);
    story.fork(7, 0xa, 8, 0xb);
    story.exec(8, 0xb, &[0]);
    assert_eq!(story.records.keys(), [story.key(7), story.key(8)]);
}

#[test]
fn what_a_killed_worker_held_stays_known() {
    let mut story = Story::with(7, &[0]);
    story.fork(7, 0xa, 8, 0xb);
    let worker = story.key(8);
    story.open(8, 0xb, 5, 12);
    story.event((8, 8), 0xb, 0, Occurrence::Exited);
    assert!(story.records.is_over(worker));
    assert!(story.table_at(worker).open.contains_key(&5));
    // The address of its table is used again by another child.
    story.fork(7, 0xa, 9, 0xb);
    story.open(9, 0xb, 6, 12);
    assert_eq!(story.open_fds(9), [6]);
    assert!(!story.table_at(worker).open.contains_key(&6));
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut story = Story::with(7, &[0]);
    story.fork(7, 0xa, 8, 0xb);
    let first = story.key(8);
    story.open(8, 0xb, 5, 12);
    // Its exit was lost.
    story.fork(7, 0xa, 8, 0xc);
    assert_ne!(story.key(8), first);
    assert!(story.records.is_over(first));
    assert!(story.open_fds(8).is_empty());
}

#[test]
fn an_open_that_a_comparison_also_finds_counts_once() {
    let mut story = Story::with(7, &[]);
    story.open_by(7, 0xa, (3, OPENAT, 0xf00), 11);
    story.open_by(7, 0xa, (3, IOCTL, 0xf00), 12);
    assert_eq!(story.table(7).open[&3].stack, 11);
    // The comparison comes first: the call that returned the number is right.
    story.open_by(7, 0xa, (4, IOCTL, 0xf01), 12);
    story.open_by(7, 0xa, (4, OPENAT, 0xf01), 11);
    let table = story.table(7);
    assert_eq!(table.open[&4].stack, 11);
    assert_eq!(table.accounts[&11].opened, 2);
    assert_eq!(table.accounts[&12].opened, 0);
    let wanted = [
        (EventKind::Open, 3),
        (EventKind::Open, 4),
        (EventKind::Reassigned, 4),
    ];
    assert_eq!(kinds(&story.events(7)), wanted);
}

#[test]
fn a_comparison_that_is_older_than_what_is_known_means_nothing() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.close(7, 0xa, 3, 0);
    story.at -= 2;
    story.open_by(7, 0xa, (3, IOCTL, 0xf00), 12);
    assert!(story.open_fds(7).is_empty());
}

#[test]
fn a_childs_copy_is_what_the_kernel_lists() {
    let mut story = Story::with(7, &[0]);
    story.open(7, 0xa, 3, 11);
    story.open(7, 0xa, 4, 11);
    let what = Occurrence::Forked {
        child: 8,
        child_table: 0xb,
        open: Some(vec![0, 4, 5]),
    };
    story.event((7, 7), 0xa, 0, what);
    assert_eq!(story.open_fds(8), [4]);
    assert_eq!(story.table(8).inherited, [0, 5]);
}

#[test]
fn a_number_that_is_opened_twice_was_closed_unseen() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.open(7, 0xa, 3, 12);
    let table = story.table(7);
    assert_eq!((table.open[&3].stack, table.unseen_closes), (12, 1));
    let events = story.events(7);
    assert_eq!(events[1].kind, EventKind::Close);
    assert_eq!(events[1].code, CloseCall::Unknown as u8);
}

#[test]
fn dup2_closes_its_target_and_a_free_target_is_no_close() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    let dup2 = |fd, file| Occurrence::Closed {
        fd,
        call: DUP2,
        errno: 0,
        file,
        is_finalized: false,
    };
    story.event((7, 7), 0xa, 0, dup2(3, 0xf00));
    story.event((7, 7), 0xa, 0, dup2(9, 0));
    let events = story.events(7);
    assert_eq!(
        kinds(&events),
        [(EventKind::Open, 3), (EventKind::Close, 3)]
    );
    assert_eq!(events[1].code, CloseCall::Dup2 as u8);
}

#[test]
fn a_failed_close_changes_nothing_and_is_reported() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.close(7, 0xa, 3, 9);
    assert_eq!(story.open_fds(7), [3]);
    assert_eq!(story.events(7)[1].errno, 9);
}

#[test]
fn a_range_is_closed_at_once() {
    let mut story = Story::with(7, &[0, 1, 2]);
    for fd in 3..8 {
        story.open(7, 0xa, fd, 11);
    }
    let (first, last) = (4, u32::MAX);
    story.event((7, 7), 0xa, 0, Occurrence::ClosedRange { first, last });
    assert_eq!(story.open_fds(7), [3]);
    let account = story.table(7).accounts[&11];
    assert_eq!((account.opened, account.closed), (5, 4));
    let range = story.events(7).pop().unwrap();
    assert_eq!((range.kind, range.fd), (EventKind::CloseRange, 4));
    assert_eq!(range.more[0], u64::from(u32::MAX));
}

#[test]
fn a_thread_with_its_own_table_does_not_change_that_of_its_process() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    let open = Occurrence::Opened {
        fd: 3,
        call: OPENAT,
        file: 1,
        arguments: [0; 3],
    };
    story.event((7, 70), 0xb, 12, open);
    assert_eq!(story.table(7).open[&3].stack, 11);
    assert_eq!(story.records.unseen().foreign, 1);
    // The first thread takes its process with it.
    story.open(7, 0xc, 4, 12);
    assert_eq!(story.open_fds(7), [3, 4]);
    assert_eq!(story.records.unseen().foreign, 1);
}

#[test]
fn a_second_thread_is_noted_with_its_closes() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.close(7, 0xa, 3, 0);
    story.event((7, 70), 0xa, 0, Occurrence::BadUse { fd: 3, call: 0 });
    story.open(7, 0xa, 3, 11);
    story.close(7, 0xa, 3, 0);
    let events = story.events(7);
    let closes = events.iter().filter(|one| one.kind == EventKind::Close);
    let threads: Vec<u64> = closes.map(|one| one.more[1]).collect();
    assert_eq!(threads, [0, 1]);
    assert_eq!((events[2].kind, events[2].errno), (EventKind::Use, 9));
}

#[test]
fn what_proc_shows_corrects_the_table() {
    let mut story = Story::with(7, &[0]);
    story.open(7, 0xa, 3, 11);
    story.open(7, 0xa, 4, 11);
    let open = [0, 4, 9].into_iter().collect();
    assert_eq!(story.records.reconcile(7, &open, 900), 2);
    assert_eq!(story.open_fds(7), [4, 9]);
    assert_eq!(story.table(7).open[&9].call, OpenCall::Unknown);
    assert_eq!(story.records.unseen().opens, 1);
    assert_eq!(story.records.reconcile(7, &open, 901), 0);
}

#[test]
fn only_a_quiet_table_is_compared_and_only_once() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    assert!(story.records.unchecked(story.at - 1, 0).is_empty());
    assert_eq!(story.records.unchecked(story.at, 0), [7]);
    let open = [3].into_iter().collect();
    story.records.reconcile(7, &open, story.at + 1);
    assert!(story.records.unchecked(story.at, 0).is_empty());
    assert_eq!(story.records.unchecked(story.at, story.at + 2), [7]);
}

#[test]
fn lost_events_make_every_process_doubtful_and_count_once() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    story.fork(7, 0xa, 8, 0xb);
    story.records.lose(5);
    let mut drained = [7, 8].map(|pid| {
        let key = story.key(pid);
        let drained = story.records.drain(key, &story.stacks, false);
        drained.unwrap().lost
    });
    drained.sort_unstable();
    assert_eq!(drained, [1, 5], "counted for one of them");
    let total = story.table(7).lost_events + story.table(8).lost_events;
    assert_eq!(total, 5);
}

#[test]
fn a_child_has_the_number_that_fdguard_sees() {
    let mut story = Story::with(7, &[]);
    story.fork(7, 0xa, 8, 0xb);
    // In a pid namespace of its own the process knows it by another number.
    story.event((7, 7), 0xa, 21, Occurrence::Started { child: 2 });
    story.event((7, 70), 0xa, 0, Occurrence::Reaped { child: 2 });
    // Started before the trace.
    story.event((7, 7), 0xa, 0, Occurrence::Reaped { child: 9 });
    let events = story.events(7);
    let seen: Vec<_> = events
        .iter()
        .map(|one| (one.kind, one.more[0], one.stack))
        .collect();
    let expected = [
        (EventKind::Started, 8, 21),
        (EventKind::Reaped, 8, 0),
        (EventKind::Reaped, 9, 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_close_of_an_interpreter_that_ends_is_marked() {
    let mut story = Story::with(7, &[]);
    story.open(7, 0xa, 3, 11);
    let what = Occurrence::Closed {
        fd: 3,
        call: CLOSE,
        errno: 0,
        file: 1,
        is_finalized: true,
    };
    story.event((7, 7), 0xa, 0, what);
    assert_eq!(story.events(7)[1].more[1], fdguard_wire::CLOSE_FINALIZED);
}
