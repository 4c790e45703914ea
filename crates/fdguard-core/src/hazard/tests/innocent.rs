//! Programs that do nothing wrong, however unusual they look.

use super::told;
use crate::event::{Errno, FdCall, OpenCall, What};
use crate::testing::trace_script::{TraceScript, process, traced};
use crate::{Class, TraceKey};

const CHILD: TraceKey = process(1001);

fn is_quiet(tell: impl FnOnce(&mut TraceScript)) {
    assert_eq!(told(&traced(tell)), []);
}

fn fork(t: &mut TraceScript) {
    let (child, shares_table) = (CHILD, false);
    t.add(
        1,
        "spawn",
        What::Fork {
            child,
            shares_table,
        },
    );
    t.switch(CHILD);
}

#[test]
fn r40_a_stranger_shuts_down_and_the_owner_closes() {
    is_quiet(|t| {
        for cycle in 0..20 {
            let owner = 10 + cycle;
            t.socket(owner, "connect", 7);
            t.enter(owner, "wait", 7, FdCall::Poll);
            t.add(1, "interrupt", What::Shutdown { fd: 7 });
            t.leave(owner, "wait");
            t.call(owner, "wait", 7, FdCall::Poll);
            t.fail(owner, "flush", 7, FdCall::Write, Some(Errno::Other(32)));
            t.close(owner, "finish", 7);
            t.file(2, "database", 7);
            t.call(2, "query", 7, FdCall::Read);
            t.close(2, "database", 7);
        }
    });
}

#[test]
fn r40_an_acceptor_hands_connections_to_workers() {
    is_quiet(|t| {
        for cycle in 0..50 {
            let worker = 10 + cycle % 3;
            t.socket(1, "accept", 7);
            t.enter(worker, "serve", 7, FdCall::Recv);
            t.leave(worker, "serve");
            t.call(worker, "serve", 7, FdCall::Recv);
            t.write(worker, "serve", 7, b"\x17\x03\x03\x00\x13abc");
            t.close(worker, "serve", 7);
            // The same number is a file for a while, opened by one worker and written by the next.
            t.file(worker, "page", 7);
            t.call(worker + 1, "send", 7, FdCall::Write);
            t.close(worker + 2, "done", 7);
        }
    });
}

#[test]
fn r40_a_worker_turns_a_connection_away_unread() {
    is_quiet(|t| {
        for _ in 0..20 {
            t.socket(1, "accept", 7);
            t.close(2, "refuse", 7);
            t.file(2, "log", 7);
            t.write(2, "log", 7, b"refused");
            t.close(2, "log", 7);
        }
    });
}

#[test]
fn r40_threads_take_turns_on_the_sockets_of_a_pool() {
    is_quiet(|t| {
        for round in 0..5 {
            t.socket(1, "connect", 7);
            for thread in 1..9 {
                t.enter(thread, "query", 7, FdCall::Send);
                t.leave(thread, "query");
                t.call(thread, "query", 7, FdCall::Send);
            }
            t.close(2 + round, "expire", 7);
            t.open(3, "pipe", 7, OpenCall::Pipe, Class::Pipe);
            t.call(4, "notify", 7, FdCall::Write);
            t.close(3, "pipe", 7);
        }
    });
}

#[test]
fn r40_a_loop_opens_and_closes_what_executor_threads_read_and_write() {
    is_quiet(|t| {
        for round in 0..20 {
            let executor = 10 + round % 4;
            t.file(1, "open", 7);
            t.call(executor, "job", 7, FdCall::Write);
            t.close(1, "close", 7);
            t.socket(1, "connect", 7);
            t.call(executor, "job", 7, FdCall::Write);
            t.close(1, "close", 7);
            t.file(executor, "pool_open", 7);
            t.call(1, "sync_read", 7, FdCall::Read);
            t.close(executor, "pool_close", 7);
        }
    });
}

#[test]
fn r40_a_collector_thread_closes_what_others_forgot() {
    is_quiet(|t| {
        for _ in 0..10 {
            t.file(1, "open", 7);
            t.call(1, "read", 7, FdCall::Read);
            t.close(9, "finalize", 7);
            t.socket(2, "connect", 7);
            t.call(2, "hello", 7, FdCall::Send);
            t.call(1, "query", 7, FdCall::Write);
            t.close(2, "expire", 7);
        }
    });
}

#[test]
fn r40_redirection_by_dup2_under_a_writer() {
    is_quiet(|t| {
        t.file(1, "log", 7);
        t.call(2, "line", 7, FdCall::Write);
        t.enter(2, "line", 7, FdCall::Write);
        t.dup2(1, "rotate", 7, Class::Pipe);
        t.leave(2, "line");
        t.write(2, "line", 7, b"\x17\x03\x03\x00\x13abc");
        t.call(2, "line", 7, FdCall::Write);
        t.dup2(1, "rotate", 1, Class::Regular);
        t.close(1, "rotate", 7);
    });
}

#[test]
fn r40_close_range_before_exec() {
    is_quiet(|t| {
        t.file(1, "log", 7);
        t.socket(2, "connect", 8);
        t.enter(2, "wait", 8, FdCall::Recv);
        fork(t);
        let (first, last, at_exec) = (3, u32::MAX, false);
        t.add(
            9,
            "child",
            What::CloseRange {
                first,
                last,
                at_exec,
            },
        );
        t.add(9, "child", What::Exec { kept: None });
        t.bad_close(9, "program", 7);
    });
}

