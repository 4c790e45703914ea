//! Growth rules: what a timeline means, each in its own file.
//!
//! To add one: a file beside this one with a `RULE` constant and a `check` function, one line in
//! `RULES`, one page under `docs/guide/rules/`.

mod absolute;
mod children;
mod expected_budget;
mod host_ceiling;
mod leak;
mod level;
mod plateau;
mod rise;
mod select_cliff;

use super::{Rule, RuleKind, RuleSettings, RuleTable, wording};
use crate::config::{Suppression, SuppressionQuery};
use crate::finding::{ClearedNote, Finding, WallEta};
use crate::forecast::Forecast;
use crate::judge::Judgement;
use crate::lint::Severity;
use crate::playbook::Suspect;
use crate::rising_group::{self, RisingGroup};
use crate::select_use::SelectUse;
use crate::snapshot::Process;
use crate::timeline::Timeline;
use crate::{Class, Text, command_line};

/// A limit closer than this is an emergency.
const SOON: f64 = 3600.0;

/// Finds it. Reports nothing where evidence is missing.
type Check = fn(&Case<'_>) -> Vec<Finding>;

/// Every growth rule.
const RULES: RuleTable<Check> = &[
    (leak::RULE, leak::check),
    (rise::RULE, rise::check),
    (level::RULE, level::check),
    (select_cliff::RULE, select_cliff::check),
    (absolute::RULE, absolute::check),
    (expected_budget::RULE, expected_budget::check),
    (host_ceiling::RULE, host_ceiling::check),
    (children::RULE, children::check),
    (plateau::RULE, plateau::check),
];

/// The descriptions of the growth rules.
pub(super) fn rules() -> Vec<&'static Rule> {
    super::descriptions(RULES)
}

/// Everything that a rule can use.
#[derive(Debug)]
pub struct Case<'a> {
    /// The process.
    pub process: &'a Process,
    /// Its history.
    pub timeline: &'a Timeline,
    /// The judgement of each track.
    pub judgements: &'a [Judgement],
    /// What leaks.
    pub leaking: &'a [RisingGroup],
    /// What grows and is not proven to leak.
    pub growing: &'a [RisingGroup],
    /// Its limits.
    pub walls: &'a [Forecast],
    /// Whether it can call `select()`; absent where that was not checked.
    pub select: Option<&'a SelectUse>,
    /// What the user set.
    pub settings: &'a RuleSettings,
}

