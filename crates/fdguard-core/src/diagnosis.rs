//! The `fdguard.diagnosis/1` document: the result of a watch.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::forecast::{self, Forecast};
use crate::hazard::Hazard;
use crate::judge::{self, Verdict};
use crate::lifetimes::report::SiteReport;
use crate::opened_before::OpenedBefore;
use crate::rising_group::{self, RisingGroup};
use crate::rule::RuleSettings;
use crate::rule::growth::Case;
use crate::select_use::SelectUse;
use crate::snapshot::{Limits, Process};
use crate::timeline::Timeline;
use crate::workload::Workload;
use crate::{Class, Gap, Pid, Text};

/// Schema name of a diagnosis.
pub const DIAGNOSIS_SCHEMA: &str = "fdguard.diagnosis/1";

/// The verdict on one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessDiagnosis {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Its systemd unit, container and pod.
    #[serde(default)]
    pub workload: Option<Workload>,
    /// The verdict.
    pub verdict: Verdict,
    /// Samples taken.
    pub samples: u64,
    /// Seconds watched.
    pub watched_seconds: f64,
    /// Descriptors at the first sample.
    pub baseline: Option<u64>,
    /// Descriptors at the last sample.
    #[serde(rename = "final")]
    pub last: Option<u64>,
    /// The highest number in use.
    pub highest: Option<u64>,
    /// Its limits.
    pub limits: Limits,
    /// Its limits and the time to each.
    pub walls: Vec<Forecast>,
    /// How many there are of each class, largest first; absent where they could not be listed.
    pub classes: Option<Vec<ClassTrend>>,
    /// What was found.
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

/// A class at the end of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassTrend {
    /// The class.
    pub class: Class,
    /// How many there are.
    pub count: u64,
    /// How many of them were opened during the watch.
    pub opened: u64,
}

impl ProcessDiagnosis {
    /// Judges the observations of one process.
    #[must_use]
    pub fn of(
        process: &Process,
        timeline: &Timeline,
        select: Option<&SelectUse>,
        settings: &RuleSettings,
    ) -> Self {
        let judgements = judge::judge(timeline);
        let leaking = rising_group::rising_groups(timeline, &judgements, Verdict::Leaking);
        let growing = rising_group::rising_groups(timeline, &judgements, Verdict::Growing);
        let growing: Vec<RisingGroup> = growing
            .into_iter()
            .filter(|one| !leaking.iter().any(|other| other.class == one.class))
            .collect();
        let rising: Vec<RisingGroup> = leaking.iter().chain(&growing).cloned().collect();
        let walls = forecast::forecasts(timeline, &rising, select);
        let case = Case {
            process,
            timeline,
            judgements: &judgements,
            leaking: &leaking,
            growing: &growing,
            walls: &walls,
            select,
            settings,
        };
        let findings = case.findings();
        Self {
            pid: process.pid,
            comm: process.comm.clone(),
            workload: process.workload.clone(),
            verdict: verdict(
                timeline,
                &findings,
                judgements.first().map(|all| all.verdict),
            ),
            samples: timeline.looks(),
            watched_seconds: timeline.watched(),
            baseline: timeline.baseline(),
            last: timeline.count(),
            highest: timeline.highest().map(u64::from),
            limits: timeline.limits(),
            walls,
            classes: timeline.is_listed().then(|| classes(timeline)),
            findings,
        }
    }

