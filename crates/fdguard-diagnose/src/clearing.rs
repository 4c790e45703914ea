//! Applies the user's allowances to the findings of a diagnosis.

use fdguard_core::Text;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::hazard::Hazard;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::proof::Clearance;

/// Marks accepted findings. Hazards that count stay before those that do not.
pub fn clear(diagnosis: &mut Diagnosis, clearance: &Clearance<'_>) {
    clear_findings(diagnosis, clearance);
    let mut hazards = std::mem::take(&mut diagnosis.hazards);
    for one in &mut hazards {
        let comm = diagnosis.comm_of(one.pid).map(Text::to_lossy);
        one.cleared = clearance.of_hazard(one, comm.as_deref());
    }
    hazards.sort_by_key(|one| !one.counts());
    diagnosis.hazards = hazards;
}

/// The same for the findings alone.
pub fn clear_findings(diagnosis: &mut Diagnosis, clearance: &Clearance<'_>) {
    let counting = diagnosis.findings.iter_mut();
    for finding in counting.filter(|one| one.cleared.is_none()) {
        if let Some(note) = clearance.of_finding(finding) {
            finding.severity = Severity::Info;
            finding.cleared = Some(note);
        }
    }
}

/// Accepted findings do not make a verdict: the opinion of each process follows its other findings.
pub fn apply_clearances(diagnosis: &mut Diagnosis) {
    const RISING: &[&str] = &["leak", "growth", "unwaited-child", "leak-per-request"];
    for opinion in &mut diagnosis.processes {
        let mine = diagnosis
            .findings
            .iter()
            .filter(|one| one.pid == opinion.pid);
        opinion.findings = mine.cloned().collect();
        let mut rising = opinion
            .findings
            .iter()
            .filter(|one| RISING.contains(&one.rule.as_str()))
            .peekable();
        if rising.peek().is_some() && rising.all(|one| one.cleared.is_some()) {
            opinion.verdict = opinion.verdict.min(Verdict::Bounded);
        }
    }
    let verdicts = diagnosis.processes.iter().chain(&diagnosis.predecessors);
    if let Some(worst) = verdicts.map(|one| one.verdict).max() {
        diagnosis.verdict = worst;
    }
}

/// Whether a hazard that counts is left.
#[must_use]
pub fn has_hazard(diagnosis: &Diagnosis) -> bool {
    diagnosis.hazards.iter().any(Hazard::counts)
}

/// The reasons why findings do not count.
#[must_use]
pub fn reasons(diagnosis: &Diagnosis) -> Vec<&str> {
    let findings = diagnosis.findings.iter().map(|one| &one.cleared);
    let notes = findings.chain(diagnosis.hazards.iter().map(|one| &one.cleared));
    notes.flatten().map(|note| note.reason.as_str()).collect()
}
