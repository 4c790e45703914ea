use jiff::Timestamp;
use jiff::civil::date;

use super::{Evidence, EvidenceInput, Machine, ProcessVisit};
use crate::config::Config;
use crate::judge::Verdict;
use crate::playbook::Playbook;
use crate::recording::{Appearance, RecordingEntry, RecordingHeader};
use crate::rule::RuleSettings;
use crate::testing::{file, snapshot, stdio};
use crate::timeline::{Look, LookChange, Sighting};
use crate::{Class, Gap, Snapshot, Tier};

fn settings(config: &str) -> RuleSettings {
    let config = Config::parse(config).unwrap();
    RuleSettings {
        levels: config.levels,
        expectations: config.expectations,
        suppressions: config.suppressions,
        playbook: Playbook::embedded(),
        today: date(2026, 11, 15),
    }
}

fn log(number: u32) -> crate::FdEntry {
    let path = format!("/srv/zqacme/node_modules/zq-{number}/out.log");
    file(10 + number, Class::Regular, &path)
}

fn held(count: u32) -> Snapshot {
    let mut fds = stdio();
    fds.extend((0..count).map(log));
    let mut snapshot = snapshot(fds);
    snapshot.limits.soft = Some(1024);
    snapshot
}

/// One more file at each of 60 looks.
fn leak() -> EvidenceInput {
    let begin = held(0);
    let appearance = Appearance {
        id: 0,
        at: 0.0,
        process: begin.process.clone(),
        tier: Tier::Full,
        select: None,
        successor_of: None,
    };
    let looks = (0..60_u32).map(|number| {
        let opened = match number {
            0 => begin.fds.iter().flatten().map(Sighting::from).collect(),
            _ => vec![Sighting::from(&log(number))],
        };
        RecordingEntry::Look {
            id: 0,
            look: Box::new(Look {
                at: f64::from(number) / 4.0,
                count: Some(3 + u64::from(number)),
                table: Some(LookChange {
                    opened,
                    ..LookChange::default()
                }),
                limits: Some(begin.limits),
                ..Look::default()
            }),
        }
    });
    let first = RecordingEntry::Process(Box::new(appearance));
    EvidenceInput {
        header: RecordingHeader::new(Timestamp::UNIX_EPOCH, 0.25),
        entries: std::iter::once(first).chain(looks).collect(),
        visits: vec![ProcessVisit {
            begin: begin.clone(),
            end: Some(held(59)),
            select: None,
            runtime: None,
        }],
        relatives: Vec::new(),
        relatives_more: 0,
        machine: Machine::default(),
        logs: Vec::new(),
        gaps: vec![Gap::new("a", "b", "c"), Gap::new("a", "b", "c")],
    }
}

#[test]
fn r16_evidence_is_the_diagnosis_the_summaries_and_the_curves() {
    let evidence = Evidence::of(leak(), &settings("")).unwrap();
    assert_eq!(evidence.diagnosis.verdict, Verdict::Leaking);
    assert!(evidence.has_findings() && evidence.is_complete());
    assert_eq!(evidence.gaps.len(), 1, "each gap once");
    let curves = evidence.examined[0].curves.as_ref().unwrap();
    assert_eq!(curves.total.points.len(), 60);
    assert_eq!(
        (curves.total.points[0].max, curves.total.last()),
        (3, Some(62))
    );
    assert_eq!(curves.families[0].class, Class::Regular);
}

#[test]
fn without_a_process_there_is_no_evidence() {
    let material = EvidenceInput {
        entries: Vec::new(),
        ..leak()
    };
    assert!(Evidence::of(material, &settings("")).is_none());
}

#[test]
fn a_look_that_only_counted_is_not_complete() {
    let mut material = leak();
    material.visits[0].begin.tier = Tier::Radar;
    assert!(!Evidence::of(material, &settings("")).unwrap().is_complete());
}

fn redacted(settings: &RuleSettings) -> (Evidence, Evidence) {
    let original = Evidence::of(leak(), settings).unwrap();
    (original, Evidence::redacted(leak(), settings).unwrap())
}

#[test]
fn r10_redacted_evidence_says_the_same_without_the_names() {
    let (original, shown) = redacted(&settings(""));
    assert!(shown.redacted);
    assert_eq!(shown.diagnosis.verdict, original.diagnosis.verdict);
    let (before, after) = (
        &original.diagnosis.findings[0],
        &shown.diagnosis.findings[0],
    );
    assert_eq!(
        (&before.rule, &before.class, before.grown),
        (&after.rule, &after.class, after.grown)
    );
    assert_eq!(
        (&before.advice, &before.next_step),
        (&after.advice, &after.next_step)
    );
    assert!(before.why.contains("zqacme"), "{}", before.why);
    let text = format!("{shown:?}");
    assert!(!text.contains("zq"), "{text}");
}

#[test]
fn r15_what_the_ledger_cleared_by_name_stays_cleared_without_it() {
    let suppressions = r#"
        [[cleared]]
        class = "regular"
        target = "/srv/zqacme/*"
        reason = "zq: one log for each plugin"
        date = "2026-11-01"
    "#;
    let (original, shown) = redacted(&settings(suppressions));
    assert!(original.diagnosis.findings[0].cleared.is_some());
    let cleared = shown.diagnosis.findings[0].cleared.as_ref().unwrap();
    assert!(!cleared.reason.contains("zq"), "{}", cleared.reason);
    assert_eq!(original.has_findings(), shown.has_findings());
}

#[test]
fn advice_that_is_not_ours_is_not_told_even_under_a_name_of_ours() {
    let ours = Evidence::of(leak(), &settings("")).unwrap();
    let ours = ours.diagnosis.findings[0].advice.clone().unwrap();
    for (id, target) in [
        ("zq-own", "target = [\"*zqacme*\"]"),
        ("zq-any", ""),
        (&ours, ""),
    ] {
        let mut own = settings("");
        let text = format!(
            "[[advice]]\nid = \"{id}\"\nclass = [\"regular\"]\n{target}\nsource = \"zq source\"\nconfirm = \"zq\"\nfix = \"zq\"\n"
        );
        own.playbook = own.playbook.extended_by(Playbook::parse(&text).unwrap());
        let (original, shown) = redacted(&own);
        assert_eq!(original.diagnosis.findings[0].advice.as_deref(), Some(id));
        let told = format!("{:?}", shown.diagnosis);
        assert!(!told.contains("zq"), "{told}");
    }
}

#[test]
fn what_was_found_by_a_name_is_not_lost_with_it() {
    let config =
        "[[expect]]\nname = \"zqplugins\"\nunits = 2\nper_unit = 3\ntarget = \"/srv/zqacme/*\"\n";
    let (original, shown) = redacted(&settings(config));
    let rules = |evidence: &Evidence| -> Vec<String> {
        let findings = evidence.diagnosis.findings.iter();
        findings.map(|finding| finding.rule.clone()).collect()
    };
    assert!(
        rules(&original)
            .iter()
            .any(|rule| rule == "expected-budget"),
        "{:?}",
        rules(&original)
    );
    assert_eq!(rules(&original), rules(&shown));
    assert!(!format!("{shown:?}").contains("zq"));
}
