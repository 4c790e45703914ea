//! Known traps in units. To add one: add an entry to the table of its supervisor, and a function.

use fdguard_core::rule::{self, Rule, RuleKind, RuleTable, Severity};
use serde::Serialize;

use super::UnitTarget;
use super::read::UnitNode;

pub(super) mod compose;
pub(super) mod launchd;
pub(super) mod supervisord;
pub(super) mod systemd;

/// Finds the trap in a unit.
pub(super) type Check = fn(&Unit<'_>) -> Vec<Hit>;

/// Defines a unit rule; `instead` is what to write.
const fn trap(
    id: &'static str,
    severity: Severity,
    summary: &'static str,
    instead: &'static str,
) -> Rule {
    Rule {
        id,
        severity,
        summary,
        cwe: None,
        requirement: "R61",
        fix: Some(instead),
        kind: RuleKind::Unit,
    }
}

/// Where a rule fires, and why it is a trap there.
pub(super) type Hit = (usize, String);

/// One service of a file, as the rules see it.
pub(super) struct Unit<'a> {
    /// The whole file.
    file: &'a UnitNode,
    /// The settings of the service.
    service: &'a UnitNode,
    /// The words of the command, with their line; empty if there is none.
    words: (usize, Vec<String>),
}

impl Unit<'_> {
    /// One hit at a setting, if it is present and wrong.
    fn when(&self, name: &str, wrong: impl Fn(&UnitNode) -> Option<String>) -> Vec<Hit> {
        let node = self.service.get(name);
        let hit = node.and_then(|node| Some((node.line, wrong(node)?)));
        hit.into_iter().collect()
    }

    /// One hit at the service, if something is missing.
    fn missing(&self, is_missing: bool, why: &str) -> Vec<Hit> {
        let hit = is_missing.then(|| (self.service.line, why.to_owned()));
        hit.into_iter().collect()
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.service.get(name)?.text()
    }

    fn grace(&self) -> Option<std::time::Duration> {
        super::words::grace(&self.words.1)
    }

    fn is_fdguard(&self) -> bool {
        super::words::fdguard_run(&self.words.1).is_some()
    }
}

/// The rule that every supervisor has.
const fn daemonises(id: &'static str) -> (Rule, Check) {
    let rule = trap(
        id,
        Severity::Critical,
        "a command that leaves a process in the background",
        "use the program's foreground option, and `exec` in shell scripts",
    );
    (rule, leaves_background)
}

/// One hit at the command, if it leaves something in the background.
fn leaves_background(unit: &Unit<'_>) -> Vec<Hit> {
    let (line, words) = &unit.words;
    let why = super::words::daemonises(words);
    let then = "the supervisor sees it exit and starts it again while the first instance still holds the port";
    let hit = why.map(|why| (*line, format!("{why}: {then}")));
    hit.into_iter().collect()
}

/// A trap that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitFinding {
    /// Which rule.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Where.
    pub line: usize,
    /// Why it is a trap.
    pub reason: String,
    /// What to write instead.
    pub instead: &'static str,
}

/// The rules for a target.
#[must_use]
pub fn rules(target: UnitTarget) -> Vec<&'static Rule> {
    rule::descriptions(target.kind().rules())
}

/// The rules for every target.
pub fn every_rule() -> impl Iterator<Item = &'static Rule> {
    UnitTarget::ALL.into_iter().flat_map(rules)
}

/// Every trap in a file, in the order of its lines.
#[must_use]
pub fn lint(target: UnitTarget, file: &UnitNode) -> Vec<UnitFinding> {
    let kind = target.kind();
    let units = kind.services(file);
    let mut findings = Vec::new();
    for (rule, check) in kind.rules() {
        for unit in &units {
            findings.extend(check(unit).into_iter().map(|(line, reason)| UnitFinding {
                rule: rule.id,
                severity: rule.severity,
                line,
                reason,
                instead: rule.fix.unwrap_or_default(),
            }));
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests;
