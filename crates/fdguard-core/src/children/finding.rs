//! The finding for children that pile up.

use crate::finding::Finding;
use crate::lint::Severity;
use crate::origin::{Culprit, Origin};
use crate::proof::cycles::{Rate, per_request};
use crate::proof::place;
use crate::rule::{Rule, RuleKind};
use crate::{Class, Pid, Text};

/// Children that are started repeatedly and not waited for.
pub const RULE: Rule = Rule {
    id: "unwaited-child",
    kind: RuleKind::Proof,
    severity: Severity::Warning,
    summary: "a line keeps starting child processes that are never waited for",
    cwe: Some(404),
    requirement: "R38",
    fix: Some("wait for each child, and first terminate those that are no longer needed"),
};

/// Rules about descriptors that stay open.
const OPEN: &[&str] = &["leak", "growth", "leftover-descriptor", "leak-per-request"];

/// Children of one line that pile up.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildPile {
    /// The process that starts them.
    pub pid: Pid,
    /// The most common command; absent where unknown.
    pub name: Option<Text>,
    /// How many were started there.
    pub started: u64,
    /// How many of them were waited for.
    pub waited: u64,
    /// How many of them run.
    pub running: u64,
    /// How many of them have ended and were not waited for.
    pub zombies: u64,
    /// Between the first and the last that is left, in seconds.
    pub came: f64,
    /// How many each request of an exercise leaves, and how many requests a cycle is.
    pub per_cycle: Option<(Rate, u64)>,
    /// The line that starts them.
    pub origin: Origin,
}

impl ChildPile {
    /// How many are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.running + self.zombies
    }

    /// `24 child processes (sleep) started at aio.py:11 handle, none waited for: 20 still running,
    /// 4 exited (zombies)`; of an exercise `one child process (sleep) per request, started at …`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let name = match &self.name {
            Some(name) => format!(" (`{}`)", name.to_lossy()),
            None => String::new(),
        };
        let (one, many) = (
            format!("child process{name}"),
            format!("child processes{name}"),
        );
        let count = match &self.per_cycle {
            Some((rate, requests)) => {
                format!("{},", per_request(rate, *requests, (&one, &many)))
            }
            None => format!("{} {many}", self.left()),
        };
        let line = match &self.origin.culprit {
            Some(culprit) => format!("started at {}", place(culprit)),
            None => "started at an unknown line".to_owned(),
        };
        let state = match (self.running, self.zombies) {
            (_, 0) => "all still running".to_owned(),
            (0, _) => "all exited and remain as zombies".to_owned(),
            (running, zombies) => format!("{running} still running, {zombies} exited (zombies)"),
        };
        match self.waited {
            0 => format!("{count} {line}, none waited for: {state}"),
            waited => format!(
                "{count} {line} and not waited for: {state}; {waited} others from this line were waited for"
            ),
        }
    }

    fn next_step(&self) -> String {
        let culprit = self.origin.culprit.as_ref();
        let allow = match culprit.map(|one| (one.file.as_ref(), one.line)) {
            Some((Some(file), Some(line))) => format!("--allow {}:{line}", file.base_name()),
            _ => "--allow FILE:LINE".to_owned(),
        };
        format!(
            "Wait for each child on every path (`wait()`), and terminate it first if it is no longer needed: its pipes are closed with it. If the children should stay, use {allow}."
        )
    }

    fn rate_per_min(&self) -> Option<f64> {
        (self.came > 0.0).then(|| {
            let per_min = 60.0 * crate::count::as_f64(self.left()) / self.came;
            (per_min * 10.0).round() / 10.0
        })
    }

    /// The finding, in a process of this name.
    #[must_use]
    pub fn finding(&self, comm: Text) -> Finding {
        Finding {
            count: Some(self.left()),
            grown: i64::try_from(self.left()).ok(),
            rate_per_min: self.rate_per_min(),
            confidence: 0.9,
            why: self.sentence(),
            next_step: self.next_step(),
            origin: Some(self.origin.clone()),
            ..Finding::new(RULE.id, self.pid, comm, RULE.severity)
        }
    }
}

/// Adds the finding of a pile. Where its line also leaves descriptors open that come with children,
/// one finding reports both: the one with the most descriptors stays, and the others of the line
/// become information.
pub fn add(findings: &mut Vec<Finding>, pile: &ChildPile, comm: Text) {
    let mut related: Vec<usize> = (0..findings.len())
        .filter(|index| is_of_children(&findings[*index], pile))
        .collect();
    related.sort_by_key(|index| std::cmp::Reverse(findings[*index].count));
    let Some((main, others)) = related.split_first() else {
        findings.push(pile.finding(comm));
        return;
    };
    let held: Vec<String> = related
        .iter()
        .filter_map(|index| each(&findings[*index], pile.left()))
        .collect();
    let held = match held.is_empty() {
        true => String::new(),
        false => format!(
            " Each child keeps {} open in its parent.",
            held.join(" and ")
        ),
    };
    let finding = &mut findings[*main];
    if finding
        .origin
        .as_ref()
        .is_none_or(|one| one.culprit.is_none())
    {
        finding.origin = Some(pile.origin.clone());
    }
    finding.why = format!("{}.{held} {}", pile.sentence(), finding.why);
    finding.next_step = pile.next_step();
    for index in others {
        let finding = &mut findings[*index];
        finding.severity = Severity::Info;
        let why = finding.why.trim_end_matches('.');
        finding.why =
            format!("{why}; they belong to the children of this line that are never waited for");
    }
}

