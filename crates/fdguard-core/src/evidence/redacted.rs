//! Evidence without names.
//!
//! Redacted material is judged again by rules without user-written text, so no sentence can contain
//! a name. But suppressions, expectations and the playbook match by name, so the original judgement
//! of each finding is carried over.

use super::{Evidence, EvidenceInput};
use crate::config::Suppressions;
use crate::diagnosis::Diagnosis;
use crate::finding::{ClearedNote, Finding};
use crate::playbook::{Advice, Playbook};
use crate::redact::Redactor;
use crate::rule::RuleSettings;

impl Evidence {
    /// Concludes everything and removes names.
    #[must_use]
    pub fn redacted(material: EvidenceInput, settings: &RuleSettings) -> Option<Self> {
        let mut redactor = Redactor::new();
        let redacted = redactor.material(&material);
        let original = Self::conclude(material, settings)?.diagnosis;
        let plain = without_words_of_the_user(settings, &mut redactor);
        let mut shown = Self::conclude(redacted, &plain)?;
        shown.redacted = true;
        take_over(
            &mut shown.diagnosis,
            &original,
            &Trusted::of(settings, &plain),
        );
        shown.name_traces();
        Some(shown)
    }
}

fn without_words_of_the_user(settings: &RuleSettings, redactor: &mut Redactor) -> RuleSettings {
    let mut expectations = settings.expectations.clone();
    for expectation in &mut expectations {
        expectation.name = redactor.word(expectation.name.as_bytes());
    }
    RuleSettings {
        expectations,
        suppressions: Suppressions::default(),
        playbook: Playbook::embedded(),
        ..settings.clone()
    }
}

/// The built-in entries of the playbook, compared word for word, because the user may have replaced
/// one under the same id.
struct Trusted<'a> {
    used: &'a [Advice],
    ours: &'a [Advice],
}

impl<'a> Trusted<'a> {
    fn of(settings: &'a RuleSettings, plain: &'a RuleSettings) -> Self {
        Self {
            used: settings.playbook.advice(),
            ours: plain.playbook.advice(),
        }
    }

    fn has(&self, id: &str) -> bool {
        let words = |list: &'a [Advice]| {
            let entry = list.iter().find(|advice| advice.id == id);
            entry.map(|advice| (&advice.source, &advice.confirm, &advice.fix))
        };
        words(self.used).is_some() && words(self.used) == words(self.ours)
    }
}

fn take_over(shown: &mut Diagnosis, original: &Diagnosis, trusted: &Trusted<'_>) {
    shown.verdict = original.verdict;
    for (opinion, before) in shown.processes.iter_mut().zip(&original.processes) {
        opinion.verdict = before.verdict;
    }
    let mut again = std::mem::take(&mut shown.findings);
    for before in &original.findings {
        let same = again.iter().position(|finding| {
            (&before.rule, before.pid, &before.class, before.count)
                == (&finding.rule, finding.pid, &finding.class, finding.count)
        });
        let mut finding = match same {
            Some(index) => again.remove(index),
            None => nameless(before, shown),
        };
        finding.severity = before.severity;
        finding.cleared = before.cleared.as_ref().map(|note| ClearedNote {
            reason: "cleared by the user's configuration".to_owned(),
            date: note.date.clone(),
        });
        if before.advice.as_deref().is_some_and(|id| trusted.has(id)) {
            finding.advice.clone_from(&before.advice);
            finding.next_step.clone_from(&before.next_step);
        }
        shown.findings.push(finding);
    }
}

/// A finding that matched a name which is now redacted.
fn nameless(before: &Finding, shown: &Diagnosis) -> Finding {
    let comm = shown.processes.iter().find(|one| one.pid == before.pid);
    Finding {
        comm: comm.map_or_else(|| "~".into(), |one| one.comm.clone()),
        target: None,
        why: "matched a name that was redacted".to_owned(),
        next_step: String::new(),
        advice: None,
        ..before.clone()
    }
}