    /// The classes that rise, for one line of a log.
    #[must_use]
    pub fn rising(&self) -> Vec<String> {
        let rising = self
            .findings
            .iter()
            .filter(|finding| matches!(finding.rule.as_str(), "leak" | "growth"))
            .filter(|finding| finding.cleared.is_none());
        let mut names: Vec<String> = Vec::new();
        for finding in rising {
            let class = finding.class.as_ref();
            let name = class.map_or_else(|| "unknown".to_owned(), ToString::to_string);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The worst finding that was not accepted; otherwise the shape of the total.
fn verdict(timeline: &Timeline, findings: &[Finding], whole: Option<Verdict>) -> Verdict {
    if timeline.count().is_none() && !timeline.is_listed() {
        return Verdict::Unknown;
    }
    let counts = |rule: &str| {
        let mut of_rule = findings.iter().filter(|finding| finding.rule == rule);
        of_rule.any(|finding| finding.cleared.is_none())
    };
    let whole = whole.unwrap_or_default();
    if counts("leak") {
        Verdict::Leaking
    } else if counts("growth") {
        Verdict::Growing
    } else {
        // What shows only in the total, or was accepted, is at most bounded.
        whole.min(Verdict::Bounded)
    }
}

fn classes(timeline: &Timeline) -> Vec<ClassTrend> {
    let mut counts = std::collections::BTreeMap::new();
    for (_, held) in timeline.live().iter() {
        let (count, opened) = counts.entry(&held.class).or_insert((0_u64, 0_u64));
        *count += 1;
        *opened += u64::from(held.since.is_some());
    }
    let mut list: Vec<ClassTrend> = counts
        .into_iter()
        .map(|(class, (count, opened))| ClassTrend {
            class: class.clone(),
            count,
            opened,
        })
        .collect();
    list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.class.cmp(&b.class)));
    list
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_SCHEMA`].
    pub schema: String,
    /// When the watch began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The process named by the user.
    pub process: Process,
    /// Samples taken of it.
    pub samples: u64,
    /// Its descriptors at the first sample.
    pub baseline: Option<u64>,
    /// Its descriptors at the last sample.
    #[serde(rename = "final")]
    pub last: Option<u64>,
    /// The worst verdict of all processes.
    pub verdict: Verdict,
    /// Why the watch ended.
    pub ended: WatchEnd,
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Misuse, detected only by a tracer.
    pub hazards: Vec<Hazard>,
    /// The most descriptors that the process held at once; absent where unknown.
    #[serde(default)]
    pub peak: Option<u64>,
    /// When that was.
    #[serde(default)]
    pub peak_at: Option<Timestamp>,
    /// Descriptors closed in the final sweep or during shutdown; absent if there were none.
    #[serde(default)]
    pub released_at_end: Option<ReleasedAtEnd>,
    /// Every line that opened something in a traced process, those that leak first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<SiteReport>>,
    /// What processes held before fdguard attached to them; absent if it did not attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_before_attach: Option<Vec<OpenedBefore>>,
    /// Each process on its own.
    pub processes: Vec<ProcessDiagnosis>,
    /// Earlier processes of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predecessors: Vec<ProcessDiagnosis>,
    /// How it was observed.
    pub coverage: Coverage,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

impl Diagnosis {
    /// A diagnosis of a process from which nothing is known yet.
    #[must_use]
    pub fn new(
        process: Process,
        (started_at, ended_at): (Timestamp, Timestamp),
        ended: WatchEnd,
        backend: &str,
    ) -> Self {
        Self {
            schema: DIAGNOSIS_SCHEMA.to_owned(),
            started_at,
            ended_at,
            process,
            samples: 0,
            baseline: None,
            last: None,
            verdict: Verdict::Unknown,
            ended,
            findings: Vec::new(),
            hazards: Vec::new(),
            peak: None,
            peak_at: None,
            released_at_end: None,
            sites: None,
            opened_before_attach: None,
            processes: Vec::new(),
            predecessors: Vec::new(),
            coverage: Coverage {
                backend: backend.to_owned(),
                attributed_fds: 0,
                live_fds: None,
                lost_events: 0,
            },
            gaps: Vec::new(),
        }
    }

    /// The command of one of its processes.
    #[must_use]
    pub fn comm_of(&self, pid: Pid) -> Option<&Text> {
        let mut processes = self.processes.iter();
        let of_opinion = processes.find(|one| one.pid == pid).map(|one| &one.comm);
        of_opinion.or((self.process.pid == pid).then_some(&self.process.comm))
    }
}

/// Descriptors that were closed because the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedAtEnd {
    /// How many.
    pub count: u64,
    /// When the last of them was closed.
    pub at: Timestamp,
}

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchEnd {
    /// The time was up.
    TimeUp,
    /// The process ended first.
    ProcessEnded,
    /// The user stopped it.
    Interrupted,
    /// The recording ended.
    RecordingEnded,
    /// The recording stops in the middle.
    RecordingCut,
}

/// How descriptors were observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// `probe`, `preload`, `inject` or `ebpf`.
    pub backend: String,
    /// Descriptors whose opening line is known.
    pub attributed_fds: u64,
    /// Descriptors that are open.
    pub live_fds: Option<u64>,
    /// Events that were lost; 0 for the probe, which sees no events.
    pub lost_events: u64,
}

#[cfg(test)]
mod tests {
    use super::{ClassTrend, Diagnosis, WatchEnd};
    use crate::Class;
    use crate::judge::Verdict;
    use crate::recording::RecordingEntry;
    use crate::testing::watch_script::{header, leak, settings, watched};
    use crate::watch::Watch;

    #[test]
    fn an_opinion_counts_classes_and_what_was_opened_meanwhile() {
        let opinion = leak(&Class::Pipe, "pipe:[7]", 80).opinion(&settings());
        let trend = |class, count, opened| ClassTrend {
            class,
            count,
            opened,
        };
        let expected = [trend(Class::Pipe, 80, 79), trend(Class::Regular, 10, 0)];
        assert_eq!(opinion.classes.unwrap(), expected);
        assert_eq!((opinion.baseline, opinion.last), (Some(11), Some(90)));
        assert_eq!((opinion.samples, opinion.highest), (80, Some(89)));
    }

    #[test]
    fn what_could_not_be_seen_is_unknown_and_not_zero() {
        let opinion = watched(|t| {
            t.blind();
            t.looks(20);
            for look in &mut t.looks {
                look.count = None;
            }
        });
        let opinion = opinion.opinion(&settings());
        assert_eq!(opinion.verdict, Verdict::Unknown);
        let known = (opinion.baseline, opinion.last, opinion.highest);
        assert_eq!(known, (None, None, None));
        assert_eq!(opinion.classes, None);
    }

    #[test]
    fn a_class_that_rises_in_several_places_is_named_once() {
        let told = watched(|t| {
            t.looks(1);
            for _ in 0..80 {
                t.open(Class::Regular, "/srv/a.log", 1);
                t.open(Class::Pipe, "pipe:[7]", 1);
                t.open(Class::Regular, "/srv/b.log", 1);
                t.looks(1);
            }
        });
        let mut rising = told.opinion(&settings()).rising();
        rising.sort();
        assert_eq!(rising, ["pipe", "regular"]);
    }

    #[test]
    fn a_document_has_the_fields_of_the_contract_and_comes_back() {
        let mut watch = Watch::new(header());
        for entry in leak(&Class::Pipe, "pipe:[7]", 80).entries(0, None) {
            watch.record(&entry);
        }
        let ended_at = watch.wall_time();
        let ended = WatchEnd::TimeUp;
        watch.record(&RecordingEntry::End { ended, ended_at });
        let diagnosis = watch.diagnosis(&settings()).unwrap();
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["schema"], "fdguard.diagnosis/1");
        assert_eq!(
            (&json["verdict"], &json["final"]),
            (&"leaking".into(), &90.into())
        );
        assert_eq!(json["ended"], "time-up");
        let finding = &json["findings"][0];
        for field in [
            "rule",
            "pid",
            "comm",
            "severity",
            "class",
            "target",
            "count",
            "grown",
            "rate_per_min",
            "confidence",
            "walls",
            "why",
            "next_step",
            "origin",
        ] {
            assert!(finding.get(field).is_some(), "{field}");
        }
        assert!(json["hazards"].is_array() && json["gaps"].is_array());
        assert_eq!(json["coverage"]["backend"], "probe");
        let back: Diagnosis = serde_json::from_value(json).unwrap();
        assert_eq!(back.findings, diagnosis.findings);
    }
}
