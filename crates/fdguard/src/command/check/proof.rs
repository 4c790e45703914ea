//! The result of a check: the diagnosis, and what the check adds to it.

use fdguard_core::children::finding::{self as children, ChildPile};
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::{ClearedNote, Finding};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::proof::process::{Fate, LeftoverProcess};
use fdguard_core::proof::{
    Allowance, Clearance, Remains, RemainsVerdict, at_exit, cycles, next_step, process,
};
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::Process;
use fdguard_core::{Class, Gap, Text};
use serde::Serialize;

use super::baseline::HeldCounts;
use super::exercise::ExerciseResult;
use super::go;
use crate::command::clearing;
use crate::report::problem::ProblemReport;
use fdguard_diagnose::trace::comm;

/// Rules of a watch whose findings fail a check. Findings about the host alone are not the
/// program's fault.
const FAILING: &[&str] = &[
    "leak",
    "growth",
    "absolute-level",
    "expected-budget",
    at_exit::RULE.id,
    cycles::RULE.id,
    process::RULE.id,
    children::RULE.id,
];

/// The document.
#[derive(Debug, Serialize)]
pub(super) struct Proof {
    #[serde(flatten)]
    pub(super) diagnosis: Diagnosis,
    pub(super) check: Check,
    /// Flags and entries that accepted nothing.
    #[serde(skip)]
    pub(super) unused: Vec<String>,
}

/// What a check adds.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    /// True if nothing fails it.
    pub(super) passed: bool,
    /// The program's own exit code, 128+n after a signal; absent if fdguard was not its parent.
    pub(super) status: Option<u8>,
    /// Everything that was left open, the worst first, with its verdict.
    pub(super) leftovers: Vec<Remains>,
    /// Processes that outlived it, and zombies.
    pub(super) processes: Vec<LeftoverProcess>,
    /// How the server was exercised, in order.
    pub(super) exercises: Vec<ExerciseResult>,
    /// Descriptors held at the end, by class; absent if they could not be read.
    pub(super) held: Option<HeldCounts>,
    /// Whether something prevented the judgement: then an empty result proves nothing.
    pub(super) blind: bool,
}

/// What was found, before it is reported.
pub(super) struct Evidence {
    pub(super) diagnosis: Diagnosis,
    pub(super) remains: Vec<Remains>,
    /// Lines that start children and do not wait for them.
    pub(super) piles: Vec<ChildPile>,
    pub(super) processes: Vec<LeftoverProcess>,
    pub(super) status: Option<u8>,
    pub(super) exercises: Vec<ExerciseResult>,
    pub(super) held: Option<HeldCounts>,
    pub(super) blind: bool,
}

impl Proof {
    /// Draws the conclusion.
    pub(super) fn of(evidence: Evidence, allow: &[Allowance], settings: &RuleSettings) -> Self {
        let Evidence {
            mut diagnosis,
            mut remains,
            piles,
            mut processes,
            status,
            exercises,
            held,
            blind,
        } = evidence;
        let clearance = Clearance::new(allow, settings);
        clearing::clear(&mut diagnosis, &clearance);
        allow_processes(&mut processes, allow);
        for one in &mut remains {
            allow_remains(one, &clearance);
        }
        remains.sort_by_key(|one| (one.judged, std::cmp::Reverse(one.count)));
        let requests = |one: &Remains| {
            let of = exercises.iter().find(|of| of.name == one.exercise);
            of.map_or(1, |of| u64::from(of.concurrency))
        };
        // The watch already reports most growth.
        let told = remains.iter().filter(|one| {
            one.judged != RemainsVerdict::Grew
                || !diagnosis.findings.iter().any(|other| is_told(one, other))
        });
        let found = told.filter_map(|one| finding(one, requests(one)));
        let mut findings: Vec<Finding> = found.collect();
        findings.extend(of_processes(&processes));
        findings.append(&mut diagnosis.findings);
        add_piles(&mut findings, &piles, |pid| comm(&diagnosis, pid));
        // Findings with a line to fix come first.
        findings.sort_by_key(|one| {
            let has_line = one.origin.is_some();
            (!fails(one), !has_line, std::cmp::Reverse(one.severity))
        });
        diagnosis.findings = findings;
        clearing::clear_findings(&mut diagnosis, &clearance);
        clearing::apply_clearances(&mut diagnosis);
        let failing = diagnosis.findings.iter().any(fails) || clearing::has_hazard(&diagnosis);
        let unused = unused(&clearance, &diagnosis, &remains);
        go::explain(&mut diagnosis);
        let mut found = diagnosis.findings.iter();
        let piles_up = found.any(|one| is_pile(one) && fails(one));
        let leaks = |one: &Remains| one.judged == RemainsVerdict::PerCycle;
        if piles_up || remains.iter().any(leaks) {
            diagnosis.verdict = Verdict::Leaking;
        }
        Self {
            check: Check {
                passed: !failing,
                status,
                leftovers: remains,
                processes,
                exercises,
                held,
                blind: blind && !failing,
            },
            unused,
            diagnosis,
        }
    }
}

