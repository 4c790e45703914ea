//! Calls on numbers at which nothing was ever opened.

use super::hazards;
use crate::Fd;
use crate::event::{Errno, FdCall, What};
use crate::lint::Severity;
use crate::testing::trace_script::{TraceScript, traced};

const MINUS_ONE: Fd = u32::MAX;

fn rules(tell: impl FnOnce(&mut TraceScript)) -> Vec<(String, Option<Fd>, String)> {
    let found = hazards(&traced(tell)).into_iter();
    found.map(|one| (one.rule, one.fd, one.message)).collect()
}

fn never(fd: Option<Fd>, message: &str) -> (String, Option<Fd>, String) {
    ("never-open".to_owned(), fd, message.to_owned())
}

#[test]
fn r40_a_close_and_a_use_of_what_was_never_open_are_told() {
    let told = rules(|t| {
        t.bad_close(1, "cleanup", MINUS_ONE);
        t.fail(1, "log", 10, FdCall::Write, Some(Errno::Ebadf));
        t.fail(1, "answer", MINUS_ONE, FdCall::Send, Some(Errno::Ebadf));
        t.bad_close(1, "finish", 40);
    });
    let expected = [
        never(
            None,
            "thread 1 closed fd -1 (EBADF): the number was never open",
        ),
        never(
            Some(10),
            "thread 1 called write() on fd 10 (EBADF): the number was never open",
        ),
        never(
            None,
            "thread 1 called send() on fd -1 (EBADF): the number was never open",
        ),
        never(
            Some(40),
            "thread 1 closed fd 40 (EBADF): the number was never open",
        ),
    ];
    assert_eq!(told, expected);
    let one = &hazards(&traced(|t| t.bad_close(1, "cleanup", MINUS_ONE)))[0];
    assert_eq!((one.severity, one.counts()), (Severity::Info, false));
}

#[test]
fn r40_what_was_open_once_or_may_have_been_is_another_matter() {
    let ebadf = Some(Errno::Ebadf);
    let quiet = |what: &str, tell: &dyn Fn(&mut TraceScript)| {
        let told = rules(tell);
        assert!(
            told.iter().all(|one| one.0 != "never-open"),
            "{what}: {told:?}"
        );
    };
    quiet("closed", &|t| {
        t.file(1, "open", 7);
        t.close(1, "close", 7);
        t.fail(1, "log", 7, FdCall::Write, ebadf);
        t.bad_close(1, "again", 7);
    });
    quiet("inherited, and closed", &|t| {
        t.close(1, "close", 9);
        t.fail(1, "log", 9, FdCall::Write, ebadf);
    });
    quiet("inherited, and used", &|t| {
        t.call(1, "log", 9, FdCall::Write);
        t.fail(1, "log", 9, FdCall::Write, ebadf);
    });
    quiet("inherited, and closed with all others", &|t| {
        let (first, last, at_exec) = (3, u32::MAX, false);
        t.add(
            1,
            "daemon",
            What::CloseRange {
                first,
                last,
                at_exec,
            },
        );
        t.fail(1, "log", 9, FdCall::Write, ebadf);
    });
    quiet("probed", &|t| t.fail(1, "fstat", 9, FdCall::Other, ebadf));
    quiet("a standard stream", &|t| t.bad_close(1, "daemon", 0));
    quiet("a row of numbers", &|t| {
        for fd in 3..64 {
            t.bad_close(1, "close_all", fd);
        }
    });
    quiet("the parent's", &|t| {
        t.add(1, "start", What::Forked);
        t.bad_close(1, "child", 9);
    });
    quiet("forgotten", &|t| {
        t.add(0, "", What::Lost { count: 1 });
        t.bad_close(1, "finish", 9);
    });
}
