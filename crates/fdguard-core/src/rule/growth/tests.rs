//! Properties of all rules together.

use std::collections::BTreeSet;

use crate::Class;
use crate::judge::Verdict;
use crate::lint::Severity;
use crate::playbook::Playbook;
use crate::testing::watch_script::{ceiling, configured, leak, selects, settings, watched};

#[test]
fn a_process_that_does_nothing_has_no_findings() {
    let quiet = watched(|t| {
        t.open(Class::Regular, "/srv/a", 10);
        t.looks(80);
    });
    let opinion = quiet.opinion(&settings());
    assert_eq!(opinion.findings, []);
    assert_eq!(opinion.verdict, Verdict::Stable);
}

#[test]
fn beside_a_leak_everything_about_other_classes_is_worth_knowing_and_no_more() {
    let mut busy = watched(|t| {
        t.limits(2048, 4096);
        t.host(|host| {
            host.ptys = ceiling(95, 100);
            host.inotify_instances = ceiling(128, 128);
            host.tasks = ceiling(99, 100);
            host.files = ceiling(99, 100);
        });
        t.family(0, 0);
        t.open(Class::PtyMaster, "/dev/ptmx", 2);
        t.open(Class::Inotify, "anon_inode:inotify", 1);
        t.open(Class::Regular, "/srv/a", 1500);
        t.drip(&Class::Eventpoll, "anon_inode:[eventpoll]", 90);
        t.family(40, 10);
        t.looks(1);
    });
    busy.select = Some(selects());
    let settings = configured(
        "[levels]\nabsolute = 800\n\
         [[expect]]\nname = \"files\"\nunits = 5\nper_unit = 5\nclass = \"regular\"",
    );
    let opinion = busy.opinion(&settings);
    assert_eq!(opinion.verdict, Verdict::Leaking);
    let rules: BTreeSet<&str> = opinion
        .findings
        .iter()
        .map(|one| one.rule.as_str())
        .collect();
    assert!(rules.len() >= 7, "{rules:?}");
    for finding in opinion.findings {
        let is_side = finding.class != Some(Class::Eventpoll);
        assert_eq!(is_side, finding.severity == Severity::Info, "{finding:?}");
    }
}

#[test]
fn every_sentence_is_whole() {
    let mut full = watched(|t| {
        t.limits(1100, 1100);
        t.host(|host| host.inotify_watches = ceiling(95, 100));
        t.family(1, 0);
        t.open(Class::Regular, "/srv/a", 900);
        t.drip(&Class::Pipe, "pipe:[7]", 90);
        t.family(9, 1);
        t.looks(1);
    });
    full.select = Some(selects());
    let settings = configured("[levels]\nabsolute = 800");
    let findings = full.opinion(&settings).findings;
    assert!(findings.len() >= 5, "{findings:#?}");
    for finding in findings {
        let (why, next) = (&finding.why, &finding.next_step);
        // A clause has no full stop; several sentences have one each.
        let is_sentences = why.contains(". ");
        assert!(
            !why.is_empty() && why.ends_with('.') == is_sentences,
            "{why}"
        );
        assert!(
            next.ends_with('.') && !next.starts_with(char::is_lowercase),
            "{next}"
        );
        for text in [why, next] {
            assert!(!text.contains("..") && !text.contains("  "), "{text}");
        }
    }
}

#[test]
fn r5_a_users_playbook_changes_the_next_step() {
    let leaking = leak(&Class::Pipe, "pipe:[7]", 80);
    let ours = leaking.found("leak", &settings());
    assert!(
        ours[0].next_step.starts_with("Likely source: "),
        "{}",
        ours[0].next_step
    );
    let mut settings = settings();
    let theirs = "[[advice]]\nid = \"our-pool\"\nclass = \"pipe\"\nsource = \"The pool.\"\n\
                  confirm = \"ask Ann\"\nfix = \"restart it.\"";
    let theirs = Playbook::parse(theirs).unwrap();
    settings.playbook = settings.playbook.extended_by(theirs);
    let changed = leaking.found("leak", &settings);
    let said = "Likely source: The pool. Confirm: ask Ann. Fix: restart it.";
    assert_eq!(changed[0].next_step, said);
    assert_eq!(changed[0].advice.as_deref(), Some("our-pool"));
}

fn cleared(more: &str) -> String {
    format!("[[cleared]]\nclass = \"pipe\"\nreason = \"a pool of 500\"\ndate = 2026-01-31\n{more}")
}

#[test]
fn r15_a_cleared_suspect_is_told_and_does_not_count() {
    let leaking = leak(&Class::Pipe, "pipe:[7]", 80);
    assert_eq!(leaking.opinion(&settings()).verdict, Verdict::Leaking);
    let opinion = leaking.opinion(&configured(&cleared("up_to = 80")));
    assert_eq!(opinion.verdict, Verdict::Bounded);
    assert!(opinion.rising().is_empty());
    let finding = opinion
        .findings
        .iter()
        .find(|one| one.rule == "leak")
        .unwrap();
    assert_eq!(finding.severity, Severity::Info);
    let note = finding.cleared.as_ref().unwrap();
    assert_eq!(
        (note.reason.as_str(), note.date.as_str()),
        ("a pool of 500", "2026-01-31")
    );
}

#[test]
fn r15_an_entry_that_is_over_or_exceeded_does_not_silence() {
    let leaking = leak(&Class::Pipe, "pipe:[7]", 80);
    for more in ["until = 2026-06-14", "up_to = 79"] {
        let opinion = leaking.opinion(&configured(&cleared(more)));
        assert_eq!(opinion.verdict, Verdict::Leaking, "{more}");
        assert!(opinion.findings.iter().all(|one| one.cleared.is_none()));
    }
    let last_day = leaking.opinion(&configured(&cleared("until = 2026-06-15")));
    assert_eq!(last_day.verdict, Verdict::Bounded);
}

#[test]
fn r15_what_is_beside_a_cleared_leak_counts_again() {
    let both = watched(|t| {
        t.limits(100, 100);
        t.open(Class::Regular, "/srv/a", 5);
        for _ in 0..80 {
            t.open(Class::Pipe, "pipe:[7]", 1);
            t.looks(1);
        }
    });
    let opinion = both.opinion(&configured(&cleared("")));
    let level = opinion
        .findings
        .iter()
        .find(|one| one.rule == "soft-limit-level");
    assert_eq!(level.unwrap().severity, Severity::Warning);
    assert!(
        level
            .unwrap()
            .next_step
            .starts_with("Most are of class pipe.")
    );
}
