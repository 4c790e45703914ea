use fdguard_core::Class;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::config::{Levels, Suppressions};
use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame, Language, Origin};
use fdguard_core::playbook::Playbook;
use fdguard_core::proof::process::{Ending, Fate, LeftoverProcess};
use fdguard_core::proof::{Remains, RemainsVerdict};
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::Process;
use fdguard_trace::ProcessTables;
use jiff::Timestamp;

use super::{
    CheckBaseline, CheckEvidence, HeldCounts, ProgramEnd, Proof, forgive_last_zombies,
    piles_per_cycle,
};

const PID: u32 = 100;

fn settings() -> RuleSettings {
    RuleSettings {
        levels: Levels::default(),
        expectations: Vec::new(),
        suppressions: Suppressions::default(),
        playbook: Playbook::embedded(),
        today: jiff::civil::date(2026, 1, 1),
    }
}

fn diagnosis() -> Diagnosis {
    let process = Process {
        pid: PID,
        comm: "srv".into(),
        ..Process::default()
    };
    let times = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    Diagnosis::new(process, times, WatchEnd::ProcessEnded, "preload")
}

/// A program that is not traced and left these processes.
fn end(tables: &ProcessTables, processes: Vec<LeftoverProcess>) -> ProgramEnd<'_> {
    ProgramEnd {
        pid: PID,
        status: 0,
        was_signalled: false,
        traces: &[],
        tables,
        watch: None,
        piles: Vec::new(),
        processes,
        strict: false,
    }
}

fn evidence(processes: Vec<LeftoverProcess>) -> CheckEvidence {
    end(&ProcessTables::default(), processes).evidence(diagnosis(), &|_, _| (None, None))
}

fn origin(line: u32) -> Origin {
    let frame = Frame {
        file: Some("/srv/run.py".into()),
        function: Some("start".to_owned()),
        line: Some(line),
        module: None,
        language: Language::Python,
    };
    Origin {
        culprit: Some(Culprit::from(&frame)),
        leaking_caller: None,
        through: Vec::new(),
        partly: false,
        stack: vec![frame],
        thread: None,
        live: 1,
        opened: 1,
        closed: 0,
        oldest_age_seconds: None,
    }
}

fn child(fate: Fate, line: u32) -> LeftoverProcess {
    LeftoverProcess {
        pid: 101,
        comm: "sleep".into(),
        cmdline: Vec::new(),
        fate,
        own_session: None,
        parent: None,
        ending: Ending::Kept,
        origin: Some(origin(line)),
        allowed_by: None,
    }
}

fn pile(line: u32, started: u64, waited: u64) -> ChildPile {
    ChildPile {
        pid: PID,
        name: None,
        started,
        waited,
        running: started - waited,
        zombies: 0,
        came: 1.0,
        per_cycle: None,
        origin: origin(line),
    }
}

#[test]
fn a_program_that_nobody_saw_is_not_proven_clean() {
    let proof = Proof::new(evidence(Vec::new()), &[], &settings());
    assert!(proof.check.passed && proof.check.blind);
    assert_eq!(proof.diagnosis.gaps[0].what, "what it left open");
}

#[test]
fn a_process_left_behind_fails_and_is_only_told_where_it_is_allowed() {
    let left = child(Fate::Running, 7);
    let proof = Proof::new(evidence(vec![left.clone()]), &[], &settings());
    assert_eq!((proof.check.passed, proof.failures()), (false, 1));
    assert!(!proof.check.blind, "what was found is certain");
    let allowed_by = Some("--allow-process sleep".to_owned());
    let allowed = LeftoverProcess { allowed_by, ..left };
    let proof = Proof::new(evidence(vec![allowed]), &[], &settings());
    assert_eq!((proof.check.passed, proof.failures()), (true, 0));
    assert_eq!(proof.diagnosis.findings[0].severity, Severity::Info);
}

#[test]
fn more_descriptors_than_in_the_last_run_fail() {
    let held = |count| HeldCounts::from([("pipe".to_owned(), count)]);
    let mut proof = Proof::new(
        CheckEvidence {
            held: Some(held(9)),
            ..evidence(Vec::new())
        },
        &[],
        &settings(),
    );
    proof.compare(&CheckBaseline::new(held(8)));
    assert!(proof.check.passed);
    proof.compare(&CheckBaseline::new(held(2)));
    assert!(!proof.check.passed);
    let why = &proof.diagnosis.findings[0].why;
    assert!(
        why.starts_with("9 descriptors of class pipe at the end, up from 2"),
        "{why}"
    );
}

#[test]
fn one_more_of_a_leaking_line_whose_class_is_unknown_is_not_a_second_finding() {
    let found = |line: u32| {
        let mut evidence = evidence(Vec::new());
        evidence.diagnosis.findings.push(Finding {
            class: Some(Class::Regular),
            count: Some(50),
            origin: Some(origin(7)),
            ..Finding::new("leak", PID, "srv".into(), Severity::Warning)
        });
        evidence.remains.push(Remains {
            pid: PID,
            comm: "srv".into(),
            class: None,
            target: None,
            call: "open".to_owned(),
            count: 1,
            fds: vec![60],
            judged: RemainsVerdict::Grew,
            why: String::new(),
            origin: Some(origin(line)),
            exercise: None,
            per_cycle: None,
            allowed_by: None,
        });
        Proof::new(evidence, &[], &settings()).failures()
    };
    assert_eq!((found(7), found(8)), (1, 2));
}

#[test]
fn the_last_zombie_of_a_line_that_waits_is_forgiven() {
    let lines = [(pile(7, 40, 39), Vec::new()), (pile(8, 40, 4), Vec::new())];
    let zombies = vec![
        child(Fate::Zombie, 7),
        child(Fate::Zombie, 8),
        child(Fate::Running, 7),
    ];
    let mut left = zombies.clone();
    forgive_last_zombies(&mut left, &lines);
    assert_eq!(left, zombies[1..]);
}

#[test]
fn a_child_for_each_cycle_is_a_pile_and_those_of_the_warm_up_are_not() {
    let begins: Vec<u64> = (1..=30).map(|cycle| cycle * 10).collect();
    let each: Vec<u64> = begins.iter().map(|begin| begin + 1).collect();
    let lines = vec![(pile(7, 33, 0), each), (pile(8, 3, 0), vec![1, 2, 3])];
    let piles = piles_per_cycle(lines, &begins, 2);
    let [pile] = piles.as_slice() else {
        panic!("{piles:?}");
    };
    let culprit = pile.origin.culprit.as_ref().unwrap();
    assert_eq!((culprit.line, pile.running), (Some(7), 30));
    assert_eq!(pile.per_cycle.as_ref().unwrap().1, 2);
}
