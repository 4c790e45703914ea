//! Which of several closed descriptors a failing use was meant for, and what closed it.

use super::{hazards, row, told};
use crate::event::{Errno, FdCall, What};
use crate::testing::trace_script::{TraceScript, traced};

fn close_range(t: &mut TraceScript, thread: u32, place: &str) {
    let (first, last, at_exec) = (3, u32::MAX, false);
    t.add(
        thread,
        place,
        What::CloseRange {
            first,
            last,
            at_exec,
        },
    );
}

fn fail_write(t: &mut TraceScript, thread: u32, place: &str, fd: u32) {
    t.fail(thread, place, fd, FdCall::Write, Some(Errno::Ebadf));
}

/// A library that closed everything in a running program was not reported at all.
#[test]
fn r40_close_range_takes_the_descriptor_of_a_thread_that_goes_on() {
    let trace = traced(|t| {
        t.file(2, "log", 7);
        t.call(2, "append", 7, FdCall::Write);
        close_range(t, 1, "clean");
        fail_write(t, 2, "append", 7);
        fail_write(t, 2, "append", 7);
    });
    assert_eq!(
        told(&trace),
        [row("use-after-close", ["log", "clean", "append", "-"])]
    );
    assert_eq!(hazards(&trace)[0].count, 2);
}

#[test]
fn r40_a_cleanup_that_closes_again_what_a_range_closed_is_quiet() {
    let trace = traced(|t| {
        t.file(1, "log", 7);
        close_range(t, 1, "clean");
        t.bad_close(1, "end", 7);
    });
    assert_eq!(told(&trace), []);
}

/// The line that opened and closed a settings file in between was blamed.
#[test]
fn r40_what_was_opened_and_closed_in_between_is_not_what_was_meant() {
    let trace = traced(|t| {
        t.file(1, "log", 7);
        t.call(1, "append", 7, FdCall::Write);
        t.close(1, "rotate", 7);
        t.file(1, "settings", 7);
        t.call(1, "parse", 7, FdCall::Read);
        t.close(1, "parsed", 7);
        fail_write(t, 1, "append", 7);
    });
    assert_eq!(
        told(&trace),
        [row("use-after-close", ["log", "rotate", "append", "-"])]
    );
}

#[test]
fn r40_a_line_without_a_habit_means_the_latest() {
    let trace = traced(|t| {
        t.file(1, "log", 7);
        t.close(1, "rotate", 7);
        t.file(1, "settings", 7);
        t.close(1, "parsed", 7);
        fail_write(t, 1, "append", 7);
    });
    assert_eq!(
        told(&trace),
        [row(
            "use-after-close",
            ["settings", "parsed", "append", "-"]
        )]
    );
}

/// One connection that another thread closes and replaces by a file, and a late message to it.
fn late_message(t: &mut TraceScript, fd: u32) {
    t.socket(1, "connect", fd);
    t.write(1, "send", fd, b"plain");
    t.close(2, "reset", fd);
    t.file(2, "journal", fd);
    t.write(1, "late", fd, b"plain");
    t.close(2, "end", fd);
}

/// The line of the late message has no habit: it only ever reaches what it does not mean.
#[test]
fn r40_a_line_that_always_reaches_the_successor_of_what_was_taken_is_told() {
    let twice = traced(|t| (0..2).for_each(|_| late_message(t, 7)));
    assert_eq!(told(&twice), [], "it may have been given that");
    let often = traced(|t| (0..5).for_each(|_| late_message(t, 7)));
    assert_eq!(
        told(&often),
        [row(
            "recycled-write",
            ["connect", "reset", "late", "journal"]
        )]
    );
    assert_eq!(hazards(&often)[0].count, 3);
}

#[test]
fn r40_a_line_that_also_works_on_files_it_was_given_is_quiet() {
    let trace = traced(|t| {
        t.file(2, "journal", 9);
        t.write(1, "late", 9, b"plain");
        (0..5).for_each(|_| late_message(t, 7));
    });
    assert_eq!(told(&trace), []);
}
