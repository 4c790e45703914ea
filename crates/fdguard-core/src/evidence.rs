//! What `doctor` collects, and the conclusions from it.
//!
//! [`EvidenceInput`] holds only observations; [`Evidence`] holds the conclusions, so that redacted
//! material gives redacted evidence. Every report and every file of a bundle is made from one
//! [`Evidence`].

use serde::Serialize;

use crate::diagnosis::{Diagnosis, WatchEnd};
use crate::lint::Severity;
use crate::recording::{RecordingEntry, RecordingHeader};
use crate::rule::RuleSettings;
use crate::select_use::SelectUse;
use crate::watch::Watch;
use crate::{Gap, Pid, Snapshot, Summary, Text, Tier, command_line};

mod curve;
mod database;
mod harmless;
mod redacted;

pub use curve::{ClassCurve, Curve, CurvePoint, Curves};
pub use database::{Database, DatabaseHolder};

/// All collected material.
#[derive(Clone, Debug, PartialEq)]
pub struct EvidenceInput {
    /// The first line of the watch's recording.
    pub header: RecordingHeader,
    /// The others.
    pub entries: Vec<RecordingEntry>,
    /// The processes named by the user.
    pub visits: Vec<ProcessVisit>,
    /// Their parents and descendants.
    pub relatives: Vec<Relative>,
    /// How many more descendants there are than are listed.
    pub relatives_more: u64,
    /// Where they run.
    pub machine: Machine,
    /// The logs that were given.
    pub logs: Vec<LogFile>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

/// One process, before the watch and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessVisit {
    /// Before.
    pub begin: Snapshot,
    /// After; absent where it had exited.
    pub end: Option<Snapshot>,
    /// Whether it can call `select()`; absent where that was not checked.
    pub select: Option<SelectUse>,
    /// Its runtime, where the executable reveals it.
    pub runtime: Option<RuntimeInfo>,
}

/// An interpreter or virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: String,
    /// Its version, if the path contains it.
    pub version: Option<String>,
}

/// How a process is related to the named ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// A parent, or a parent's parent.
    Ancestor,
    /// One that was named.
    Named,
    /// A child, or a child's child.
    Descendant,
    /// None of these: it holds a database or a listener that they hold.
    Sharer,
}

/// A related process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relative {
    /// Its number.
    pub pid: Pid,
    /// Its parent.
    pub ppid: Option<Pid>,
    /// How it is related.
    pub relation: Relation,
    /// Its depth below the topmost process.
    pub depth: u32,
    /// Its command.
    pub comm: Text,
    /// How many descriptors it holds.
    pub count: Option<u64>,
    /// Its soft limit.
    pub soft: Option<u64>,
    /// Whether it exited and was not waited for.
    pub zombie: bool,
}

/// The host: the usual facts, and nothing that identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Version of fdguard.
    pub fdguard: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The distribution.
    pub os: Option<String>,
    /// The processor.
    pub arch: String,
    /// How long it has been running.
    pub uptime_seconds: Option<u64>,
}

/// A log and its lines about descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogFile {
    /// Where it is.
    pub path: Text,
    /// How many lines were read.
    pub lines: u64,
    /// What was found.
    pub symptoms: Vec<LogSymptom>,
}

/// A kind of log line about descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogSymptom {
    /// Its name.
    pub id: String,
    /// Which limit was reached.
    pub wall: String,
    /// What it means.
    pub meaning: String,
    /// What to do next.
    pub next: String,
    /// How many lines.
    pub count: u64,
    /// The first, from 1.
    pub first_line: u64,
    /// The last.
    pub last_line: u64,
    /// One of them; absent where lines are not to be shown.
    pub example: Option<Text>,
}

/// The conclusions from the material.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The observations.
    pub material: EvidenceInput,
    /// The result of the watch.
    pub diagnosis: Diagnosis,
    /// Each process that was named.
    pub examined: Vec<ExaminedProcess>,
    /// Everything that could not be seen.
    pub gaps: Vec<Gap>,
    /// Which objects hold the descriptors, if that was asked.
    pub holders: Option<Holders>,
    /// Whether names were redacted.
    pub redacted: bool,
}

/// Which objects hold the descriptors, as `fdguard why` answers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Holders {
    /// The answers for each process, as in `fdguard.why/1`.
    pub processes: serde_json::Value,
    /// The same in sentences.
    pub sentences: Vec<String>,
}

