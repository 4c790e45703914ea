//! The hazard programs of the corpus, as a tracer would report them.

use super::{RECORD, hazards, told};
use crate::Class;
use crate::event::{Errno, FdCall, OpenCall, What};
use crate::hazard::Fault;
use crate::testing::trace_script::{TraceScript, traced};

/// One connection of `c-double-close`, up to the handler's close.
fn connection(t: &mut TraceScript, handler: u32) {
    t.open(1, "connection", 7, OpenCall::Socketpair, Class::Unix);
    t.open(1, "connection", 8, OpenCall::Socketpair, Class::Unix);
    t.call(1, "connection", 8, FdCall::Write);
    t.enter(handler, "handler", 7, FdCall::Read);
    t.leave(handler, "handler");
    t.call(handler, "handler", 7, FdCall::Read);
    t.close(handler, "handler", 7);
}

/// A pause too long for a series of closes.
fn pause(t: &mut TraceScript) {
    for _ in 0..50_000 {
        t.add(90, "idle", What::Leave);
    }
}

fn double_close(t: &mut TraceScript) {
    for cycle in 0..4 {
        connection(t, 100 + cycle);
        t.bad_close(200 + cycle, "reaper", 7);
        t.close(1, "connection_end", 8);
        pause(t);
    }
    for cycle in 4..8 {
        connection(t, 100 + cycle);
        t.file(2, "journal", 7);
        t.call(2, "entry", 7, FdCall::Write);
        t.close(200 + cycle, "reaper", 7);
        t.fail(2, "entry", 7, FdCall::Write, Some(Errno::Ebadf));
        t.bad_close(2, "journal_end", 7);
        t.close(1, "connection_end", 8);
        pause(t);
    }
}

#[test]
fn r40_the_reaper_of_c_double_close_is_blamed_and_the_journal_is_its_victim() {
    let trace = traced(double_close);
    let found = hazards(&trace);
    for hazard in &found {
        assert_eq!(
            (hazard.rule.as_str(), hazard.fault),
            ("double-close", Some(Fault::Closer))
        );
        let closer = hazard.closer.as_ref().unwrap().culprit.as_ref().unwrap();
        assert_eq!(closer.function.as_deref(), Some("reaper"));
    }
    let rows = told(&trace);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].1[..3], ["connection", "reaper", "handler"]);
    assert_eq!(found[0].count, 8);
}

#[test]
fn r40_before_the_reaper_is_known_its_first_victim_is_told_as_what_it_sees() {
    let trace = traced(|t| {
        connection(t, 100);
        t.file(2, "journal", 7);
        t.call(2, "entry", 7, FdCall::Write);
        t.close(200, "reaper", 7);
        t.fail(2, "entry", 7, FdCall::Write, Some(Errno::Ebadf));
    });
    let found = hazards(&trace);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].rule.as_str(), found[0].fault),
        ("use-after-close", Some(Fault::Closer))
    );
    let closer = found[0].closer.as_ref().unwrap().culprit.as_ref().unwrap();
    assert_eq!(closer.function.as_deref(), Some("reaper"));
}

#[test]
fn r40_two_journals_that_close_each_others_files_are_both_victims_of_the_reaper() {
    let trace = traced(|t| {
        connection(t, 100);
        t.file(2, "journal", 7);
        t.close(200, "reaper", 7);
        for _ in 0..30 {
            t.file(3, "journal", 7);
            t.call(2, "entry", 7, FdCall::Write);
            t.enter(3, "entry", 7, FdCall::Write);
            t.close(2, "journal_end", 7);
            t.file(2, "journal", 7);
            t.call(3, "entry", 7, FdCall::Write);
            t.enter(2, "entry", 7, FdCall::Write);
            t.close(3, "journal_end", 7);
        }
    });
    let rows = told(&trace);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let expected = ["journal", "reaper", "journal_end", "journal"];
    assert_eq!(rows[0].1, expected);
    assert_eq!(hazards(&trace)[0].fault, Some(Fault::Closer));
}

#[test]
fn r40_a_connection_that_the_reaper_took_before_its_first_read_is_not_its_handlers_fault() {
    let trace = traced(|t| {
        t.open(1, "connection", 7, OpenCall::Socketpair, Class::Unix);
        t.close(200, "reaper", 7);
        t.fail(100, "handler", 7, FdCall::Read, Some(Errno::Ebadf));
    });
    let found = hazards(&trace);
    assert_eq!(
        (found[0].rule.as_str(), found[0].fault),
        ("use-after-close", Some(Fault::Closer))
    );
}

/// One request of `py-tls-recycle`. `recycled`: the database gets the number in time.
fn request(t: &mut TraceScript, owner: u32, is_torn: bool, is_recycled: bool) {
    t.socket(owner, "api_call", 7);
    t.enter(owner, "poll", 7, FdCall::Poll);
    t.add(1, "interrupt", What::Shutdown { fd: 7 });
    if !is_torn {
        t.leave(owner, "poll");
        t.call(owner, "poll", 7, FdCall::Poll);
    }
    t.close(1, "interrupt", 7);
    if is_torn {
        t.leave(owner, "poll");
    }
    if is_recycled {
        t.file(3, "dispatcher", 7);
        t.call(3, "query", 7, FdCall::Read);
        t.write(owner, "flush", 7, RECORD);
        t.call(3, "query", 7, FdCall::Read);
        t.close(3, "dispatcher", 7);
    } else {
        t.fail(owner, "flush", 7, FdCall::Write, Some(Errno::Ebadf));
    }
}

#[test]
fn r40_the_interrupt_of_py_tls_recycle_is_blamed_whatever_the_race_gives() {
    let trace = traced(|t| {
        // Startup: the interrupting thread had its own files at the number.
        t.file(1, "startup", 7);
        t.call(1, "startup", 7, FdCall::Write);
        t.close(1, "startup", 7);
        for cycle in 0..8 {
            request(t, 100 + cycle, cycle % 2 == 0, cycle % 4 < 2);
        }
    });
    let rows = told(&trace);
    let rules: Vec<&str> = rows.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(rules.len(), 3, "{rows:?}");
    for rule in ["stranger-close", "recycled-write", "use-after-close"] {
        assert!(rules.contains(&rule), "{rule}: {rules:?}");
    }
    for (hazard, (_, parties)) in hazards(&trace).iter().zip(&rows) {
        assert_eq!(hazard.fault, Some(Fault::Closer), "{}", hazard.message);
        assert_eq!(parties[..2], ["api_call", "interrupt"]);
        assert_eq!(hazard.count, 4);
    }
}

#[test]
fn r40_the_damage_of_source_004_names_reader_and_record() {
    // OpenSSL reads the header from the database and answers with an alert.
    let trace = traced(|t| {
        t.socket(1, "connect", 11);
        t.enter(1, "recv", 11, FdCall::Poll);
        t.close(2, "walk_pool", 11);
        t.file(2, "connect_db", 11);
        t.leave(1, "recv");
        t.call(1, "recv", 11, FdCall::Read);
        t.write(1, "recv", 11, RECORD);
    });
    let rules: Vec<String> = told(&trace).into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(
        rules,
        ["stranger-close", "use-after-close", "recycled-write"]
    );
}
