//! The result of a check: the diagnosis, and what the check adds to it.

use fdguard_core::children::finding::{self as children, ChildPile};
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::{ClearedNote, Finding};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::Origin;
use fdguard_core::proof::process::{Fate, LeftoverProcess};
use fdguard_core::proof::{
    Allowance, Clearance, Remains, RemainsVerdict, at_exit, cycles, next_step, process,
};
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::Process;
use fdguard_core::units::counted;
use fdguard_core::{Class, Text};
use serde::Serialize;

use super::baseline::{CheckBaseline, HeldCounts};
use super::go;
use crate::clearing;

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
pub struct Proof {
    /// What was found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
    /// What the check adds to it.
    pub check: CheckSummary,
    /// Flags and entries that accepted nothing.
    #[serde(skip)]
    pub unused: Vec<String>,
}

/// What a check adds.
#[derive(Debug, Serialize)]
pub struct CheckSummary {
    /// True if nothing fails it.
    pub passed: bool,
    /// The program's own exit code, 128+n after a signal; absent if fdguard was not its parent.
    pub status: Option<u8>,
    /// Everything that was left open, the worst first, with its verdict.
    pub leftovers: Vec<Remains>,
    /// Processes that outlived it, and zombies.
    pub processes: Vec<LeftoverProcess>,
    /// How the server was exercised, in order.
    pub exercises: Vec<ExerciseResult>,
    /// Descriptors held at the end, by class; absent if they could not be read.
    pub held: Option<HeldCounts>,
    /// Whether something prevented the judgement: then an empty result proves nothing.
    pub blind: bool,
}

/// How a server was exercised.
#[derive(Debug, Serialize)]
pub struct ExerciseResult {
    /// Its name in a scenario.
    pub name: Option<String>,
    /// Cycles that count.
    pub cycles: u32,
    /// Requested cycles; more were run if those did not decide.
    pub asked: u32,
    /// Cycles before them.
    pub warmup: u32,
    /// Commands run in parallel.
    pub concurrency: u32,
    /// Whether some origin was not decided in the end.
    pub undecided: bool,
}

/// What was found, before it is judged.
#[derive(Debug)]
pub struct CheckEvidence {
    /// What watch and trace found.
    pub diagnosis: Diagnosis,
    /// What was left open.
    pub remains: Vec<Remains>,
    /// Lines that start children and do not wait for them.
    pub piles: Vec<ChildPile>,
    /// Processes that outlived the program, and zombies.
    pub processes: Vec<LeftoverProcess>,
    /// The program's own exit code.
    pub status: Option<u8>,
    /// How the server was exercised, in order.
    pub exercises: Vec<ExerciseResult>,
    /// Descriptors held at the end, by class.
    pub held: Option<HeldCounts>,
    /// Whether something prevented the judgement.
    pub blind: bool,
}

