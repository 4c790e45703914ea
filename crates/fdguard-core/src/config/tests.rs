use jiff::civil::{Date, date};
use proptest::prelude::*;

use super::{Config, Levels};
use crate::{Class, TcpState};

const EXAMPLE: &str = include_str!("../../../../docs/examples/fdguard.toml");

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn said(text: &str) -> String {
    // The column is tested with the reader.
    let mistake = Config::parse(text).unwrap_err();
    let said = mistake.to_string();
    let place = mistake.place.unwrap();
    said.replacen(&format!("{place}: "), &format!("line {}: ", place.line), 1)
}

/// A complete suppression with these additional lines.
fn cleared(lines: &str) -> String {
    format!("[[cleared]]\nreason = \"a pool\"\ndate = 2026-03-01\n{lines}")
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse(""), Config::default());
    assert_eq!(parse("[levels]\n"), Config::default());
}

#[test]
fn the_example_is_read_as_it_says() {
    let config = parse(EXAMPLE);
    let levels = Levels {
        warning: 70.0,
        critical: 90.0,
        absolute: Some(800),
    };
    assert_eq!(config.levels, levels);
    assert_eq!(config.playbook.as_deref(), Some("playbook.toml"));
    let names: Vec<&str> = config
        .expectations
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["sessions", "workers"]);
    let sessions = &config.expectations[0];
    assert_eq!(sessions.limit(), 75);
    assert!(sessions.counts(&Class::SqliteWal, b"/srv/app/alice.db-wal"));
    assert!(!sessions.counts(&Class::SqliteWal, b"/home/alice.db-wal"));
    assert!(!sessions.counts(&Class::Regular, b"/srv/app/alice.db-wal"));
    assert!(config.expectations[1].breached_by(61));
    assert_eq!(config.suppressions.entries().len(), 4);
    assert_eq!(config.traced_services, ["billing.service"]);
}

#[test]
fn a_service_that_may_be_traced_has_a_name_and_is_listed_once() {
    let config = parse("[serve]\ntrace = [\"web\", \"api\", \"web\"]\n");
    assert_eq!(config.traced_services, ["web", "api"]);
    assert!(said("[serve]\ntrace = [\"web\", \"\"]\n").contains("a service must have a name"));
    assert!(said("[serve]\ntraces = []\n").contains("traces"));
}

#[test]
fn a_rule_and_a_line_must_be_there_and_well_formed() {
    let entry = |keys: &str| format!("[[cleared]]\n{keys}\nreason = \"a\"\ndate = 2026-01-01");
    assert_eq!(
        said(&entry("rule = \"lock-dorp\"")),
        "line 2: cleared.rule: unknown rule \"lock-dorp\""
    );
    let form = "line 2: cleared.line: must be FILE:LINE, such as cache.py:31";
    for bad in ["cache.py", ":31", "cache.py:x"] {
        assert_eq!(said(&entry(&format!("line = {bad:?}"))), form);
    }
    let both = parse(&entry("rule = \"lock-drop\"\nline = \"cache.py:31\""));
    let entry = &both.suppressions.entries()[0];
    assert_eq!(entry.rule.as_deref(), Some("lock-drop"));
    assert_eq!(entry.line.as_ref().unwrap().to_string(), "cache.py:31");
}

#[test]
fn levels_must_be_in_order() {
    assert_eq!(
        said("[levels]\nwarning = 95"),
        "line 2: levels.warning: the warning level 95 must not exceed the critical level 90"
    );
    assert_eq!(
        said("\n[levels]\ncritical = 50.5"),
        "line 3: levels.critical: the warning level 70 must not exceed the critical level 50.5"
    );
    let range = "must be above 0 and at most 100";
    for bad in ["0", "-1", "100.1", "nan", "inf"] {
        let text = format!("[levels]\nwarning = {bad}");
        assert_eq!(said(&text), format!("line 2: levels.warning: {range}"));
    }
    assert_eq!(
        said("[levels]\nabsolute = 0"),
        "line 2: levels.absolute: must be at least 1"
    );
    assert!((parse("[levels]\nwarning = 90").levels.warning - 90.0).abs() < f64::EPSILON);
}

#[test]
fn an_error_names_the_line_and_the_key() {
    let unknown = said("[levels]\nwarnings = 70");
    assert!(
        unknown.starts_with("line 2: unknown field `warnings`"),
        "{unknown}"
    );
    let kind = said("# mine\n[levels]\nwarning = \"70\"");
    assert!(
        kind.starts_with("line 3: levels.warning: invalid type"),
        "{kind}"
    );
    let negative = said("[[expect]]\nname = \"a\"\nunits = -3\nper_unit = 1");
    assert!(
        negative.starts_with("line 3: expect.units: invalid value"),
        "{negative}"
    );
    let missing = said("[[expect]]\nname = \"a\"\nunits = 3");
    assert_eq!(missing, "line 1: expect: missing field `per_unit`");
    let broken = said("[levels]\nwarning = = 3");
    assert!(broken.starts_with("line 2: levels.warning: "), "{broken}");
    let table = said("[nonsense]");
    assert!(
        table.starts_with("line 1: unknown field `nonsense`"),
        "{table}"
    );
}

