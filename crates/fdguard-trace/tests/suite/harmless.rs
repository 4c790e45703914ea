//! A program behaves the same under the tracer.

use std::process::Command;

use super::run::{alone, alone_words, both_ways, traced, traced_words};

/// Runs the mode both ways; returns its output.
fn same(mode: &str) -> String {
    let (without, with) = (alone(mode, "> \"$1\" 2>&1"), traced(mode, "> \"$1\" 2>&1"));
    assert_eq!(with.outcome, without);
    assert!(with.outcome.status.success(), "{:?}", with.outcome);
    assert!(!with.outcome.said.is_empty());
    assert_eq!(with.tables.lost_events(), 0);
    with.outcome.said
}

#[test]
fn r19_a_vfork_child_works_in_our_memory_and_leaves_the_table_alone() {
    assert!(same("vfork").contains("open 1"));
    let run = traced("vfork", "> \"$1\"");
    let open: Vec<u32> = run.table().open.keys().copied().collect();
    assert_eq!(
        open,
        [3],
        "the parent's own, which the child closed for itself"
    );
}

#[test]
fn r19_fork_exec_spawn_system_and_popen() {
    assert!(same("fork").contains("same 1\nchild"));
}

#[test]
fn r19_threads() {
    assert_eq!(same("threads"), "bad 0\n");
}

#[test]
fn r19_signal_handlers_that_open_on_either_stack() {
    assert_eq!(same("signals"), "handled 1000\nbad 0\n");
}

#[test]
fn r19_signal_handlers_that_open_at_any_moment() {
    let (without, with) = (
        alone("timer", "> \"$1\" 2>&1"),
        traced("timer", "> \"$1\" 2>&1"),
    );
    assert_eq!(with.outcome, without);
    assert_eq!(with.outcome.said, "handled 1\nbad 0\n");
    assert!(with.table().open.is_empty());
}

#[test]
fn r19_system_calls_by_number() {
    assert!(same("syscall").ends_with("child 6\n"));
    let run = traced("syscall", "> \"$1\"");
    let open: Vec<u32> = run.table().open.keys().copied().collect();
    assert_eq!(open, [3], "not the one of the child, whom nobody told of");
}

#[test]
fn r19_a_handler_that_leaves_a_blocking_call_by_longjmp() {
    assert!(same("longjmp").starts_with("jumps 5"));
    let run = traced("longjmp", "> \"$1\"");
    assert!(
        run.table().open.contains_key(&4),
        "recording goes on afterwards"
    );
}

#[test]
fn r19_dlopen_and_dlclose() {
    assert!(same("dlopen").contains("root 7"));
}

#[test]
fn r19_closed_standard_streams_stay_free() {
    let (without, with) = (
        alone("closed-stdio", "<&- >&- 2>&-"),
        traced("closed-stdio", "<&- >&- 2>&-"),
    );
    assert_eq!(with.outcome, without);
    assert_eq!(with.outcome.status.code(), Some(42));
}

#[test]
fn r19_close_range() {
    assert!(same("close-range").contains("left 100"));
    let run = traced("close-range", "> \"$1\"");
    let open: Vec<u32> = run.table().open.keys().copied().collect();
    assert_eq!(open, [3]);
}

#[test]
fn r19_a_full_table_and_errno() {
    assert!(same("emfile").ends_with("kept 77\n"));
}

#[test]
fn r19_cancellation_inside_of_a_call() {
    assert_eq!(same("cancel"), "cancelled 1\ntidied 1\n");
}

#[test]
fn r19_descriptors_in_a_message() {
    assert!(same("received").contains("received 1"));
}

#[test]
fn r40_every_call_on_a_descriptor_gives_what_it_gives_without_us() {
    let flags = ["-O2", "-g", "-pthread", "-w"];
    let program = testkit::c_variant("talking", "O2", &flags).expect("a victim that compiles");
    let fortified = ["-O2", "-g", "-pthread", "-w", "-D_FORTIFY_SOURCE=2"];
    let fortified = testkit::c_variant("talking", "fortified", &fortified);
    for program in [program, fortified.expect("a victim that compiles")] {
        let (without, with) = both_ways(&program);
        assert!(without.status.success());
        assert!(without.said.contains("poll((void *)8, 3, 0) = -1 errno 14"));
        assert!(without.said.contains("intact 1"));
        assert_eq!(with, without);
    }
}

/// The compiler brings its own allocator, which reads a file on its first allocation. Inside a
/// hook, when the loader allocated to report a missing name, it waited for itself.
#[test]
fn r19_a_program_whose_allocator_begins_by_opening_a_file() {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(root) = found.ok().filter(|said| said.status.success()) else {
        testkit::skip("no rustc");
        return;
    };
    let root = String::from_utf8(root.stdout).unwrap();
    let words = [
        format!("{}/bin/rustc", root.trim()).into(),
        "--version".into(),
    ];
    let (without, with) = (alone_words(&words), traced_words(&words));
    assert!(without.said.starts_with("rustc 1."));
    assert_eq!(with.outcome, without);
}
