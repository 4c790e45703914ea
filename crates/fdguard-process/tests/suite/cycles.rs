//! Many starts and ends.

use std::fs;
use std::thread;

use fdguard_process::tree::{Exit, Tree};

use super::harness::{AT_ONCE, empty, plan, shell};

fn held() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let mut held: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    held.sort_unstable();
    held
}

fn children() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no such file, and its children belong to another thread.
    let texts = threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).ok());
    texts
        .map(|text| text.split_ascii_whitespace().count())
        .sum()
}

#[test]
fn a_thousand_starts_and_ends_leave_exactly_what_was_there_before() {
    let before = held();
    for number in 0..1000 {
        let mut tree = Tree::start(&plan(&["sleep", "1000"])).unwrap();
        if number % 2 == 0 {
            tree.stop(AT_ONCE);
            empty(&mut tree);
        }
    }
    assert_eq!(held(), before);
    assert_eq!(children(), 0, "no zombie either");
}

#[test]
fn failed_starts_leave_nothing() {
    let before = held();
    for _ in 0..50 {
        Tree::start(&plan(&["fdguard-no-such-program"])).unwrap_err();
    }
    assert_eq!(held(), before);
    assert_eq!(children(), 0);
}

#[test]
fn an_owner_with_threads_that_allocate_and_start_is_fine() {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for code in 0..25 {
                    let mut tree = Tree::start(&shell(&format!("exit {code}"))).unwrap();
                    assert_eq!(empty(&mut tree).0, Exit::Code(code));
                }
            });
            scope.spawn(|| {
                for size in 0..20_000 {
                    let memory = vec![1_u8; 1 + size % 5000];
                    assert_eq!(std::hint::black_box(memory).len(), 1 + size % 5000);
                }
            });
        }
    });
    assert_eq!(children(), 0);
}
