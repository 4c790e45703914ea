//! Mappings in memory.

use core::sync::atomic::Ordering;
use std::thread;
use std::vec::Vec;

use super::{Area, TableMapping};
use crate::{FrameRecord, NUMBERS, OpenCall, OpenRecord, RuntimeLanguage};

struct Everywhere;

impl Area for Everywhere {
    fn is_backed(&self, _: usize, _: usize) -> bool {
        true
    }
}

struct Nowhere;

impl Area for Nowhere {
    fn is_backed(&self, _: usize, _: usize) -> bool {
        false
    }
}

fn open(stack: u32) -> OpenRecord {
    OpenRecord {
        stack,
        tid: 1,
        ns: 2,
        call: OpenCall::Open,
        forks: 0,
    }
}

#[test]
fn threads_that_meet_at_a_stack_share_its_number_and_lose_no_count() {
    static MAPPING: TableMapping = TableMapping::new();
    const THREADS: u32 = 4;
    const EACH: u32 = 500;
    MAPPING.begin(7, 1, 1);
    let work = |first: u32| {
        let stacks = (0..EACH).map(|turn| {
            let frame = FrameRecord::Address(u64::from(turn % 50));
            let hash = u64::from(turn % 50) + 1;
            let stack = MAPPING.stack(&Everywhere, hash, |frames| frames.push(frame));
            MAPPING.open(&Everywhere, first * EACH + turn, &open(stack));
            if turn % 2 == 0 {
                MAPPING.close(&Everywhere, first * EACH + turn, 1).unwrap();
            }
            stack
        });
        stacks.collect::<Vec<u32>>()
    };
    let all: Vec<Vec<u32>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|first| scope.spawn(move || work(first)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    assert!(all.iter().all(|stacks| *stacks == all[0]));
    assert_eq!(MAPPING.header.stacks.load(Ordering::Relaxed), 50);
    let sum = |count: fn(&crate::StackRecord) -> u64| MAPPING.stacks.iter().map(count).sum::<u64>();
    let opened = sum(|stack| stack.opened.load(Ordering::Relaxed));
    let closed = sum(|stack| stack.closed.load(Ordering::Relaxed));
    assert_eq!((opened, closed), (2000, 1000));
    assert_eq!(MAPPING.header.lost_events.load(Ordering::Relaxed), 0);
}

#[test]
fn what_finds_no_place_is_counted() {
    static MAPPING: TableMapping = TableMapping::new();
    MAPPING.begin(7, 1, 1);
    MAPPING.open(&Everywhere, u32::try_from(NUMBERS).unwrap(), &open(0));
    MAPPING.open(&Nowhere, 5, &open(0));
    assert_eq!(MAPPING.header.lost_events.load(Ordering::Relaxed), 2);
    assert_eq!(MAPPING.stack(&Nowhere, 9, |_| {}), 0);
    assert_eq!(MAPPING.header.lost_stacks.load(Ordering::Relaxed), 1);
}

#[test]
fn a_forked_child_begins_with_the_table_and_counts_none_of_it() {
    static PARENT: TableMapping = TableMapping::new();
    static CHILD: TableMapping = TableMapping::new();
    PARENT.begin(7, 100, 1);
    PARENT.open(&Everywhere, 5, &open(3));
    CHILD.begin(8, 200, 1);
    CHILD.inherit(&Everywhere, (&PARENT, &Everywhere));
    let known = CHILD.open_record(&Everywhere, 5).unwrap();
    assert_eq!((known.stack, known.forks), (3, 1));
    assert_eq!(CHILD.close(&Everywhere, 5, 1).unwrap().forks, 1);
    assert_eq!(CHILD.stacks[3].closed.load(Ordering::Relaxed), 0);
    assert!(PARENT.open_record(&Everywhere, 5).is_some());
}

#[test]
fn counts_follow_a_stack_that_is_put_in_place_of_another() {
    static MAPPING: TableMapping = TableMapping::new();
    static CHILD: TableMapping = TableMapping::new();
    let language = FrameRecord::Language {
        tongue: RuntimeLanguage::Node,
        text: 1,
        line: 2,
    };
    MAPPING.begin(7, 1, 1);
    let native = MAPPING.stack(&Everywhere, 5, |frames| {
        frames.push(FrameRecord::Address(1))
    });
    let asked = MAPPING.stack(&Everywhere, 6, |frames| frames.push(language));
    assert!(MAPPING.is_language(asked) && !MAPPING.is_language(native));
    MAPPING.open(&Everywhere, 5, &open(native));
    MAPPING.open(&Everywhere, 6, &open(native));
    MAPPING.restack(&Everywhere, 5, asked);
    MAPPING.restack(&Everywhere, 9, asked);
    CHILD.begin(8, 2, 1);
    CHILD.inherit(&Everywhere, (&MAPPING, &Everywhere));
    CHILD.restack(&Everywhere, 6, asked);
    assert_eq!(CHILD.open_record(&Everywhere, 6).unwrap().stack, native);
    MAPPING.close(&Everywhere, 5, 1).unwrap();
    let counts = |stack: u32| {
        let stack = &MAPPING.stacks[stack as usize];
        [&stack.opened, &stack.closed].map(|count| count.load(Ordering::Relaxed))
    };
    assert_eq!((counts(native), counts(asked)), ([1, 0], [1, 1]));
}

#[test]
fn a_module_is_written_once_and_the_latest_at_an_address_counts() {
    static MAPPING: TableMapping = TableMapping::new();
    MAPPING.begin(7, 1, 1);
    let first = MAPPING.add_module(&Everywhere, (0x1000, 0x2000, 0x1000), b"/a");
    assert_eq!(
        MAPPING.add_module(&Everywhere, (0x1000, 0x2000, 0x1000), b"/a"),
        first
    );
    let second = MAPPING.add_module(&Everywhere, (0x1800, 0x3000, 0x1800), b"/b");
    assert_eq!((first, second), (Some(0), Some(1)));
    assert_eq!(MAPPING.module_of(0x1900), Some((1, 0x1800)));
    assert_eq!(MAPPING.module_of(0x1100), Some((0, 0x1000)));
    assert_eq!(MAPPING.module_of(0x9000), None);
}

/// Backs only the slots of high numbers; fails the test if anything else is touched without a
/// request.
struct High;

impl Area for High {
    fn is_backed(&self, offset: usize, _: usize) -> bool {
        offset >= super::slot_at(1000) && offset < super::slot_at(2000)
    }
}

/// Regression: killed the program at 22 of 37 fill levels of a nearly full file system, because the
/// first stack was counted in, and slots were read, without memory for them.
#[test]
fn where_there_is_no_memory_nothing_is_counted_and_nothing_is_read() {
    static MAPPING: TableMapping = TableMapping::new();
    static CHILD: TableMapping = TableMapping::new();
    MAPPING.begin(7, 1, 1);
    // As if others had written there: nothing may read it.
    MAPPING.open(&Everywhere, 5, &open(0));
    MAPPING.open(&High, 1500, &open(0));
    assert_eq!(MAPPING.stacks[0].place(), (0, 0));
    assert_eq!(MAPPING.stacks[0].opened.load(Ordering::Relaxed), 1);
    assert!(MAPPING.open_record(&High, 1500).is_some());
    assert_eq!(MAPPING.open_record(&High, 5), None);
    assert_eq!(MAPPING.turn(&High, 5), 0);
    assert_eq!(MAPPING.close(&High, 5, 1), None);
    assert!(MAPPING.close(&High, 1500, 1).is_some());
    assert_eq!(MAPPING.stacks[0].closed.load(Ordering::Relaxed), 0);
    CHILD.inherit(&Everywhere, (&MAPPING, &High));
    assert_eq!(CHILD.open_record(&Everywhere, 5), None);
    assert_eq!(MAPPING.add_module(&High, (1, 2, 3), b"/bin/it"), None);
    assert_eq!(MAPPING.header.modules.load(Ordering::Relaxed), 0);
}
