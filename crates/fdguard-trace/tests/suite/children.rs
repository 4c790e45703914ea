//! Processes that run the program's code with a table of their own: what they do is not the
//! program's.

use super::run::{alone_of, children, traced_of};

/// Runs the mode both ways: the output is the same, and its table has number 3 and nothing of its
/// child's. Returns the output.
fn undisturbed(mode: &str) -> String {
    let redirection = "> \"$1\" 2>&1";
    let without = alone_of(children(), mode, redirection);
    let with = traced_of(children(), mode, redirection);
    assert_eq!(with.outcome, without);
    assert!(with.outcome.status.success(), "{:?}", with.outcome);
    assert_eq!(with.tables.lost_events(), 0);
    let open: Vec<u32> = with.table().open.keys().copied().collect();
    assert_eq!(open, [3]);
    with.outcome.said
}

const AS_ALWAYS: &str = "made 1\nwaited 1\nchild 0\nopen 1\nmore 1\n";

#[test]
fn r19_clone_in_our_memory() {
    assert_eq!(undisturbed("clone"), AS_ALWAYS);
}

#[test]
fn r19_clone_in_our_memory_that_runs_beside_us() {
    assert_eq!(undisturbed("clone-beside"), AS_ALWAYS);
}

#[test]
fn r19_clone_in_our_memory_by_number() {
    assert_eq!(undisturbed("syscall-clone"), AS_ALWAYS);
}

#[test]
fn r19_clone3_in_our_memory_by_number() {
    assert_eq!(undisturbed("syscall-clone3"), AS_ALWAYS);
}

#[test]
fn r19_vfork_in_the_child_of_a_vfork() {
    assert_eq!(undisturbed("nested"), AS_ALWAYS);
}

#[test]
fn r19_fork_in_the_child_of_a_vfork() {
    assert_eq!(undisturbed("fork-of-vfork"), AS_ALWAYS);
}

#[test]
fn r19_a_fork_that_tells_nobody() {
    assert_eq!(undisturbed("_Fork"), AS_ALWAYS);
}

#[test]
fn r19_vfork_in_threads_while_others_open_and_close() {
    assert_eq!(undisturbed("threads"), "bad 0\nopen 1\n");
}

#[test]
fn r19_a_vfork_that_is_refused() {
    let redirection = "> \"$1\" 2>&1";
    let without = alone_of(children(), "refused", redirection);
    let with = traced_of(children(), "refused", redirection);
    assert_eq!(with.outcome, without);
    assert_eq!(with.outcome.said, "filtered 0\nmade -1\nagain 1\nmore 1\n");
    let open: Vec<u32> = with.table().open.keys().copied().collect();
    assert_eq!(open, [3, 4], "recording goes on");
}
