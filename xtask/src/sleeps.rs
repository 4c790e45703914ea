//! Sleeps in tests: a test waits for an event, because a time that suffices here is too short on a
//! machine with more to do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::borders::Complaint;
use crate::source;

/// The files of tests that may sleep, and why.
const ALLOWED: &[(&str, &str)] = &[
    (
        "testkit/src/wait.rs",
        "the one place that looks again and again",
    ),
    (
        "crates/fdguard-host/tests/suite/host_harness.rs",
        "the same on the runtime",
    ),
    (
        "crates/fdguard-attach/tests/suite/restart.rs",
        "limits of calls, half over; a late tracer",
    ),
    (
        "crates/fdguard-host/tests/suite/call/bad_peers.rs",
        "peers that are slow",
    ),
    (
        "crates/fdguard-host/tests/suite/call/race.rs",
        "the pace of readers",
    ),
    (
        "crates/fdguard-host/tests/suite/host_clients.rs",
        "the pace of a client that renews",
    ),
    (
        "crates/fdguard-host/tests/suite/host_killed.rs",
        "a random moment to be killed at",
    ),
    (
        "crates/fdguard-host/tests/suite/http_hostile.rs",
        "a client that is silent for a time",
    ),
    (
        "crates/fdguard-host/tests/suite/scope_daemon.rs",
        "the pace of a user",
    ),
    (
        "crates/fdguard-supervise/src/meter/cost.rs",
        "a wait, whose cost is measured",
    ),
    (
        "crates/fdguard/src/tui/watch/tests.rs",
        "for viewing by eye, not run",
    ),
    (
        "crates/fdguard/tests/suite/kernel_go.rs",
        "the pace of a server's users",
    ),
    (
        "crates/fdguard/tests/suite/host_churn.rs",
        "random moments of clients",
    ),
    (
        "crates/fdguard/tests/suite/host_code.rs",
        "output that nobody reads for a time",
    ),
    (
        "crates/fdguard/tests/suite/host_killed.rs",
        "a random moment to be killed at",
    ),
    (
        "crates/fdguard/tests/suite/situation.rs",
        "the pace of users, and their absence",
    ),
    (
        "crates/fdguard/tests/suite/trace_attach_options.rs",
        "the pace of a leak",
    ),
];

/// Sleeps in tests that the list does not allow, and entries of the list without a sleep.
pub(crate) fn check(sources: &[(PathBuf, String)], tests: &BTreeSet<PathBuf>) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, code) in sources {
        let lines = sleeps(code, is_test(file) || tests.contains(file));
        let is_allowed = ALLOWED.iter().any(|(path, _)| file == Path::new(path));
        if is_allowed && lines.is_empty() {
            let text = "does not sleep: remove it from xtask/src/sleeps.rs";
            complaints.push(Complaint::new(file, 1, text));
        } else if !is_allowed {
            let text = "a test that sleeps: wait for an event (testkit::wait_until), or give the \
                        reason in xtask/src/sleeps.rs";
            complaints.extend(lines.iter().map(|line| Complaint::new(file, *line, text)));
        }
    }
    complaints
}

/// Whether all of a file is for tests.
fn is_test(file: &Path) -> bool {
    let mut parts = file.components();
    file.starts_with("testkit") || parts.any(|part| part.as_os_str() == "tests")
}

/// The lines of tests that call a function of this name.
fn sleeps(code: &str, is_test: bool) -> Vec<usize> {
    let stretches = source::test_only(code).stretches;
    let is_call = |at: &usize| code[at + "sleep".len()..].starts_with('(');
    let is_in_test = |at: &usize| is_test || stretches.iter().any(|one| one.contains(at));
    source::whole_words(code, "sleep")
        .filter(is_call)
        .filter(is_in_test)
        .map(|at| source::line(code, at))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use crate::borders::Complaint;

    fn found(file: &str, code: &str) -> Vec<String> {
        let sources = [(PathBuf::from(file), code.to_owned())];
        let found = super::check(&sources, &BTreeSet::new());
        found.iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn a_sleep_is_refused_in_tests_only() {
        let code = "fn f() {\n    std::thread::sleep(PAUSE);\n}";
        assert_eq!(found("crates/fdguard/src/exit.rs", code), [""; 0]);
        let said = found("crates/fdguard/tests/suite/new.rs", code);
        assert!(said[0].starts_with("crates/fdguard/tests/suite/new.rs:2: a test that sleeps"));
        let inside = "fn f() { sleep(A); }\n#[cfg(test)]\nmod tests {\n    fn g() { sleep(B); }\n}";
        let said = found("crates/fdguard/src/exit.rs", inside);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/fdguard/src/exit.rs:4: "));
    }

    #[test]
    fn the_list_allows_files_that_sleep_and_has_no_others() {
        assert_eq!(
            found("testkit/src/wait.rs", "fn f() { sleep(A); }"),
            [""; 0]
        );
        let said = found("testkit/src/wait.rs", "fn f() {}");
        assert_eq!(
            said,
            ["testkit/src/wait.rs:1: does not sleep: remove it from xtask/src/sleeps.rs"]
        );
    }
}
