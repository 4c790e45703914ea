//! Small scripted watches for tests: what a process held at each look, a second apart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::date;

use super::PID;
use crate::config::{Levels, Suppressions};
use crate::diagnosis::ProcessDiagnosis;
use crate::finding::Finding;
use crate::playbook::Playbook;
use crate::recording::{Appearance, RecordingEntry, RecordingHeader};
use crate::rule::RuleSettings;
use crate::select_use::SelectUse;
use crate::snapshot::{Ceiling, Ceilings, Limits, Process};
use crate::timeline::{ChildCount, Look, LookChange, Sighting};
use crate::{Class, Fd, Pid, Text, Tier, Timeline, collapse};

/// The observations of one process.
#[derive(Debug, Default)]
pub(crate) struct WatchScript {
    pub(crate) looks: Vec<Look>,
    pub(crate) select: Option<SelectUse>,
    open: BTreeMap<Fd, Class>,
    next: Look,
    change: LookChange,
    blind: bool,
}

/// Builds a watch: `watched(|t| { t.open(Class::Pipe, "pipe:[1]", 3); t.looks(1); })`.
pub(crate) fn watched(tell: impl FnOnce(&mut WatchScript)) -> WatchScript {
    let mut watched = WatchScript::default();
    watched.limits(65_536, 65_536);
    tell(&mut watched);
    watched
}

/// Ten files from the start, then one more of `class` with every look: the simplest leak.
pub(crate) fn leak(class: &Class, target: &str, looks: usize) -> WatchScript {
    watched(|t| {
        t.open(Class::Regular, "/srv/app.log", 10);
        t.drip(class, target, looks);
    })
}

/// Without user settings.
pub(crate) fn settings() -> RuleSettings {
    RuleSettings {
        levels: Levels::default(),
        expectations: Vec::new(),
        suppressions: Suppressions::default(),
        playbook: Playbook::embedded(),
        today: date(2026, 6, 15),
    }
}

/// The same with a user's file.
pub(crate) fn configured(toml: &str) -> RuleSettings {
    let config = crate::config::Config::parse(toml).unwrap();
    RuleSettings {
        levels: config.levels,
        expectations: config.expectations,
        suppressions: config.suppressions,
        ..settings()
    }
}

impl WatchScript {
    pub(crate) fn limits(&mut self, soft: u64, hard: u64) {
        self.next.limits = Some(Limits {
            soft: Some(soft),
            hard: Some(hard),
        });
    }

    /// Changes the limits of the host.
    pub(crate) fn host(&mut self, set: impl FnOnce(&mut Ceilings)) {
        set(self.next.host.get_or_insert_default());
    }

    pub(crate) fn family(&mut self, children: u64, zombies: u64) {
        self.next.family = Some(ChildCount { children, zombies });
    }

    /// The descriptors cannot be listed.
    pub(crate) fn blind(&mut self) {
        self.blind = true;
    }

    /// Opens `count`, each at the lowest free number, as the kernel does.
    pub(crate) fn open(&mut self, class: Class, target: &str, count: usize) {
        for _ in 0..count {
            let fd = (0..).find(|fd| !self.open.contains_key(fd)).unwrap();
            self.open_at(fd, class.clone(), target);
        }
    }

    pub(crate) fn open_at(&mut self, fd: Fd, class: Class, target: &str) {
        self.open.insert(fd, class.clone());
        let collapsed = collapse::collapse(target.as_bytes());
        self.change.opened.push(Sighting {
            fd,
            class,
            target: Text::from(target),
            group: Some(Text::from(&*collapsed)),
        });
    }

    /// Closes `count` of a class, the lowest numbers first.
    pub(crate) fn close(&mut self, class: &Class, count: usize) {
        for _ in 0..count {
            let mut open = self.open.iter();
            let fd = *open.find(|(_, open)| *open == class).unwrap().0;
            self.open.remove(&fd);
            self.change.closed.push(fd);
        }
    }

    /// Looks `count` times.
    pub(crate) fn looks(&mut self, count: usize) {
        for _ in 0..count {
            let at = self.looks.len() as f64;
            let change = std::mem::take(&mut self.change);
            self.looks.push(Look {
                at,
                count: Some(self.open.len() as u64),
                table: (!self.blind).then_some(change),
                ..std::mem::take(&mut self.next)
            });
        }
    }

    /// One more with every look.
    pub(crate) fn drip(&mut self, class: &Class, target: &str, looks: usize) {
        for _ in 0..looks {
            self.open(class.clone(), target, 1);
            self.looks(1);
        }
    }

    pub(crate) fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::new();
        for look in &self.looks {
            timeline.observe(look);
        }
        timeline
    }

    pub(crate) fn opinion(&self, settings: &RuleSettings) -> ProcessDiagnosis {
        let process = process(PID);
        ProcessDiagnosis::of(&process, &self.timeline(), self.select.as_ref(), settings)
    }

    /// The findings of this rule.
    pub(crate) fn found(&self, rule: &str, settings: &RuleSettings) -> Vec<Finding> {
        let mut findings = self.opinion(settings).findings;
        findings.retain(|finding| finding.rule == rule);
        findings
    }

    /// The entries of a recording of it.
    pub(crate) fn entries(&self, id: u32, successor_of: Option<u32>) -> Vec<RecordingEntry> {
        let appearance = Appearance {
            id,
            at: 0.0,
            process: process(PID + id),
            tier: Tier::Full,
            select: self.select.clone(),
            successor_of,
        };
        let looks = self.looks.iter().map(|look| RecordingEntry::Look {
            id,
            look: Box::new(look.clone()),
        });
        let first = RecordingEntry::Process(Box::new(appearance));
        std::iter::once(first).chain(looks).collect()
    }
}

fn process(pid: Pid) -> Process {
    Process {
        pid,
        comm: "victim".into(),
        ..Process::default()
    }
}

pub(crate) fn header() -> RecordingHeader {
    RecordingHeader::new(Timestamp::UNIX_EPOCH, 1.0)
}

/// `used` of `at`.
pub(crate) fn ceiling(used: u64, at: u64) -> Ceiling {
    Ceiling {
        used: Some(used),
        at: Some(at),
    }
}

/// It can call `select()`: this library imports it.
pub(crate) fn selects() -> SelectUse {
    SelectUse::Imports {
        objects: vec![Text::from("libold.so")],
    }
}
