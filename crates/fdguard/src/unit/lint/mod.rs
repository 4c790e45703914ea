//! Known traps in units. A rule is a line of a table and a function.

use fdguard_core::lint::Severity;
use serde::Serialize;

use super::UnitTarget;
use super::read::UnitNode;

mod compose;
mod launchd;
mod supervisord;
mod systemd;

/// One trap.
pub struct Rule {
    /// Its name.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What to write instead.
    pub instead: &'static str,
    /// Finds it.
    check: Check,
}

type Check = fn(&Unit<'_>) -> Vec<Hit>;

/// A rule whose trap will hurt some day, as most do.
const fn rule(id: &'static str, instead: &'static str, check: Check) -> Rule {
    Rule {
        id,
        severity: Severity::Warning,
        instead,
        check,
    }
}

impl Rule {
    /// The rule with another severity.
    const fn with(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Where a rule fires, and why that is a trap here.
type Hit = (usize, String);

/// One service of a file, as the rules see it.
struct Unit<'a> {
    /// The whole file.
    file: &'a UnitNode,
    /// The settings of the service.
    service: &'a UnitNode,
    /// The words that it runs, with their line; empty when it has none.
    words: (usize, Vec<String>),
}

impl Unit<'_> {
    /// One hit at a setting, when it is there and wrong.
    fn when(&self, name: &str, wrong: impl Fn(&UnitNode) -> Option<String>) -> Vec<Hit> {
        let node = self.service.get(name);
        let hit = node.and_then(|node| Some((node.line, wrong(node)?)));
        hit.into_iter().collect()
    }

    /// One hit at the service, when something is missing.
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

/// One hit at the command, when it leaves something in the background.
fn daemonises(unit: &Unit<'_>) -> Vec<Hit> {
    let (line, words) = &unit.words;
    let why = super::words::daemonises(words);
    let then =
        "the supervisor sees the end of it, starts it again, and the first one holds the port";
    let hit = why.map(|why| (*line, format!("{why}: {then}")));
    hit.into_iter().collect()
}

/// A trap that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
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
pub fn rules(target: UnitTarget) -> &'static [Rule] {
    match target {
        UnitTarget::Systemd => systemd::RULES,
        UnitTarget::Launchd => launchd::RULES,
        UnitTarget::Supervisord => supervisord::RULES,
        UnitTarget::Compose => compose::RULES,
    }
}

/// Every trap in a file, in the order of its lines.
#[must_use]
pub fn lint(target: UnitTarget, file: &UnitNode) -> Vec<Finding> {
    let units = match target {
        UnitTarget::Systemd => systemd::units(file),
        UnitTarget::Launchd => launchd::units(file),
        UnitTarget::Supervisord => supervisord::units(file),
        UnitTarget::Compose => compose::units(file),
    };
    let mut findings = Vec::new();
    for rule in rules(target) {
        for unit in &units {
            findings.extend(
                (rule.check)(unit)
                    .into_iter()
                    .map(|(line, reason)| Finding {
                        rule: rule.id,
                        severity: rule.severity,
                        line,
                        reason,
                        instead: rule.instead,
                    }),
            );
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests;