impl Proof {
    /// Draws the conclusion.
    #[must_use]
    pub fn new(evidence: CheckEvidence, allow: &[Allowance], settings: &RuleSettings) -> Self {
        let CheckEvidence {
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
        add_piles(&mut findings, &piles, |pid| {
            let comm = diagnosis.comm_of(pid);
            comm.unwrap_or(&diagnosis.process.comm).clone()
        });
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
        if leaks(&diagnosis, &remains) {
            diagnosis.verdict = Verdict::Leaking;
        }
        Self {
            check: CheckSummary {
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

/// Whether each cycle leaves something, a descriptor or a child.
fn leaks(found: &Diagnosis, remains: &[Remains]) -> bool {
    let is_pile = |one: &Finding| one.rule == children::RULE.id && fails(one);
    let is_left = |one: &Remains| one.judged == RemainsVerdict::PerCycle;
    found.findings.iter().any(is_pile) || remains.iter().any(is_left)
}

/// Allowances that matched nothing.
fn unused(clearance: &Clearance<'_>, found: &Diagnosis, remains: &[Remains]) -> Vec<String> {
    let allowed = remains.iter().filter_map(|one| one.allowed_by.as_deref());
    let reasons = clearing::reasons(found).into_iter().chain(allowed);
    clearance.unused(&reasons.collect::<Vec<&str>>())
}

/// Whether a finding fails a check.
#[must_use]
pub fn fails(finding: &Finding) -> bool {
    let counts = finding.severity >= Severity::Warning && finding.cleared.is_none();
    counts && FAILING.contains(&finding.rule.as_str())
}

/// Whether the watch reports this growth.
fn is_told(remains: &Remains, finding: &Finding) -> bool {
    let family = |class: Option<&Class>| class.map(Class::family);
    let is_alike = match &remains.class {
        Some(class) => family(finding.class.as_ref()) == family(Some(class)),
        // Opened after the last sample: only its line is known.
        None => is_same_line(remains.origin.as_ref(), finding.origin.as_ref()),
    };
    matches!(finding.rule.as_str(), "leak" | "growth") && finding.pid == remains.pid && is_alike
}

fn is_same_line(one: Option<&Origin>, other: Option<&Origin>) -> bool {
    let culprit = |of: Option<&Origin>| of.and_then(|origin| origin.culprit.clone());
    culprit(one).is_some_and(|one| Some(one) == culprit(other))
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
    let found = Finding::new(rule.id, remains.pid, remains.comm.clone(), rule.severity);
    let found = Finding {
        class: remains.class.clone(),
        target: remains.target.clone(),
        count: Some(remains.count),
        grown: i64::try_from(remains.count).ok(),
        why,
        next_step: next_step(remains),
        origin: remains.origin.clone(),
        ..found
    };
    Some(allowed(found, remains.allowed_by.as_ref()))
}

/// Turns an allowed finding into information.
fn allowed(mut finding: Finding, by: Option<&String>) -> Finding {
    if let Some(by) = by {
        finding.severity = Severity::Info;
        finding.cleared = Some(ClearedNote {
            reason: by.clone(),
            date: jiff::Zoned::now().date().to_string(),
        });
    }
    finding
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
    let (pid, comm) = (leftover.pid, leftover.comm.clone());
    let found = Finding {
        count: Some(1),
        why: leftover.why(),
        next_step: leftover.next_step(),
        origin: leftover.origin.clone(),
        ..Finding::new(process::RULE.id, pid, comm, process::RULE.severity)
    };
    allowed(found, leftover.allowed_by.as_ref())
}

/// The finding for an exceeded budget.
pub(super) fn budget_finding(process: &Process, why: String, count: u64) -> Finding {
    let next_step = "List them with `fdguard snap`. Close what is not needed, or raise the budget.";
    let (pid, comm) = (process.pid, process.comm.clone());
    Finding {
        count: Some(count),
        why,
        next_step: next_step.to_owned(),
        ..Finding::new("expected-budget", pid, comm, Severity::Warning)
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

impl Proof {
    /// The number of failures.
    #[must_use]
    pub fn failures(&self) -> usize {
        let findings = self.diagnosis.findings.iter().filter(|one| fails(one));
        let hazards = self.diagnosis.hazards.iter();
        findings.count() + hazards.filter(|one| one.counts()).count()
    }

    /// Compares with an earlier run: clearly more descriptors of a class fail the check.
    pub fn compare(&mut self, before: &CheckBaseline) {
        let Some(held) = &self.check.held else {
            return;
        };
        for (class, then, now) in before.grown(held) {
            let why = format!(
                "{} of class {class} at the end, up from {then} in the run of {}",
                counted(now, "descriptor"),
                before.taken_at.strftime("%Y-%m-%d %H:%M UTC")
            );
            let finding = budget_finding(&self.diagnosis.process, why, now);
            self.diagnosis.findings.push(finding);
            self.check.passed = false;
        }
    }
}