/// Allowances that matched nothing.
fn unused(clearance: &Clearance<'_>, found: &Diagnosis, remains: &[Remains]) -> Vec<String> {
    let allowed = remains.iter().filter_map(|one| one.allowed_by.as_deref());
    let reasons = clearing::reasons(found).into_iter().chain(allowed);
    clearance.unused(&reasons.collect::<Vec<&str>>())
}

/// Whether a finding fails a check.
pub(super) fn fails(finding: &Finding) -> bool {
    let counts = finding.severity >= Severity::Warning && finding.cleared.is_none();
    counts && FAILING.contains(&finding.rule.as_str())
}

/// Whether the watch reports this growth.
fn is_told(remains: &Remains, finding: &Finding) -> bool {
    let family = |class: Option<&Class>| class.map(Class::family);
    matches!(finding.rule.as_str(), "leak" | "growth")
        && finding.pid == remains.pid
        && family(finding.class.as_ref()) == family(remains.class.as_ref())
}

fn finding(remains: &Remains, requests: u64) -> Option<Finding> {
    let (rule, why) = match remains.judged {
        RemainsVerdict::PerCycle => (&cycles::RULE, per_cycle(remains, requests)),
        RemainsVerdict::Grew
        | RemainsVerdict::Left
        | RemainsVerdict::Strayed
        | RemainsVerdict::Allowed => (&at_exit::RULE, remains.why.clone()),
        _ => return None,
    };
    let cleared = remains.allowed_by.as_ref().map(|by| ClearedNote {
        reason: by.clone(),
        date: jiff::Zoned::now().date().to_string(),
    });
    Some(Finding {
        rule: rule.id.to_owned(),
        pid: remains.pid,
        comm: remains.comm.clone(),
        severity: if cleared.is_some() {
            Severity::Info
        } else {
            rule.severity
        },
        class: remains.class.clone(),
        target: remains.target.clone(),
        count: Some(remains.count),
        grown: i64::try_from(remains.count).ok(),
        rate_per_min: None,
        confidence: 1.0,
        walls: Vec::new(),
        why,
        next_step: next_step(remains),
        origin: remains.origin.clone(),
        shape: None,
        advice: None,
        cleared,
    })
}

/// `one descriptor per request from server.py:31 handle (regular /srv/a.log): 27 of 27 cycles …`.
fn per_cycle(remains: &Remains, requests: u64) -> String {
    let Some(rate) = &remains.per_cycle else {
        return remains.why.clone();
    };
    let sentence = cycles::sentence(rate, requests);
    let culprit = remains.origin.as_ref().and_then(|one| one.culprit.as_ref());
    let from = culprit.map_or_else(|| "an unknown line".to_owned(), fdguard_core::proof::place);
    let what = fdguard_core::proof::what(remains);
    let exercise = remains
        .exercise
        .as_ref()
        .map(|name| format!(" in exercise {name:?}"));
    format!(
        "{sentence} from {from} ({what}){}: {}",
        exercise.unwrap_or_default(),
        cycles::evidence(rate)
    )
}

/// One finding per process; processes of one kind started by one line are merged, and so are
/// zombies of one parent.
fn of_processes(processes: &[LeftoverProcess]) -> Vec<Finding> {
    let mut findings: Vec<(&LeftoverProcess, Finding)> = Vec::new();
    for one in processes {
        let same = findings.iter_mut().find(|(other, _)| is_alike(one, other));
        match same {
            Some((_, finding)) => finding.count = finding.count.map(|count| count + 1),
            None => findings.push((one, of_process(one))),
        }
    }
    let told = findings.into_iter().map(|(_, mut finding)| {
        if let Some(more) = finding.count.filter(|count| *count > 1) {
            finding
                .why
                .push_str(&format!("; and {} more like it", more - 1));
        }
        finding
    });
    told.collect()
}

fn is_alike(one: &LeftoverProcess, other: &LeftoverProcess) -> bool {
    let culprit =
        |of: &LeftoverProcess| of.origin.as_ref().and_then(|origin| origin.culprit.clone());
    let kind =
        |of: &LeftoverProcess| (of.fate, of.comm.clone(), of.allowed_by.clone(), culprit(of));
    let is_one_line = culprit(one).is_some_and(|culprit| culprit.line.is_some());
    let is_one_parent = one.fate == Fate::Zombie && one.parent == other.parent;
    kind(one) == kind(other) && (is_one_line || is_one_parent)
}