/// The verdict on one process.
#[derive(Clone, Debug)]
pub struct ExaminedProcess {
    /// Before the watch.
    pub begin: Summary,
    /// After it, or before where it had ended.
    pub latest: Summary,
    /// How many descriptors it held over time.
    pub curves: Option<Curves>,
    /// The databases that it holds.
    pub databases: Vec<Database>,
    /// Seconds since it was started.
    pub uptime_seconds: Option<u64>,
}

impl ProcessVisit {
    /// The latest snapshot of it.
    #[must_use]
    pub fn latest(&self) -> &Snapshot {
        self.end.as_ref().unwrap_or(&self.begin)
    }
}

impl Evidence {
    /// Draws all conclusions; `None` if no process was observed.
    #[must_use]
    pub fn of(material: EvidenceInput, settings: &RuleSettings) -> Option<Self> {
        let mut evidence = Self::conclude(material, settings)?;
        evidence.name_traces();
        Some(evidence)
    }

    /// Adds the command that finds the line. It uses the material as is, so redacted material gives
    /// a redacted command.
    fn name_traces(&mut self) {
        let has_ended = self.diagnosis.ended == WatchEnd::ProcessEnded;
        for visit in &self.material.visits {
            let process = &visit.latest().process;
            command_line::add_trace(&mut self.diagnosis.findings, process, has_ended);
            for opinion in &mut self.diagnosis.processes {
                command_line::add_trace(&mut opinion.findings, process, has_ended);
            }
        }
    }

    fn conclude(material: EvidenceInput, settings: &RuleSettings) -> Option<Self> {
        let mut watch = Watch::new(material.header.clone());
        for entry in &material.entries {
            watch.record(entry);
        }
        let diagnosis = watch.diagnosis(settings)?;
        let examined = material.visits.iter().map(|visit| {
            let timeline = watch
                .subjects()
                .find(|subject| subject.process.pid == visit.begin.process.pid)
                .map(|subject| &subject.timeline);
            let latest = visit.latest();
            let mut summary = Summary::summarize(latest);
            harmless::downgrade(&mut summary.lints, visit, &material.relatives);
            ExaminedProcess {
                begin: Summary::summarize(&visit.begin),
                latest: summary,
                curves: timeline.map(Curves::of),
                databases: database::databases(latest, &material.relatives),
                uptime_seconds: uptime(latest),
            }
        });
        let examined = examined.collect();
        let gaps = all_gaps(&material, &diagnosis);
        Some(Self {
            diagnosis,
            examined,
            gaps,
            material,
            holders: None,
            redacted: false,
        })
    }

    /// The named processes, with the verdict on each.
    pub fn patients(&self) -> impl Iterator<Item = (&ProcessVisit, &ExaminedProcess)> {
        self.material.visits.iter().zip(&self.examined)
    }

    /// Whether there are findings that need attention.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        let findings = self.diagnosis.findings.iter();
        let mut grave = findings.filter(|finding| finding.cleared.is_none());
        let lints = self.examined.iter().flat_map(|one| &one.latest.lints);
        grave.any(|finding| finding.severity >= Severity::Warning)
            || lints
                .into_iter()
                .any(|hit| hit.severity >= Severity::Warning)
    }

    /// Whether the descriptors of every process could be listed, not only counted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let mut visits = self.material.visits.iter();
        visits.all(|visit| visit.begin.tier > Tier::Radar)
    }
}

fn uptime(snapshot: &Snapshot) -> Option<u64> {
    let since = snapshot.taken_at.as_second() - snapshot.process.start_time?.as_second();
    u64::try_from(since).ok()
}

/// Each gap once, whichever source reported it.
fn all_gaps(material: &EvidenceInput, diagnosis: &Diagnosis) -> Vec<Gap> {
    let visits = material.visits.iter();
    let of_snapshots = visits.flat_map(|visit| {
        let end = visit.end.iter().flat_map(|end| &end.gaps);
        visit.begin.gaps.iter().chain(end)
    });
    let mut gaps: Vec<Gap> = Vec::new();
    for gap in of_snapshots.chain(&diagnosis.gaps).chain(&material.gaps) {
        if !gaps.contains(gap) {
            gaps.push(gap.clone());
        }
    }
    gaps
}

#[cfg(test)]
mod tests;
