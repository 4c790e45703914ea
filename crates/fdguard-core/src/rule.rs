//! Rules: what fdguard checks, each with an id, one description for every kind.
//!
//! A kind keeps its checks in its own module: [`lint`] looks at a snapshot, [`growth`] at a process
//! over time, [`hazard`] at the events of a trace, [`proof`] at what a program left behind,
//! [`explain`](crate::explain) at the lines of a log. Unit rules are in the command's crate, beside
//! the parsers of units.
//!
//! To add a rule: a file in the module of its kind with a `RULE` constant and a `check` function,
//! one line in that module's [`RuleTable`], one page under `docs/guide/rules/`.

use serde::{Deserialize, Serialize};

use crate::{hazard, lint, playbook, proof};

pub mod growth;
mod settings;
pub(crate) mod wording;

pub use settings::RuleSettings;

/// The description of one rule: what `--list-rules`, SARIF and the guide show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Name in JSON, on the command line and of its page `docs/guide/rules/ID.md`.
    pub id: &'static str,
    /// Severity of its findings, unless a finding has its own.
    pub severity: Severity,
    /// One line: what it looks for.
    pub summary: &'static str,
    /// Weakness class (CWE number), where one fits.
    pub cwe: Option<u16>,
    /// The requirement that it implements.
    pub requirement: &'static str,
    /// How to fix it; absent where that depends on the class of descriptor and the playbook has it.
    pub fix: Option<&'static str>,
    /// What it examines.
    pub kind: RuleKind,
}

/// What a rule examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleKind {
    /// A single snapshot.
    Lint,
    /// A process over time. JSON calls it `rule`.
    #[serde(rename = "rule")]
    Growth,
    /// The events of a trace.
    Hazard,
    /// What a program left behind.
    Proof,
    /// A service definition: a systemd unit, a compose file.
    Unit,
    /// A line of a log.
    Symptom,
}

impl RuleKind {
    /// Every kind, in the order of listings.
    pub const ALL: [Self; 6] = [
        Self::Lint,
        Self::Growth,
        Self::Hazard,
        Self::Proof,
        Self::Unit,
        Self::Symptom,
    ];

    /// Whether each rule of this kind has its own page, and its findings can be suppressed. Unit
    /// rules and symptoms are explained on the pages of their commands.
    #[must_use]
    pub fn has_pages(self) -> bool {
        !matches!(self, Self::Unit | Self::Symptom)
    }
}

/// Severity of a rule or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Causes trouble sooner or later.
    Warning,
    /// Causes trouble now.
    Critical,
}

/// The rules of one kind, each with its check.
pub type RuleTable<Check> = &'static [(Rule, Check)];

/// The rules of a table, without their checks.
#[must_use]
pub fn descriptions<Check>(table: RuleTable<Check>) -> Vec<&'static Rule> {
    table.iter().map(|(rule, _)| rule).collect()
}

/// Every rule of this crate, kind after kind.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    RuleKind::ALL.into_iter().flat_map(of_kind)
}

/// The rules of one kind. The command's crate has those of [`RuleKind::Unit`].
#[must_use]
pub fn of_kind(kind: RuleKind) -> Vec<&'static Rule> {
    match kind {
        RuleKind::Lint => lint::rules(),
        RuleKind::Growth => growth::rules(),
        RuleKind::Hazard => hazard::rules(),
        RuleKind::Proof => proof::PROOFS.iter().collect(),
        RuleKind::Symptom => playbook::symptom_rules().iter().collect(),
        RuleKind::Unit => Vec::new(),
    }
}

/// The rule with this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

/// Whether findings of a rule with this id can be suppressed.
#[must_use]
pub fn is_suppressible(id: &str) -> bool {
    let mut kinds = RuleKind::ALL.into_iter().filter(|kind| kind.has_pages());
    kinds.any(|kind| of_kind(kind).iter().any(|rule| rule.id == id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{Rule, RuleKind, Severity, find, is_suppressible, of_kind, rules};

    #[test]
    fn every_id_is_kebab_case_and_unique() {
        let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), rules().count());
        for id in ids {
            let word = |word: &str| {
                !word.is_empty()
                    && word
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            };
            assert!(id.split('-').all(word), "{id}");
        }
    }

    #[test]
    fn every_rule_is_listed_under_its_own_kind() {
        for kind in RuleKind::ALL {
            assert!(of_kind(kind).iter().all(|rule| rule.kind == kind));
            assert_eq!(of_kind(kind).is_empty(), kind == RuleKind::Unit, "{kind:?}");
        }
    }

    #[test]
    fn only_findings_can_be_suppressed() {
        assert!(is_suppressible("leak") && is_suppressible("double-close"));
        let symptom = of_kind(RuleKind::Symptom)[0].id;
        assert!(find(symptom).is_some() && !is_suppressible(symptom));
        assert!(find("no-such-rule").is_none());
    }

    #[test]
    fn every_kind_but_growth_has_its_fix() {
        for rule in rules() {
            assert_eq!(
                rule.fix.is_none(),
                rule.kind == RuleKind::Growth,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn the_kinds_keep_their_names_in_json() {
        let names = RuleKind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
        let expected = ["lint", "rule", "hazard", "proof", "unit", "symptom"];
        assert_eq!(names, expected.map(serde_json::Value::from));
        assert!(Severity::Info < Severity::Critical);
    }

    #[test]
    fn every_rule_has_its_page_and_every_page_its_rule() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/rules");
        let pages: BTreeSet<String> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        let with_page = || rules().filter(|rule| rule.kind.has_pages());
        let expected: BTreeSet<String> =
            with_page().map(|rule| format!("{}.md", rule.id)).collect();
        assert_eq!(pages, expected);
        for Rule {
            id,
            requirement,
            cwe,
            ..
        } in with_page()
        {
            let page = std::fs::read_to_string(dir.join(format!("{id}.md"))).unwrap();
            assert!(page.starts_with(&format!("# {id}\n")), "{id}");
            let question = page.lines().nth(2).unwrap();
            assert!(question.ends_with('?'), "{id} opens with {question:?}");
            let number = format!("Requirement {requirement}");
            assert!(page.contains(&number), "{id}: R-number");
            if let Some(cwe) = cwe {
                assert!(page.contains(&format!("CWE-{cwe}")), "{id}: CWE");
            }
        }
    }
}
