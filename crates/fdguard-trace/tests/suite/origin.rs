//! The lines that the tracer reports.

use std::os::unix::process::ExitStatusExt as _;

use fdguard_trace::Site;

use super::run::{line, traced};

fn at(sites: &[Site], mark: &str) -> Site {
    let wanted = Some(line(mark));
    let mut found = sites.iter().filter(|site| {
        site.culprit
            .as_ref()
            .is_some_and(|culprit| culprit.line == wanted)
    });
    let site = found
        .next()
        .unwrap_or_else(|| panic!("nothing at {mark}: {sites:#?}"));
    let file = site.culprit.as_ref().unwrap().file.as_ref().unwrap();
    let file = file.as_str().unwrap();
    assert!(file.ends_with("traced.c"), "{file}");
    site.clone()
}

#[test]
fn r18_a_leak_is_named_by_its_line_and_counted_apart_from_correct_use() {
    let run = traced("leak", "> \"$1\"");
    let sites = run.sites();
    let helper = at(&sites, "helper");
    assert_eq!(helper.open.len(), 12);
    assert_eq!(
        (helper.opened, helper.closed),
        (12, 0),
        "not those of the careful caller"
    );
    let functions: Vec<&str> = helper
        .stack
        .iter()
        .filter_map(|place| place.function.as_deref())
        .collect();
    assert_eq!(functions[..3], ["helper", "careless", "run_leak"]);
    assert!(functions.contains(&"_start"), "{functions:?}");
    for mark in ["stream", "folder"] {
        assert_eq!(at(&sites, mark).open.len(), 1);
    }
}

#[test]
fn r18_what_a_message_brought_is_named_by_the_line_that_received_it() {
    let run = traced("received", "> \"$1\"");
    assert_eq!(
        at(&run.sites(), "received").open[0].descriptor.call.name(),
        "recvmsg"
    );
}

#[test]
fn r18_a_system_call_by_number_is_named_by_its_line() {
    let run = traced("syscall", "> \"$1\"");
    let site = at(&run.sites(), "syscall");
    assert_eq!(site.open[0].descriptor.call.name(), "pidfd_open");
}

#[test]
fn r18_the_table_outlives_a_program_that_was_killed() {
    let run = traced("crash", "> \"$1\"");
    assert_eq!(run.outcome.status.signal(), Some(9));
    assert_eq!(at(&run.sites(), "crash").open.len(), 7);
}

#[test]
fn r18_a_million_openings_by_eight_threads_lose_none() {
    let run = traced("storm", "> \"$1\"");
    let table = run.table();
    let (opened, closed) = table
        .accounts
        .values()
        .fold((0, 0), |sum, of| (sum.0 + of.opened, sum.1 + of.closed));
    assert_eq!(run.tables.lost_events(), 0);
    assert_eq!((opened, closed), (1_000_000, 1_000_000 - 800));
    assert_eq!(table.open.len(), 800);
    assert_eq!((table.lost_stacks, table.unseen_closes), (0, 0));
}
