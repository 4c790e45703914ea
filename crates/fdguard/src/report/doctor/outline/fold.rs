//! Folds similar processes into one line: four healthy workers of one server are not four reports.

use fdguard_core::Pid;
use fdguard_core::evidence::{Evidence, ExaminedProcess, ProcessVisit};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;

use crate::report::diagnosis::word;
use crate::report::document::{Block, Section};
use crate::report::table::thousands;
use crate::terminal::sanitize;

/// How many pids are listed.
const PIDS: usize = 12;

/// Processes shown as one; most groups have one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Their indexes among the visits, the representative first.
    pub(super) members: Vec<usize>,
    verdict: Verdict,
}

/// Groups processes with the same command, parent and verdict if nothing was found in any of them.
pub(super) fn groups(evidence: &Evidence) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, (visit, examined)) in evidence.patients().enumerate() {
        let verdict = verdict_of(evidence, visit);
        let like = groups.iter_mut().find(|group| {
            let first = evidence.patients().nth(group.members[0]);
            first.is_some_and(|first| {
                group.verdict == verdict && is_alike(evidence, first, (visit, examined))
            })
        });
        match like {
            Some(group) => group.members.push(index),
            None => groups.push(Group {
                members: vec![index],
                verdict,
            }),
        }
    }
    groups
}

type Patient<'a> = (&'a ProcessVisit, &'a ExaminedProcess);

fn is_alike(evidence: &Evidence, a: Patient<'_>, b: Patient<'_>) -> bool {
    let (one, other) = (&a.0.begin.process, &b.0.begin.process);
    one.comm == other.comm && one.ppid == other.ppid && is_calm(evidence, a) && is_calm(evidence, b)
}

/// Whether nothing that was found needs attention.
fn is_calm(evidence: &Evidence, (visit, examined): Patient<'_>) -> bool {
    let pid = visit.begin.process.pid;
    let mut findings = evidence.diagnosis.findings.iter();
    let mut lints = examined.latest.lints.iter();
    let is_found = findings.any(|one| one.pid == pid && one.severity > Severity::Info);
    !is_found && !lints.any(|hit| hit.severity > Severity::Info) && visit.end.is_some()
}

fn verdict_of(evidence: &Evidence, visit: &ProcessVisit) -> Verdict {
    let mut processes = evidence.diagnosis.processes.iter();
    let own = processes.find(|one| one.pid == visit.begin.process.pid);
    own.map_or(Verdict::Unknown, |own| own.verdict)
}

/// `4 × gunicorn worker: stable`, and what they hold.
pub(super) fn section(evidence: &Evidence, group: &Group) -> Section {
    let members: Vec<&ProcessVisit> = group
        .members
        .iter()
        .filter_map(|index| evidence.material.visits.get(*index))
        .collect();
    let pids: Vec<Pid> = members.iter().map(|one| one.begin.process.pid).collect();
    let first = members.first().map(|one| &one.begin.process);
    let comm = first
        .map(|process| sanitize(&process.comm))
        .unwrap_or_default();
    let mut visits = evidence.material.visits.iter();
    let is_child = visits.any(|one| first.is_some_and(|it| it.ppid == Some(one.begin.process.pid)));
    let worker = if is_child { " worker" } else { "" };
    let counts = members.iter().filter_map(|one| one.latest().count);
    let held = match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if least == most => {
            format!("{} descriptors each", thousands(least))
        }
        (Some(least), Some(most)) => {
            format!("{} to {} descriptors", thousands(least), thousands(most))
        }
        _ => "an unknown number of descriptors".to_owned(),
    };
    let title = format!(
        "{} × {comm}{worker}: {}",
        members.len(),
        word(group.verdict)
    );
    Section {
        title,
        blocks: vec![Block::Sentence(format!("{held}; pid {}", listed(&pids)))],
    }
}

fn listed(pids: &[Pid]) -> String {
    let shown: Vec<String> = pids.iter().take(PIDS).map(ToString::to_string).collect();
    match pids.len().saturating_sub(PIDS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
