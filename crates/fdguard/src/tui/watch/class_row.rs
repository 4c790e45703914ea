//! One row of the class table: a family of classes.

use std::cmp::Reverse;

use fdguard_core::diagnosis::ProcessDiagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::timeline::{Timeline, TrackGroup};
use fdguard_core::{Class, TcpState};

use super::sparkline::History;
use crate::report::table::{class_name, family_name};
use crate::terminal::sanitize;

/// One family of classes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClassRow {
    /// The class, if all have the same; else what they have in common.
    pub(super) name: String,
    /// How many there are.
    pub(super) count: u32,
    /// How many of them were opened during the watch.
    pub(super) opened: u64,
    /// The worst verdict about it: growing or leaking; `None` if there is none.
    pub(super) verdict: Option<Verdict>,
    /// Whether it grows and is known to be harmless.
    pub(super) is_cleared: bool,
    /// Growth per minute.
    pub(super) rate: Option<f64>,
    /// What is growing, as precisely as known.
    pub(super) targets: Vec<String>,
    /// Their number over time.
    pub(super) history: History,
}

/// A row for each family that holds something, growing ones first.
pub(super) fn class_rows(timeline: &Timeline, opinion: &ProcessDiagnosis) -> Vec<ClassRow> {
    let families = timeline
        .groups()
        .filter(|(_, group)| group.key.target.is_none());
    let mut rows: Vec<ClassRow> = families
        .map(|(index, family)| row(timeline, opinion, index, family))
        .filter(|row| row.count > 0 || row.verdict.is_some())
        .collect();
    rows.sort_by(|a, b| {
        let rank = |row: &ClassRow| Reverse((row.verdict, row.count));
        rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

fn row(
    timeline: &Timeline,
    opinion: &ProcessDiagnosis,
    index: usize,
    family: &TrackGroup,
) -> ClassRow {
    let mut classes: Vec<&Class> = Vec::new();
    let mut opened = 0;
    for (_, held) in timeline.members(index) {
        opened += u64::from(held.since.is_some());
        if !classes.contains(&&held.class) {
            classes.push(&held.class);
        }
    }
    let name = match classes.as_slice() {
        [only] => class_name(only),
        _ => family_name(&family.key.family),
    };
    let mine = opinion
        .findings
        .iter()
        .filter(|finding| is_of(finding, &family.key.family));
    let is_cleared = mine.clone().any(|finding| finding.cleared.is_some());
    let rising: Vec<(Verdict, &Finding)> = mine
        .filter_map(|finding| Some((rises(finding)?, finding)))
        .collect();
    let rates = rising
        .iter()
        .filter_map(|(_, finding)| finding.rate_per_min);
    ClassRow {
        count: family.track.count(),
        opened,
        verdict: rising.iter().map(|(verdict, _)| *verdict).max(),
        is_cleared,
        rate: rates.reduce(|a, b| a + b),
        targets: rising
            .iter()
            .filter_map(|(_, finding)| target(finding, &name))
            .collect(),
        history: History::of(timeline, &family.track),
        name,
    }
}

/// The verdict of a finding; cleared findings do not count.
fn rises(finding: &Finding) -> Option<Verdict> {
    match (finding.rule.as_str(), &finding.cleared) {
        ("leak", None) => Some(Verdict::Leaking),
        ("growth", None) => Some(Verdict::Growing),
        _ => None,
    }
}

fn is_of(finding: &Finding, family: &Class) -> bool {
    let listening = Class::Tcp(TcpState::Listen);
    match &finding.class {
        // The timeline separates these from connections.
        Some(class) if *class == listening => *family == listening,
        Some(class) => class.family() == *family,
        None => false,
    }
}

/// `+48 tcp:CLOSE_WAIT 10.0.0.5:443`; nothing if the row itself shows it.
fn target(finding: &Finding, row: &str) -> Option<String> {
    let class = finding.class.as_ref().map(class_name);
    let class = class.filter(|class| class != row);
    let target = finding.target.as_ref().map(sanitize);
    let target = target.filter(|target| target != row && Some(target) != class.as_ref());
    let grown = finding.grown.map(|grown| format!("{grown:+}"));
    if class.is_none() && target.is_none() {
        return None;
    }
    let words: Vec<String> = [grown, class, target].into_iter().flatten().collect();
    Some(words.join(" "))
}