impl Case<'_> {
    /// Runs every rule; the most severe finding comes first.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = RULES.iter().flat_map(|(_, check)| check(self)).collect();
        self.put_aside(&mut found);
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        found
    }

    /// Next to a leak, findings about other classes become information, so that the most severe
    /// finding is the leak.
    fn put_aside(&self, found: &mut [Finding]) {
        let leaking: Vec<Option<Class>> = self.leaks().map(|one| one.class.clone()).collect();
        if leaking.is_empty() {
            return;
        }
        for finding in found {
            if !leaking.contains(&finding.class) {
                finding.severity = Severity::Info;
            }
        }
    }

    /// What leaks and was not judged harmless, the largest first.
    fn leaks(&self) -> impl Iterator<Item = &RisingGroup> {
        let counts = |one: &&RisingGroup| {
            let target = one.target.as_ref();
            self.cleared(one.class.as_ref(), target, one.count)
                .is_none()
        };
        self.leaking.iter().filter(counts)
    }

    /// A finding with the fields that all findings of this case share.
    fn finding(&self, rule: &Rule, severity: Severity) -> Finding {
        let process = self.process;
        Finding::new(rule.id, process.pid, process.comm.clone(), severity)
    }

    /// A finding about descriptors that rise, with the advice for their class.
    fn about(&self, rule: &Rule, culprit: &RisingGroup) -> Finding {
        let mut finding = Finding {
            class: culprit.class.clone(),
            target: culprit.target.clone(),
            count: Some(culprit.count),
            grown: i64::try_from(culprit.judgement.rise).ok(),
            rate_per_min: culprit
                .slope
                .map(|slope| wording::rounded(slope.per_second * 60.0)),
            confidence: (culprit.judgement.confidence * 100.0).round() / 100.0,
            shape: Some(culprit.judgement.shape),
            ..self.finding(rule, rule.severity)
        };
        self.advise(&mut finding);
        self.clear(&mut finding);
        finding
    }

    /// Adds the advice of the playbook.
    fn advise(&self, finding: &mut Finding) {
        let Some(class) = &finding.class else {
            finding.next_step = format!(
                "Run `fdguard snap {}` as its user or as root to see what it holds.",
                self.process.pid
            );
            return;
        };
        let beside: Vec<Class> = self.beside(class);
        let suspect = Suspect {
            class,
            target: finding.target.as_ref().map(Text::as_bytes),
            comm: self.process.comm.as_bytes(),
            exe: self.process.exe.as_ref().map(Text::as_bytes),
            beside: &beside,
        };
        if let Some(advice) = self.settings.playbook.advise(&suspect) {
            // The playbook has phrases; a user's own may have sentences.
            let phrase = |text: &str| text.trim().trim_end_matches('.').to_owned();
            let step = format!(
                "Likely source: {}. Confirm: {}. Fix: {}.",
                phrase(&advice.source),
                phrase(&advice.confirm),
                phrase(&advice.fix)
            );
            finding.next_step = command_line::with_pid(&step, self.process.pid);
            finding.advice = Some(advice.id.clone());
        }
    }

    /// The other classes that grow as well.
    fn beside(&self, class: &Class) -> Vec<Class> {
        let rising = self.leaking.iter().chain(self.growing);
        let mut classes: Vec<Class> = rising.filter_map(|one| one.class.clone()).collect();
        classes.retain(|other| other != class);
        classes.dedup();
        classes
    }

    /// A finding that the user accepted is reported but does not count.
    fn clear(&self, finding: &mut Finding) {
        let count = finding.count.unwrap_or(u64::MAX);
        let entry = self.cleared(finding.class.as_ref(), finding.target.as_ref(), count);
        let query = SuppressionQuery {
            rule: &finding.rule,
            class: finding.class.as_ref(),
            target: finding.target.as_ref().map(Text::as_bytes),
            owner: self.process.comm.as_bytes(),
            count,
            stack: &[],
        };
        let RuleSettings {
            suppressions,
            today,
            ..
        } = self.settings;
        let entry = entry.or_else(|| suppressions.find_entry(&query, *today));
        if let Some(entry) = entry {
            finding.severity = Severity::Info;
            finding.cleared = Some(ClearedNote {
                reason: entry.reason.clone(),
                date: entry.date.to_string(),
            });
        }
    }

    /// The suppression that covers this many of these.
    fn cleared(
        &self,
        class: Option<&Class>,
        target: Option<&Text>,
        n: u64,
    ) -> Option<&Suppression> {
        let (suppressions, today) = (&self.settings.suppressions, self.settings.today);
        let owner = self.process.comm.as_bytes();
        suppressions.find(class?, target.map(Text::as_bytes), owner, n, today)
    }

    /// The limits ahead, the nearest first; those that apply only under a condition come last.
    fn etas(&self) -> Vec<WallEta> {
        let mut ahead: Vec<(&Forecast, WallEta)> = self
            .walls
            .iter()
            .filter_map(|wall| Some((wall, wall.eta()?)))
            .collect();
        ahead.sort_by(|(a, eta), (b, other)| {
            let order = a.only_if.is_some().cmp(&b.only_if.is_some());
            order.then(eta.eta_seconds.total_cmp(&other.eta_seconds))
        });
        ahead.into_iter().map(|(_, eta)| eta).collect()
    }

    fn wall(&self, name: &str) -> Option<&Forecast> {
        self.walls.iter().find(|wall| wall.name == name)
    }

    /// The leaking class, or else the largest one: the place to start when a limit is close.
    fn largest_class(&self) -> Option<Class> {
        let leaking = self.leaks().next().map(|one| one.class.clone());
        let live = self.timeline.live().iter().map(|(_, held)| held);
        leaking.unwrap_or_else(|| rising_group::most_common(&live.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests;
