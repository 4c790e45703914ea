//! One process under watch: its looks, its timeline and the judgement on it.

use std::time::Duration;

use fdguard_core::diagnosis::ProcessDiagnosis;
use fdguard_core::rule::RuleSettings;
use fdguard_core::timeline::{Look, Timeline};
use fdguard_core::watch::WatchedProcess;
use fdguard_diagnose::watching::{LookDepth, Trouble, WatchTarget, trouble_of};
use fdguard_probe::Probe;
use fdguard_proc::ProcKey;

use crate::overview::{ClassTally, LimitTime};
use crate::target_tally::TargetTallies;

/// Seconds between two full looks, which also find descriptors that were replaced at the same
/// count.
const FULL_EVERY: f64 = 60.0;
/// Judge at least this often, in seconds, even if nothing changed.
const JUDGE_EVERY: f64 = 60.0;
/// A process of which not even this much was seen is looked at fully each time.
const FIRST_LOOKS: u64 = 2;

/// A process under watch.
#[derive(Debug)]
pub(crate) struct ProcessWatch<'p> {
    target: WatchTarget<'p>,
    subject: WatchedProcess,
    /// The latest judgement.
    pub(crate) opinion: Option<ProcessDiagnosis>,
    /// What its descriptors referred to at that judgement.
    pub(crate) targets: Option<TargetTallies>,
    pub(crate) listings: u64,
    full_at: f64,
    judged_at: f64,
    is_news: bool,
}

impl<'p> ProcessWatch<'p> {
    /// Begins to watch; `None` if the process is another one by now, or has ended.
    pub(crate) fn begin(probe: &'p Probe, key: ProcKey) -> Option<Self> {
        let target = WatchTarget::without_handle(probe, key.pid).ok()?;
        let process = target.watcher().process().ok()?;
        if process.key() != Some(key) {
            return None;
        }
        let subject = WatchedProcess {
            id: 0,
            tier: target.watcher().tier(),
            select: probe.select_use(key.pid).ok(),
            process,
            timeline: Timeline::new(),
            gone: None,
            replaced: false,
        };
        Some(Self {
            target,
            subject,
            opinion: None,
            targets: None,
            listings: 0,
            full_at: f64::NEG_INFINITY,
            judged_at: f64::NEG_INFINITY,
            is_news: true,
        })
    }

    /// The look that it deserves now.
    pub(crate) fn wanted(&self, now: f64, has_changed: bool) -> LookDepth {
        let is_first = self.subject.timeline.looks() < FIRST_LOOKS;
        if is_first || now - self.full_at >= FULL_EVERY {
            LookDepth::Full
        } else if has_changed {
            LookDepth::Changes
        } else {
            LookDepth::Count
        }
    }

    /// Takes a look. A count that the radar just read costs nothing.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        depth: LookDepth,
        count: Option<u64>,
    ) -> Result<(), Trouble> {
        let look = match (depth, count) {
            (LookDepth::Count, Some(_)) => Look {
                at: now.as_secs_f64(),
                count,
                ..Look::default()
            },
            _ => {
                let look = self.target.look(now, depth);
                look.map_err(|error| trouble_of(&error))?
            }
        };
        if depth == LookDepth::Full {
            self.full_at = now.as_secs_f64();
        }
        let has_moved = self.subject.timeline.count() != look.count;
        let has_table = look.table.as_ref().is_some_and(|table| !table.is_empty());
        self.is_news |= has_moved || has_table;
        self.listings += u64::from(look.table.is_some());
        self.subject.timeline.observe(&look);
        if let Some(process) = look.process {
            self.subject.process = *process;
        }
        Ok(())
    }

    /// Whether a judgement could differ from the last.
    pub(crate) fn is_judgement_due(&self, now: f64) -> bool {
        self.is_news || now - self.judged_at >= JUDGE_EVERY
    }

    /// Judges what was seen, as `watch` does.
    pub(crate) fn judge(&mut self, settings: &RuleSettings, now: f64) {
        let mut opinion = self.subject.opinion(settings);
        let process = &self.subject.process;
        fdguard_core::command_line::add_trace(&mut opinion.findings, process, false);
        self.opinion = Some(opinion);
        self.targets = TargetTallies::count(&self.subject.timeline);
        self.judged_at = now;
        self.is_news = false;
    }

    /// The process.
    pub(crate) fn subject(&self) -> &WatchedProcess {
        &self.subject
    }
}

/// Limits ahead with their times.
pub(crate) fn times(opinion: &ProcessDiagnosis) -> Vec<LimitTime> {
    let walls = opinion.walls.iter().filter(|wall| wall.only_if.is_none());
    let times = walls.filter_map(|wall| {
        Some(LimitTime {
            limit: wall.name.clone(),
            seconds: wall.eta_seconds.filter(|seconds| seconds.is_finite())?,
        })
    });
    times.collect()
}

/// The limit of `select()`, if the process can reach it and could call that.
pub(crate) fn select_limit(opinion: &ProcessDiagnosis) -> Option<u64> {
    let mut walls = opinion.walls.iter();
    let select = walls.find(|wall| wall.name == fdguard_core::wall::SELECT);
    select.map(|wall| wall.at)
}

/// Classes, largest first.
pub(crate) fn classes(opinion: &ProcessDiagnosis) -> Option<Vec<ClassTally>> {
    let classes = opinion.classes.as_ref()?;
    let one = |trend: &fdguard_core::diagnosis::ClassTrend| ClassTally {
        class: trend.class.to_string(),
        count: trend.count,
    };
    Some(classes.iter().map(one).collect())
}
