//! The severity of a failed second close depends on what it could have hit.

use super::hazards;
use crate::event::{FdCall, What};
use crate::lint::Severity;
use crate::testing::trace_script::{TraceScript, traced};

fn severity(tell: impl FnOnce(&mut TraceScript)) -> Vec<Severity> {
    let found = hazards(&traced(tell));
    assert!(found.iter().all(|one| one.rule == "double-close"));
    found.iter().map(|one| one.severity).collect()
}

/// Every pipeline of bash was critical, and a start script failed in CI.
#[test]
fn r40_with_one_thread_a_second_close_that_fails_is_harmless() {
    let pipeline = severity(|t| {
        t.file(1, "make_pipe", 3);
        t.file(1, "make_pipe", 4);
        t.close(1, "execute", 4);
        t.file(1, "history", 5);
        t.bad_close(1, "close_pipes", 4);
    });
    assert_eq!(pipeline, [Severity::Info]);
    let found = hazards(&traced(|t| {
        t.file(1, "open", 3);
        t.close(1, "first", 3);
        t.bad_close(1, "second", 3);
    }));
    assert!(!found[0].counts(), "it fails nothing");
}

#[test]
fn r40_with_threads_it_is_as_grave_as_the_chance_to_hit_somebody() {
    let same_thread = |t: &mut TraceScript| {
        t.file(1, "open", 7);
        t.close(1, "first", 7);
        t.bad_close(1, "second", 7);
    };
    let alone = severity(|t| {
        t.call(2, "worker", 5, FdCall::Write);
        same_thread(t);
    });
    assert_eq!(alone, [Severity::Warning], "nobody opened anything");
    let told = severity(|t| {
        t.add(1, "close", What::Threaded);
        same_thread(t);
    });
    assert_eq!(told, [Severity::Warning], "threads that touch nothing");
    let opened = severity(|t| {
        t.file(1, "open", 7);
        t.close(1, "first", 7);
        t.file(2, "journal", 8);
        t.bad_close(1, "second", 7);
    });
    assert_eq!(opened, [Severity::Critical], "the number was free for it");
    let handed_on = severity(|t| {
        t.file(1, "open", 7);
        t.close(1, "first", 7);
        t.bad_close(2, "second", 7);
    });
    assert_eq!(handed_on, [Severity::Critical], "it is in two hands");
}

#[test]
fn r40_the_gravest_of_several_counts() {
    let found = hazards(&traced(|t| {
        for round in 0..3 {
            t.file(1, "open", 7);
            t.close(1, "first", 7);
            if round == 1 {
                t.file(2, "journal", 8);
            }
            t.bad_close(1, "second", 7);
            t.close(2, "end", 8);
        }
    }));
    let told: Vec<_> = found.iter().map(|one| (one.severity, one.count)).collect();
    assert_eq!(told, [(Severity::Critical, 3)]);
}

#[test]
fn r40_a_program_that_follows_in_the_same_process_has_one_thread_again() {
    let after = severity(|t| {
        t.call(2, "worker", 5, FdCall::Write);
        t.add(1, "exec", What::Exec { kept: None });
        t.file(1, "open", 7);
        t.close(1, "first", 7);
        t.bad_close(1, "second", 7);
    });
    assert_eq!(after, [Severity::Info]);
}
