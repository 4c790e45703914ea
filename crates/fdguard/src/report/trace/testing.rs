//! Made-up traces.

use fdguard_core::Class;
use fdguard_core::diagnosis::{Coverage, DIAGNOSIS_SCHEMA, Diagnosis, WatchEnd};
use fdguard_core::evidence::{Curve, CurvePoint, Curves};
use fdguard_core::finding::Finding;
use fdguard_core::hazard::{Fault, Hazard, Party};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame, Language, Origin, Stack};
use fdguard_core::snapshot::Process;
use jiff::Timestamp;

use super::{Holder, Place, Seen, Way};

/// A trace that owns what [`Seen`] borrows.
pub(crate) struct Made {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) curves: Option<Curves>,
    sites: Vec<MadeSite>,
}

struct MadeSite {
    comm: String,
    stack: Stack,
    culprit: Option<Culprit>,
    live: u64,
    target: fdguard_core::Text,
    class: Class,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            diagnosis: diagnosis(),
            curves: None,
            sites: Vec::new(),
        }
    }
}

impl Made {
    /// One more site: each live descriptor was opened along with one that was closed.
    pub(crate) fn site(mut self, comm: &str, stack: &[Frame], live: u64) -> Self {
        self.sites.push(MadeSite {
            comm: comm.to_owned(),
            stack: stack.to_vec(),
            culprit: Culprit::of(stack),
            live,
            target: "/srv/<script>alert(1)</script>.log".into(),
            class: Class::Regular,
        });
        self
    }

    pub(crate) fn seen(&self) -> Seen<'_> {
        let mut holders: Vec<Holder<'_>> = Vec::new();
        for site in &self.sites {
            let at = holders.iter().position(|one| one.comm == site.comm);
            let at = at.unwrap_or_else(|| {
                holders.push(Holder {
                    pid: 100 + u32::try_from(holders.len()).unwrap(),
                    comm: &site.comm,
                    places: Vec::new(),
                    spent: Vec::new(),
                    curves: self.curves.as_ref(),
                });
                holders.len() - 1
            });
            holders[at].places.push(site.place());
        }
        Seen {
            diagnosis: &self.diagnosis,
            holders,
        }
    }
}

impl MadeSite {
    fn place(&self) -> Place<'_> {
        Place {
            culprit: self.culprit.as_ref(),
            telling: None,
            stack: &self.stack,
            how: "open",
            thread: Some(7),
            live: self.live,
            opened: 2 * self.live,
            closed: self.live,
            per_second: Some(4.0),
            oldest: Some(300.0),
            class: Some(&self.class),
            target: Some(&self.target),
            ways: vec![Way {
                stack: &self.stack,
                live: vec![(None, 1), (Some(&self.class), self.live - 1)],
                opened: 2 * self.live,
                closed: self.live,
            }],
        }
    }
}

/// A frame; `at` is its file and line.
pub(crate) fn frame(function: &str, at: Option<(&str, u32)>, language: Language) -> Frame {
    Frame {
        file: at.map(|(file, _)| file.into()),
        function: Some(function.to_owned()),
        line: at.map(|(_, line)| line),
        module: None,
        language,
    }
}

/// A leak of files.
pub(crate) fn leak(pid: u32, stack: &[Frame], count: u64) -> Finding {
    Finding {
        rule: "leak".to_owned(),
        pid,
        comm: "srv".into(),
        severity: Severity::Warning,
        class: Some(Class::Regular),
        target: Some("/srv/a.log".into()),
        count: Some(count),
        grown: None,
        rate_per_min: None,
        confidence: 1.0,
        walls: Vec::new(),
        why: format!("{count} files opened, none closed"),
        next_step: "Close them.".to_owned(),
        origin: Some(Origin {
            culprit: Culprit::of(stack),
            telling: None,
            through: Vec::new(),
            partly: false,
            stack: stack.to_vec(),
            thread: Some(7),
            live: count,
            opened: count,
            closed: 0,
            oldest_age_seconds: None,
        }),
        shape: None,
        advice: None,
        cleared: None,
    }
}

/// One who took part in a hazard.
pub(crate) fn party(thread: u32, stack: &[Frame]) -> Party {
    Party {
        thread: Some(thread),
        culprit: Culprit::of(stack),
        stack: stack.to_vec(),
    }
}

/// A close by somebody else, which struck a third.
pub(crate) fn hazard() -> Hazard {
    let python =
        |function: &str, line| frame(function, Some(("/srv/run.py", line)), Language::Python);
    Hazard {
        pid: 100,
        rule: "double-close".to_owned(),
        severity: Severity::Critical,
        fd: Some(9),
        class: Some(Class::Pipe),
        when: Timestamp::UNIX_EPOCH,
        count: 3,
        prevented: false,
        opener: Some(party(12, &[python("begin", 23)])),
        closer: Some(party(
            123,
            &[python("interrupt", 51), python("<module>", 80)],
        )),
        user: Some(party(12, &[python("finish", 60)])),
        victim: Some(party(14, &[python("connect", 70)])),
        fault: Some(Fault::Closer),
        holders: Vec::new(),
        message: "9 was closed twice, and the second close hit <script>\u{1b}[2J".to_owned(),
        cleared: None,
    }
}

/// A count over time, a point a second.
pub(crate) fn curves(counts: &[u32]) -> Curves {
    let points = counts
        .iter()
        .zip(0_u32..)
        .map(|(count, second)| CurvePoint {
            at: f64::from(second),
            min: *count,
            max: *count,
        });
    Curves {
        total: Curve {
            points: points.collect(),
        },
        families: Vec::new(),
    }
}

fn diagnosis() -> Diagnosis {
    Diagnosis {
        schema: DIAGNOSIS_SCHEMA.to_owned(),
        started_at: Timestamp::UNIX_EPOCH,
        ended_at: Timestamp::from_second(90).unwrap(),
        process: Process {
            pid: 100,
            start_time: None,
            start_ticks: None,
            comm: "srv".into(),
            exe: None,
            cmdline: vec!["./srv".into(), "<script>alert(2)</script>".into()],
            uid: None,
            ppid: None,
            pgid: None,
            threads: None,
            children: None,
            zombies: None,
            container: None,
            ns_pid: None,
            cohorts: Vec::new(),
        },
        samples: 90,
        baseline: Some(4),
        last: Some(120),
        verdict: Verdict::Leaking,
        ended: WatchEnd::ProcessEnded,
        findings: Vec::new(),
        hazards: Vec::new(),
        peak: None,
        peak_at: None,
        released_at_end: None,
        sites: None,
        processes: Vec::new(),
        predecessors: Vec::new(),
        coverage: Coverage {
            backend: "preload".to_owned(),
            attributed_fds: 0,
            live_fds: None,
            lost_events: 0,
        },
        gaps: Vec::new(),
    }
}
