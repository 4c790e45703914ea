//! Every check by its name, lints, rules, hazards and proofs alike: what `--list-rules` and the guide read.

use serde::Serialize;

use crate::hazard::HAZARDS;
use crate::lint::{LINTS, Severity};
use crate::proof::PROOFS;
use crate::rule::RULES;

/// What a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A single snapshot.
    Lint,
    /// A process over time.
    Rule,
    /// The events of a trace.
    Hazard,
    /// What a program left behind.
    Proof,
}

/// One check as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name; the page `docs/guide/rules/ID.md` explains it.
    pub id: &'static str,
    /// How much it matters, unless a single finding says otherwise.
    pub severity: Severity,
    /// One line: what it looks for.
    pub summary: &'static str,
    /// Weakness class, where one fits.
    pub cwe: Option<u16>,
    /// The requirement it answers.
    pub requirement: &'static str,
    /// What to do about it; absent where that depends on the class and the playbook says it.
    pub fix: Option<&'static str>,
    /// What it looks at.
    pub kind: Kind,
}

/// The checks over a snapshot.
#[must_use]
pub fn lints() -> Vec<Check> {
    let check = |lint: &crate::lint::Lint| Check {
        id: lint.id,
        severity: lint.severity,
        summary: lint.summary,
        cwe: lint.cwe,
        requirement: lint.requirement,
        fix: Some(lint.fix),
        kind: Kind::Lint,
    };
    LINTS.iter().map(check).collect()
}

/// The checks over a watch.
#[must_use]
pub fn rules() -> Vec<Check> {
    let check = |rule: &crate::rule::Rule| Check {
        id: rule.id,
        severity: rule.severity,
        summary: rule.summary,
        cwe: rule.cwe,
        requirement: rule.requirement,
        fix: None,
        kind: Kind::Rule,
    };
    RULES.iter().map(check).collect()
}

/// The checks over a trace.
#[must_use]
pub fn hazards() -> Vec<Check> {
    let check = |rule: &crate::hazard::HazardRule| Check {
        id: rule.id,
        severity: rule.severity,
        summary: rule.summary,
        cwe: rule.cwe,
        requirement: rule.requirement,
        fix: Some(rule.fix),
        kind: Kind::Hazard,
    };
    HAZARDS.iter().map(check).collect()
}

/// The checks over what a program left behind.
#[must_use]
pub fn proofs() -> Vec<Check> {
    let check = |rule: &crate::proof::ProofRule| Check {
        id: rule.id,
        severity: rule.severity,
        summary: rule.summary,
        cwe: rule.cwe,
        requirement: rule.requirement,
        fix: Some(rule.fix),
        kind: Kind::Proof,
    };
    PROOFS.iter().map(check).collect()
}

/// Whether a check has this name.
#[must_use]
pub fn is_rule(id: &str) -> bool {
    let all = [lints(), rules(), hazards(), proofs()];
    all.iter().flatten().any(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{Check, hazards, lints, proofs, rules};

    fn all() -> Vec<Check> {
        [lints(), rules(), hazards(), proofs()].concat()
    }

    #[test]
    fn every_id_is_kebab_case_and_there_only_once() {
        let ids: BTreeSet<&str> = all().iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().len());
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
    fn every_check_has_its_page_and_every_page_its_check() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/rules");
        let pages: BTreeSet<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected: BTreeSet<String> = all()
            .iter()
            .map(|check| format!("{}.md", check.id))
            .collect();
        assert_eq!(pages, expected);
        for Check {
            id,
            requirement,
            cwe,
            ..
        } in all()
        {
            let page = std::fs::read_to_string(folder.join(format!("{id}.md"))).unwrap();
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
