use jiff::Timestamp;
use jiff::civil::date;

use super::Clearance;
use crate::Class;
use crate::config::Config;
use crate::hazard::{Fault, Hazard, Party};
use crate::lint::Severity;
use crate::proof::Allowance;
use crate::proof::testing::frame;

fn party(file: &str, line: u32) -> Option<Party> {
    Some(Party {
        thread: Some(1),
        culprit: None,
        stack: vec![frame(file, "work", line), frame("/srv/main.py", "main", 9)],
    })
}

fn hazard(fault: Option<Fault>) -> Hazard {
    Hazard {
        pid: 1,
        rule: "lock-drop".to_owned(),
        severity: Severity::Critical,
        fd: Some(4),
        class: Some(Class::Regular),
        when: Timestamp::UNIX_EPOCH,
        count: 3,
        prevented: false,
        opener: party("/srv/open.py", 1),
        closer: party("/srv/close.py", 2),
        user: party("/srv/lock.py", 3),
        victim: None,
        fault,
        holders: Vec::new(),
        message: "dropped".to_owned(),
        cleared: None,
    }
}

fn cleared_by(allow: &str, file: &str, hazard: &Hazard) -> Option<String> {
    let allow: Vec<Allowance> = allow
        .split_whitespace()
        .map(|one| one.parse().unwrap())
        .collect();
    let suppressions = Config::parse(file).unwrap().suppressions;
    let clearance = Clearance {
        allow: &allow,
        suppressions: &suppressions,
        today: date(2026, 1, 1),
    };
    let note = clearance.of_hazard(hazard, Some("srv"));
    note.map(|note| note.reason)
}

#[test]
fn a_hazard_is_cleared_by_its_rule_or_by_a_line_of_the_one_at_fault() {
    let by = |allow: &str| cleared_by(allow, "", &hazard(Some(Fault::Closer)));
    assert_eq!(by("lock-drop").unwrap(), "--allow lock-drop");
    assert_eq!(by("close.py:2").unwrap(), "--allow close.py:2");
    assert_eq!(by("main.py:9").unwrap(), "--allow main.py:9");
    for other in [
        "double-close",
        "lock.py:3",
        "open.py:1",
        "regular",
        "/srv/*",
    ] {
        assert_eq!(by(other), None, "{other}");
    }
    let by = |allow: &str| cleared_by(allow, "", &hazard(None));
    assert!(by("open.py:1").is_some() && by("lock.py:3").is_some());
}

#[test]
fn the_file_clears_by_rule_and_line_and_all_that_an_entry_names_must_fit() {
    let entry = |keys: &str| {
        let text = format!("[[cleared]]\n{keys}\nreason = \"known\"\ndate = 2025-01-01\n");
        cleared_by("", &text, &hazard(Some(Fault::Closer)))
    };
    for fits in [
        "rule = \"lock-drop\"",
        "line = \"close.py:2\"",
        "rule = \"lock-drop\"\nline = \"close.py:2\"\nclass = \"regular\"\nowner = \"srv\"",
    ] {
        assert_eq!(entry(fits).as_deref(), Some("known"), "{fits}");
    }
    for other in [
        "class = \"regular\"",
        "rule = \"lock-drop\"\nline = \"lock.py:3\"",
        "rule = \"lock-drop\"\nowner = \"other\"",
        "rule = \"lock-drop\"\nup_to = 2",
        "rule = \"lock-drop\"\nuntil = 2025-12-31",
    ] {
        assert_eq!(entry(other), None, "{other}");
    }
}

#[test]
fn what_cleared_nothing_is_named() {
    let allow = ["pipe", "lock-drop"].map(|one| one.parse().unwrap());
    let text = "[[cleared]]\nrule = \"leak\"\nreason = \"a cache\"\ndate = 2025-01-01\n";
    let suppressions = Config::parse(text).unwrap().suppressions;
    let clearance = Clearance {
        allow: &allow,
        suppressions: &suppressions,
        today: date(2026, 1, 1),
    };
    let unused = clearance.unused(&["--allow pipe"]);
    assert_eq!(
        unused,
        ["--allow lock-drop", "[[cleared]] entry \"a cache\""]
    );
    let dated = clearance.unused(&["--allow pipe", "--allow lock-drop", "a cache (2025-01-01)"]);
    assert!(dated.is_empty());
}
