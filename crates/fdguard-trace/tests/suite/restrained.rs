//! Programs that install seccomp filters: the library's calls must not get them killed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::run::{Run, alone_words, traced_words};

fn run(how: &str) -> Run {
    let program = testkit::c_variant(
        "restrained",
        "plain",
        &["-O2", "-g", "-fno-optimize-sibling-calls"],
    )
    .expect("a victim that compiles");
    let words = [program.into_os_string(), OsString::from(how)];
    let without = alone_words(&words);
    let run = traced_words(&words);
    assert_eq!(run.outcome, without, "{how}");
    assert!(run.outcome.status.success(), "{how}: {:?}", run.outcome);
    assert!(run.outcome.said.ends_with("done\n"), "{how}");
    run
}

/// How many descriptors opened by the line with this mark are open.
fn live(run: &Run, mark: &str) -> usize {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/restrained.c");
    let text = fs::read_to_string(source).unwrap();
    let mark = format!("/* LEAK {mark} */");
    let line = text.lines().position(|line| line.contains(&mark)).unwrap() + 1;
    let sites = run.sites();
    let at_line = sites.iter().filter(|site| {
        let found = site.culprit.as_ref().and_then(|culprit| culprit.line);
        found.and_then(|found| usize::try_from(found).ok()) == Some(line)
    });
    at_line.map(|site| site.open.len()).sum()
}

#[test]
fn r19_a_program_that_would_be_ended_for_our_calls_lives_and_the_loss_is_counted() {
    for how in ["strict", "library"] {
        let run = run(how);
        assert_eq!((live(&run, "before"), live(&run, "after")), (1, 0), "{how}");
        assert!(run.tables.lost_events() >= 4, "{how}");
    }
}

#[test]
fn r19_a_program_that_allows_our_calls_is_recorded_on() {
    for how in ["mild", "refused"] {
        let run = run(how);
        assert_eq!((live(&run, "before"), live(&run, "after")), (1, 3), "{how}");
        assert_eq!(run.tables.lost_events(), 0, "{how}");
    }
}

#[test]
fn r19_a_program_for_which_our_calls_fail_lives() {
    assert_eq!(live(&run("failing"), "before"), 1);
}

#[test]
fn r19_a_forked_child_begins_nothing_where_it_would_be_ended_for_that() {
    let run = run("fork");
    assert_eq!(run.outcome.said, "child\ndone\n");
    assert_eq!((live(&run, "before"), live(&run, "after")), (1, 3));
}