/// Adds the findings about children that pile up, unless the children left by a line are already
/// reported as processes.
fn add_piles(findings: &mut Vec<Finding>, piles: &[ChildPile], comm: impl Fn(u32) -> Text) {
    for pile in piles {
        let culprit = |of: &Finding| of.origin.as_ref().and_then(|origin| origin.culprit.clone());
        let is_line = |one: &Finding| {
            let lines = culprit(one).zip(pile.origin.culprit.clone());
            lines.is_some_and(|(one, other)| children::is_same_line(&one, &other))
        };
        let left = findings
            .iter_mut()
            .find(|one| one.rule == process::RULE.id && is_line(one));
        match left {
            Some(left) if pile.per_cycle.is_none() => {
                left.why = format!("{}; {}", left.why, pile.sentence());
            }
            _ => children::add(findings, pile, comm(pile.pid)),
        }
    }
}

fn is_pile(finding: &Finding) -> bool {
    finding.rule == children::RULE.id
}

/// Applies the user's allowances to the lines that started processes.
fn allow_processes(processes: &mut [LeftoverProcess], allow: &[Allowance]) {
    for one in processes {
        let origin = one.origin.as_ref();
        let by = allow.iter().find(|by| by.covers(None, None, origin));
        if let Some(by) = by.filter(|_| one.allowed_by.is_none()) {
            one.allowed_by = Some(format!("--allow {by}"));
        }
    }
}

fn of_process(leftover: &LeftoverProcess) -> Finding {
    let cleared = leftover.allowed_by.as_ref().map(|by| ClearedNote {
        reason: by.clone(),
        date: jiff::Zoned::now().date().to_string(),
    });
    Finding {
        rule: process::RULE.id.to_owned(),
        pid: leftover.pid,
        comm: leftover.comm.clone(),
        severity: if cleared.is_some() {
            Severity::Info
        } else {
            process::RULE.severity
        },
        class: None,
        target: None,
        count: Some(1),
        grown: None,
        rate_per_min: None,
        confidence: 1.0,
        walls: Vec::new(),
        why: leftover.why(),
        next_step: leftover.next_step(),
        origin: leftover.origin.clone(),
        shape: None,
        advice: None,
        cleared,
    }
}

/// The finding for an exceeded budget.
pub(super) fn budget_finding(process: &Process, why: String, count: u64) -> Finding {
    Finding {
        rule: "expected-budget".to_owned(),
        pid: process.pid,
        comm: process.comm.clone(),
        severity: Severity::Warning,
        class: None,
        target: None,
        count: Some(count),
        grown: None,
        rate_per_min: None,
        confidence: 1.0,
        walls: Vec::new(),
        why,
        next_step: "List them with `fdguard snap`. Close what is not needed, or raise the budget."
            .to_owned(),
        origin: None,
        shape: None,
        advice: None,
        cleared: None,
    }
}

fn allow_remains(remains: &mut Remains, clearance: &Clearance<'_>) {
    if !remains.judged.fails() {
        return;
    }
    let rule = match remains.judged {
        RemainsVerdict::PerCycle => &cycles::RULE,
        _ => &at_exit::RULE,
    };
    if let Some(by) = clearance.of_remains(remains, rule.id) {
        remains.judged = RemainsVerdict::Allowed;
        remains.allowed_by = Some(by);
    }
}

/// The gap for a program that cannot be traced and ended too soon for anything else.
pub(super) fn too_short() -> Gap {
    Gap::new(
        "what it left open",
        "the program cannot be traced, and it ended before its descriptor counts showed a trend",
        "let it run for at least five seconds, or link it dynamically",
    )
}

impl Proof {
    /// The number of failures.
    pub(super) fn failures(&self) -> usize {
        let findings = self.diagnosis.findings.iter().filter(|one| fails(one));
        let hazards = self.diagnosis.hazards.iter();
        findings.count() + hazards.filter(|one| one.counts()).count()
    }

    /// The duration and the number of cycles.
    pub(super) fn extent(&self) -> String {
        let passed = self
            .diagnosis
            .ended_at
            .duration_since(self.diagnosis.started_at);
        let seconds = passed.as_secs_f64().max(0.0);
        let cycles: u32 = self.check.exercises.iter().map(|one| one.cycles).sum();
        match cycles {
            0 => format!(" in {seconds:.1} s"),
            cycles => format!(" after {cycles} cycles in {seconds:.1} s"),
        }
    }

    /// The report for other tools.
    pub(super) fn told(&self) -> ProblemReport {
        let words = self.diagnosis.process.cmdline.iter().map(Text::to_lossy);
        let command = words.collect::<Vec<_>>().join(" ");
        ProblemReport::of(&self.diagnosis, command, fails)
    }
}