/// Whether a finding is about descriptors that come with the children of this line.
fn is_of_children(finding: &Finding, pile: &ChildPile) -> bool {
    let is_kind = matches!(
        finding.class,
        Some(Class::Pipe | Class::Pidfd | Class::Unix | Class::PtyMaster)
    );
    let counts = finding.severity >= Severity::Warning && finding.cleared.is_none();
    let culprit = finding.origin.as_ref().and_then(|one| one.culprit.as_ref());
    let is_line = match (culprit, pile.origin.culprit.as_ref()) {
        (Some(one), Some(other)) => is_same_line(one, other),
        // The opener is unknown, and the number per child is the same.
        (None, _) => each(finding, pile.left()).is_some(),
        (Some(_), None) => false,
    };
    is_kind && counts && is_line && finding.pid == pile.pid && OPEN.contains(&&*finding.rule)
}

/// Whether both are the same line of the same file.
#[must_use]
pub fn is_same_line(one: &Culprit, other: &Culprit) -> bool {
    one.line.is_some() && one.line == other.line && one.file == other.file
}

/// `2 pipe descriptors`, where each child has the same number of them.
fn each(finding: &Finding, children: u64) -> Option<String> {
    let class = finding.class.as_ref()?;
    let count = finding.count.or(finding.grown?.try_into().ok())?;
    let each = (count + children / 2).checked_div(children)?;
    match each {
        0 => None,
        1 => Some(format!("a {class} descriptor")),
        each => Some(format!("{each} {class} descriptors")),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChildPile, add};
    use crate::Class;
    use crate::finding::Finding;
    use crate::lint::Severity;
    use crate::origin::{Culprit, Language, Origin};
    use crate::proof::cycles::Rate;

    fn pile(line: u32) -> ChildPile {
        ChildPile {
            pid: 7,
            name: Some("sleep".into()),
            started: 24,
            waited: 0,
            running: 20,
            zombies: 4,
            came: 12.0,
            per_cycle: None,
            origin: Origin {
                culprit: Some(Culprit {
                    file: Some("/srv/aio.py".into()),
                    function: Some("handle".to_owned()),
                    line: Some(line),
                    language: Language::Python,
                }),
                leaking_caller: None,
                through: Vec::new(),
                partly: false,
                stack: Vec::new(),
                thread: Some(7),
                live: 24,
                opened: 24,
                closed: 0,
                oldest_age_seconds: Some(12.0),
            },
        }
    }

    fn leak(class: Class, count: u64, line: u32) -> Finding {
        Finding {
            rule: "leak".to_owned(),
            severity: Severity::Critical,
            class: Some(class),
            count: Some(count),
            why: "opened and not closed".to_owned(),
            ..pile(line).finding("python3".into())
        }
    }

    #[test]
    fn a_pile_of_children_is_one_finding_with_its_line() {
        let mut findings = Vec::new();
        add(&mut findings, &pile(11), "python3".into());
        let [found] = findings.as_slice() else {
            panic!("{findings:?}");
        };
        assert_eq!(
            (found.rule.as_str(), found.count),
            ("unwaited-child", Some(24))
        );
        assert_eq!(
            found.why,
            "24 child processes (`sleep`) started at aio.py:11 handle, none waited for: 20 still running, 4 exited (zombies)"
        );
        assert_eq!(found.rate_per_min, Some(120.0));
    }

    #[test]
    fn pipes_from_an_unknown_line_are_the_childrens_where_each_has_as_many() {
        let unknown = |count| Finding {
            origin: None,
            ..leak(Class::Pipe, count, 11)
        };
        let mut findings = vec![unknown(72), unknown(5)];
        add(&mut findings, &pile(11), "python3".into());
        assert_eq!(findings.len(), 2);
        let culprit = findings[0].origin.as_ref().unwrap().culprit.as_ref();
        assert_eq!(culprit.unwrap().line, Some(11));
        assert_eq!(
            (findings[1].severity, &findings[1].origin),
            (Severity::Critical, &None)
        );
    }

    #[test]
    fn what_each_request_leaves_is_said_so() {
        let rate = Rate {
            cycles: 27,
            hits: 27,
            survivors: 27,
            per_cycle: 1.0,
            low: 1.0,
            high: 1.0,
        };
        let pile = ChildPile {
            running: 27,
            zombies: 0,
            per_cycle: Some((rate, 1)),
            ..pile(11)
        };
        assert_eq!(
            pile.sentence(),
            "one child process (`sleep`) per request, started at aio.py:11 handle, none waited for: all still running"
        );
    }

    #[test]
    fn descriptors_of_the_same_line_and_its_children_are_one_finding() {
        let mut findings = vec![
            leak(Class::Unix, 24, 11),
            leak(Class::Pipe, 48, 11),
            leak(Class::Regular, 24, 11),
            leak(Class::Pipe, 9, 99),
        ];
        add(&mut findings, &pile(11), "python3".into());
        let severities: Vec<Severity> = findings.iter().map(|one| one.severity).collect();
        let critical = Severity::Critical;
        assert_eq!(severities, [Severity::Info, critical, critical, critical]);
        assert_eq!(findings[1].rule, "leak");
        assert!(
            findings[1].why.contains("none waited for")
                && findings[1]
                    .why
                    .contains("Each child keeps 2 pipe descriptors and a unix descriptor open"),
            "{}",
            findings[1].why
        );
    }
}
