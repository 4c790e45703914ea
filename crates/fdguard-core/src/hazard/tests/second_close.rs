//! Closes by one thread of what it has opened itself, and hazards that look the same.

use super::{hazards, row, told};
use crate::event::{Errno, FdCall};
use crate::hazard::Fault;
use crate::lint::Severity;
use crate::testing::trace_script::{TraceScript, traced};

const EBADF: Option<Errno> = Some(Errno::Ebadf);

/// The thread closes a handle, opens a file at its number, and closes the handle again.
fn twice(t: &mut TraceScript, [first, second]: [&str; 2]) {
    t.file(1, "open_handle", 7);
    t.close(1, first, 7);
    t.file(1, "open_journal", 7);
    t.close(1, second, 7);
}

/// A method that closes a number was called twice. Python tries to write once more when it closes
/// the file, so the owner noticed it three times, and had three findings.
#[test]
fn r40_the_same_line_twice_is_a_double_close_though_one_thread_did_it_all() {
    let trace = traced(|t| {
        for _ in 0..5 {
            twice(t, ["close<work", "close<retry"]);
            t.fail(1, "write", 7, FdCall::Write, EBADF);
            t.fail(1, "flush", 7, FdCall::Write, EBADF);
            t.bad_close(1, "write", 7);
        }
    });
    let lines = ["open_handle", "close", "close", "open_journal"];
    assert_eq!(told(&trace), [row("double-close", lines)]);
    let hazard = &hazards(&trace)[0];
    assert_eq!(hazard.severity, Severity::Critical);
    assert_eq!((hazard.count, hazard.fault), (15, Some(Fault::Closer)));
    let caller = hazard
        .closer
        .as_ref()
        .and_then(|closer| closer.stack[1].function.clone());
    assert_eq!(caller.as_deref(), Some("retry"));
    assert_eq!(
        hazard.message,
        "thread 1 closed fd 7 for a regular file that it had already closed, and hit the regular \
         file that it had opened at that number"
    );
}

/// Two lines, the second of which mostly fails.
#[test]
fn r40_a_line_that_closed_such_a_descriptor_again_before_did_so_once_more() {
    let trace = traced(|t| {
        t.file(1, "open_handle", 7);
        t.close(1, "handler", 7);
        t.bad_close(1, "reaper", 7);
        twice(t, ["handler", "reaper"]);
        t.fail(1, "write", 7, FdCall::Write, EBADF);
    });
    let hit = row(
        "double-close",
        ["open_handle", "reaper", "handler", "open_journal"],
    );
    assert!(told(&trace).contains(&hit), "{:?}", told(&trace));
}

#[test]
fn of_lines_that_are_not_known_to_close_it_the_use_is_what_is_known() {
    let trace = traced(|t| {
        twice(t, ["handler", "cleanup"]);
        t.fail(1, "write", 7, FdCall::Write, EBADF);
    });
    let lines = ["open_journal", "cleanup", "write", "-"];
    assert_eq!(told(&trace), [row("use-after-close", lines)]);
}

#[test]
fn what_one_line_opens_again_and_again_is_closed_too_early_and_not_twice() {
    let trace = traced(|t| {
        for _ in 0..3 {
            t.file(1, "open_journal<work", 7);
            t.close(1, "close", 7);
            t.file(1, "open_journal<retry", 7);
            t.close(1, "close", 7);
            t.fail(1, "write", 7, FdCall::Write, EBADF);
        }
    });
    let lines = ["open_journal", "close", "write", "-"];
    assert_eq!(told(&trace), [row("use-after-close", lines)]);
}

/// The line that closes a socket a second time is another one each time, and only ever hits.
#[test]
fn r40_an_owner_that_used_it_before_it_closed_it_is_not_the_closer_at_fault() {
    let trace = traced(|t| {
        t.socket(1, "connect", 7);
        t.close(1, "detach", 7);
        t.file(1, "open_journal", 7);
        t.close(1, "cleanup", 7);
        t.fail(1, "write", 7, FdCall::Write, EBADF);
        t.bad_close(1, "finish", 7);
    });
    assert_eq!(
        told(&trace),
        [
            row("use-after-close", ["open_journal", "cleanup", "write", "-"]),
            row("double-close", ["open_journal", "cleanup", "finish", "-"]),
        ]
    );
    let fault = hazards(&trace)[1].fault;
    assert_eq!(fault, Some(Fault::Closer));
}

#[test]
fn r40_another_thread_that_goes_on_after_a_proper_close_stays_at_fault() {
    let trace = traced(|t| {
        t.socket(1, "connect", 7);
        t.call(2, "serve", 7, FdCall::Recv);
        t.close(2, "serve", 7);
        t.fail(3, "reap", 7, FdCall::Write, EBADF);
        t.bad_close(3, "reap", 7);
    });
    let lines = ["connect", "reap", "serve", "-"];
    assert!(
        told(&trace).contains(&row("double-close", lines)),
        "{:?}",
        told(&trace)
    );
}

#[test]
fn paths_that_differ_in_what_is_not_shown_are_one_hazard() {
    let trace = traced(|t| {
        for path in ["write#interpreted", "write#specialized", "write#compiled"] {
            t.file(1, "open", 7);
            t.close(1, "close", 7);
            t.fail(1, path, 7, FdCall::Write, EBADF);
        }
    });
    assert_eq!(
        told(&trace),
        [row("use-after-close", ["open", "close", "write", "-"])]
    );
    assert_eq!(hazards(&trace)[0].count, 3);
}