/// The opens were the parent's: nothing told that the child had inherited them, and the second
/// close failed a check.
#[test]
fn r40_a_forked_child_closes_twice_what_it_inherited() {
    is_quiet(|t| {
        t.add(1, "start", What::Forked);
        t.close(1, "first", 7);
        t.bad_close(1, "second", 7);
    });
}

#[test]
fn r40_a_forked_child_closes_everything() {
    is_quiet(|t| {
        for fd in 3..9 {
            t.file(1, "open", fd);
        }
        t.socket(2, "connect", 9);
        t.enter(2, "wait", 9, FdCall::Recv);
        t.close(1, "close", 5);
        fork(t);
        for fd in 3..200 {
            if fd == 5 || fd > 9 {
                t.bad_close(9, "close_all", fd);
            } else {
                t.close(9, "close_all", fd);
            }
        }
        t.bad_close(9, "library", 7);
        t.fail(9, "library", 8, FdCall::Write, Some(Errno::Ebadf));
    });
}

#[test]
fn r40_a_daemon_closes_every_number_in_its_own_process() {
    is_quiet(|t| {
        for fd in 3..9 {
            t.file(1, "open", fd);
            t.close(1, "close", fd);
        }
        for fd in (3..100).rev() {
            t.bad_close(1, "close_all", fd);
        }
        for fd in 3..7 {
            t.bad_close(1, "again", fd);
        }
    });
}

#[test]
fn r40_a_child_closes_what_it_lists_and_the_directory_that_it_listed() {
    // It keeps some numbers; the list is read first, so the directory's number is closed by then.
    for numbers in [&[3, 5][..], &[5, 8], &[3, 5, 8]] {
        is_quiet(|t| {
            for fd in [3, 4, 8] {
                t.file(1, "open", fd);
            }
            fork(t);
            t.open(9, "list", 5, OpenCall::Opendir, Class::Directory);
            t.close(9, "list", 5);
            for fd in numbers {
                t.fail_close(9, "close_all", *fd, (*fd == 5).then_some(Errno::Ebadf));
            }
        });
    }
}

#[test]
fn r40_a_directory_that_is_closed_twice_is_no_list() {
    let told = told(&traced(|t| {
        t.file(1, "open", 3);
        t.open(1, "list", 5, OpenCall::Opendir, Class::Directory);
        t.close(1, "other", 3);
        t.close(1, "list", 5);
        t.bad_close(1, "again", 5);
    }));
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn r40_streams_are_closed_and_reopened() {
    is_quiet(|t| {
        t.file(1, "open", 1);
        t.close(1, "daemon", 1);
        t.bad_close(1, "exit", 1);
        t.fail(2, "print", 1, FdCall::Write, Some(Errno::Ebadf));
        t.enter(2, "read", 0, FdCall::Read);
        t.close(1, "exit", 0);
    });
}

#[test]
fn r40_probing_a_number_is_not_using_it() {
    is_quiet(|t| {
        t.socket(1, "connect", 7);
        t.close(1, "finish", 7);
        t.fail(1, "epoll_ctl", 7, FdCall::Other, Some(Errno::Ebadf));
        // Not open for writing: the same error, but nothing was closed.
        t.file(1, "open", 7);
        t.fail(1, "probe", 7, FdCall::Write, Some(Errno::Ebadf));
    });
}

#[test]
fn r43_sqlite_unlocks_before_it_closes() {
    is_quiet(|t| {
        t.inode(1, "sqlite", 7, 99);
        t.inode(1, "sqlite", 8, 99);
        t.lock(1, "sqlite", 7, Some((0, 10)), true);
        t.lock(1, "sqlite", 7, Some((20, 30)), true);
        t.lock(1, "sqlite", 7, None, false);
        t.close(1, "sqlite", 8);
        t.lock(1, "sqlite", 7, None, true);
        t.close(1, "sqlite", 7);
        // Another file, and another process: neither is related to these locks.
        t.inode(1, "sqlite", 7, 99);
        t.lock(1, "sqlite", 7, None, true);
        t.inode(1, "other", 8, 98);
        t.close(1, "other", 8);
        fork(t);
        t.inode(9, "child", 8, 99);
        t.close(9, "child", 8);
    });
}

#[test]
fn r21_a_number_that_came_back_after_a_signal_is_closed_rightly() {
    is_quiet(|t| {
        t.file(1, "open", 7);
        t.fail_close(1, "close", 7, Some(Errno::Eintr));
        t.file(1, "open", 7);
        t.close(1, "close", 7);
    });
}

#[test]
fn r7_select_is_fine_below_its_wall() {
    is_quiet(|t| {
        t.socket(1, "connect", 1023);
        t.add(1, "wait", What::Select { nfds: 1024 });
        t.add(1, "old_habit", What::Select { nfds: 65_536 });
    });
}

#[test]
fn r19_another_refusal_is_not_exhaustion() {
    is_quiet(|t| {
        let (call, errno) = (OpenCall::Open, Errno::Other(2));
        t.add(1, "open", What::Refused { call, errno });
    });
}