#[test]
fn an_expectation_that_makes_no_sense_is_refused_where_it_stands() {
    let with = |lines: &str| said(&format!("[[expect]]\n{lines}"));
    assert_eq!(
        with("name = \"a\"\nunits = 0\nper_unit = 1"),
        "line 3: expect.units: the number of units must be at least 1"
    );
    assert_eq!(
        with("name = \"a\"\nunits = 1\nper_unit = 1\nfactor = 0.5"),
        "line 5: expect.factor: the factor must be at least 1"
    );
    assert_eq!(
        with("name = \"\"\nunits = 1\nper_unit = 1"),
        "line 2: expect.name: an expectation needs a name"
    );
    assert_eq!(
        with("name = \"a\"\nclass = \"tcp\"\nunits = 1\nper_unit = 1"),
        "line 3: expect.class: unknown descriptor class \"tcp\" (did you mean \"tcp*\"?)"
    );
    let one = "[[expect]]\nname = \"a\"\nunits = 1\nper_unit = 1\n";
    assert_eq!(
        said(&one.repeat(2)),
        "line 6: expect.name: duplicate expectation name"
    );
}

#[test]
fn r15_an_entry_of_the_ledger_needs_a_reason_a_date_and_something_to_clear() {
    let missing = "[[cleared]]\nclass = \"pipe\"\ndate = 2026-03-01";
    assert_eq!(said(missing), "line 1: cleared: missing field `reason`");
    let empty = "[[cleared]]\nclass = \"pipe\"\nreason = \" \"\ndate = 2026-03-01";
    let why = "line 3: cleared.reason: must state why this is acceptable";
    assert_eq!(said(empty), why);
    let everything = "line 2: cleared: this entry would match everything: give a rule, line, class, target or owner";
    assert_eq!(said(&cleared("")), everything);
    let day = "must be a date such as 2026-01-31";
    for bad in [
        "2026-03-01T10:00:00Z",
        "\"soon\"",
        "3",
        "\"2026-02-30\"",
        "10:00:00",
    ] {
        let text = cleared(&format!("class = \"pipe\"\nuntil = {bad}"));
        assert_eq!(said(&text), format!("line 5: cleared.until: {day}"));
    }
    let before = cleared("class = \"pipe\"\nuntil = 2026-02-01");
    assert_eq!(
        said(&before),
        "line 5: cleared.until: must not be before date"
    );
    assert_eq!(
        said(&cleared("target = \"\"")),
        "line 4: cleared.target: must not be empty"
    );
}

const TODAY: Date = date(2026, 4, 1);

#[test]
fn r15_a_cleared_suspect_is_found_with_its_reason() {
    let text = cleared("class = \"sqlite-*\"\ntarget = \"/srv/*\"\nowner = \"web*\"");
    let suppressions = parse(&text).suppressions;
    let find = |class: &Class, target: Option<&[u8]>, owner: &[u8]| {
        suppressions
            .find(class, target, owner, 9, TODAY)
            .map(|one| one.reason.as_str())
    };
    let target = Some(&b"/srv/a.db"[..]);
    assert_eq!(find(&Class::SqliteDb, target, b"webui"), Some("a pool"));
    assert_eq!(find(&Class::Pipe, target, b"webui"), None);
    assert_eq!(find(&Class::SqliteDb, Some(b"/tmp/a.db"), b"webui"), None);
    assert_eq!(find(&Class::SqliteDb, target, b"cron"), None);
    assert_eq!(find(&Class::SqliteDb, None, b"webui"), None);
}

#[test]
fn r15_more_than_was_cleared_is_a_new_suspicion() {
    let suppressions = parse(&cleared("class = \"tcp:*\"\nup_to = 20")).suppressions;
    let class = Class::Tcp(TcpState::CloseWait);
    assert!(suppressions.find(&class, None, b"", 20, TODAY).is_some());
    assert!(suppressions.find(&class, None, b"", 21, TODAY).is_none());
}

#[test]
fn r15_an_entry_holds_through_its_last_day_and_is_told_as_expired_after_it() {
    let suppressions = parse(&cleared("class = \"pipe\"\nuntil = \"2026-04-01\"")).suppressions;
    let tomorrow = date(2026, 4, 2);
    assert!(
        suppressions
            .find(&Class::Pipe, None, b"", 1, TODAY)
            .is_some()
    );
    assert_eq!(suppressions.expired(TODAY).count(), 0);
    assert!(
        suppressions
            .find(&Class::Pipe, None, b"", 1, tomorrow)
            .is_none()
    );
    assert_eq!(suppressions.expired(tomorrow).count(), 1);
}

proptest! {
    #[test]
    fn any_text_is_survived_and_errors_are_one_line(text: String) {
        if let Err(error) = Config::parse(&text) {
            prop_assert!(!error.to_string().contains(char::is_control));
            prop_assert!(error.place.is_some_and(|place| place.line <= text.lines().count() + 1));
        }
    }

    #[test]
    fn a_damaged_example_is_survived(at in 0..EXAMPLE.len(), junk in "\\PC{0,3}", cut: bool) {
        let start = EXAMPLE.floor_char_boundary(at);
        let mut text = EXAMPLE[..start].to_owned() + &junk;
        if !cut {
            text += &EXAMPLE[start..];
        }
        if let Err(error) = Config::parse(&text) {
            prop_assert!(error.place.is_some_and(|place| place.line <= text.lines().count() + 1));
        }
    }
}
