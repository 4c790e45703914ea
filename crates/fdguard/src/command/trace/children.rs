//! Adds findings about children that pile up.

use fdguard_core::children::finding;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::judge::Verdict;
use fdguard_core::{Pid, Text};
use fdguard_trace::{Symbols, TracedCommand};

/// Adds the lines that start children and do not wait for them.
pub(super) fn add(diagnosis: &mut Diagnosis, traced: &TracedCommand) {
    let piles = traced.child_piles(&mut Symbols::new(), true);
    for pile in &piles {
        let comm = comm(diagnosis, pile.pid);
        finding::add(&mut diagnosis.findings, pile, comm);
    }
    if !piles.is_empty() {
        diagnosis.verdict = Verdict::Leaking;
        let findings = &mut diagnosis.findings;
        findings.sort_by_key(|one| std::cmp::Reverse(one.severity));
    }
    for opinion in &mut diagnosis.processes {
        if piles.iter().any(|pile| pile.pid == opinion.pid) {
            let mine = diagnosis.findings.iter();
            let mine = mine.filter(|one| one.pid == opinion.pid);
            opinion.findings = mine.cloned().collect();
            opinion.verdict = Verdict::Leaking;
        }
    }
}

/// The command of a watched process; for a child that was never seen, that of the launched one.
fn comm(diagnosis: &Diagnosis, pid: Pid) -> Text {
    let known = diagnosis.comm_of(pid);
    known.unwrap_or(&diagnosis.process.comm).clone()
}
