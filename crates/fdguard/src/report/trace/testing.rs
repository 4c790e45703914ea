//! Made-up traces.

use std::collections::HashMap;

use fdguard_core::Class;
use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::event::OpenCall;
use fdguard_core::evidence::{Curve, CurvePoint, Curves};
use fdguard_core::finding::Finding;
use fdguard_core::hazard::{Fault, Hazard, Party};
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Culprit, Frame, Language, Origin, Stack};
use fdguard_core::snapshot::Process;
use fdguard_diagnose::trace::{ProcessSites, TraceReport};
use fdguard_trace::{CallPath, Descriptor, OpenFd, Site};
use jiff::Timestamp;

const SECOND: u64 = 1_000_000_000;

/// A made-up trace.
pub(crate) struct MadeReport {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) curves: Option<Curves>,
    sites: Vec<MadeSite>,
}

struct MadeSite {
    comm: String,
    stack: Stack,
    live: u32,
}

impl Default for MadeReport {
    fn default() -> Self {
        Self {
            diagnosis: diagnosis(),
            curves: None,
            sites: Vec::new(),
        }
    }
}

impl MadeReport {
    /// One more site, with as many closed descriptors as live ones.
    pub(crate) fn site(mut self, comm: &str, stack: &[Frame], live: u32) -> Self {
        self.sites.push(MadeSite {
            comm: comm.to_owned(),
            stack: stack.to_vec(),
            live,
        });
        self
    }

    pub(crate) fn report(&self) -> TraceReport {
        let mut processes: Vec<ProcessSites> = Vec::new();
        for site in &self.sites {
            let at = processes.iter().position(|one| one.comm == site.comm);
            let at = at.unwrap_or_else(|| {
                processes.push(ProcessSites {
                    pid: 100 + u32::try_from(processes.len()).unwrap(),
                    comm: site.comm.clone(),
                    sites: Vec::new(),
                    open: HashMap::new(),
                    now: 300 * SECOND,
                    inherited: 0,
                    unknown: 0,
                    curves: self.curves.clone(),
                    is_go: false,
                });
                processes.len() - 1
            });
            site.add_to(&mut processes[at]);
        }
        TraceReport {
            diagnosis: self.diagnosis.clone(),
            processes,
            traced: Vec::new(),
        }
    }
}

impl MadeSite {
    /// Four descriptors per second; the class of the first is unknown.
    fn add_to(&self, process: &mut ProcessSites) {
        let used: usize = process.sites.iter().map(|site| site.open.len()).sum();
        let first = 3 + u32::try_from(used).unwrap();
        let fds: Vec<u32> = (first..first + self.live).collect();
        let open = fds.iter().map(|fd| OpenFd {
            fd: *fd,
            descriptor: Descriptor {
                generation: 1,
                stack: 1,
                tid: 7,
                ns: u64::from(*fd - first) * SECOND / 4,
                call: OpenCall::Open,
                forks: 0,
                used: 0,
            },
        });
        let live = u64::from(self.live);
        process.sites.push(Site {
            stack: self.stack.clone(),
            culprit: Culprit::from_stack(&self.stack),
            leaking_caller: None,
            open: open.collect(),
            opened: 2 * live,
            closed: live,
            paths: vec![CallPath {
                stack: self.stack.clone(),
                fds: fds.clone(),
                opened: 2 * live,
                closed: live,
            }],
        });
        let target = fdguard_core::Text::from("/srv/<script>alert(1)</script>.log");
        let known = fds.into_iter().skip(1);
        let known = known.map(|fd| (fd, (Class::Regular, target.clone())));
        process.open.extend(known);
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
        class: Some(Class::Regular),
        target: Some("/srv/a.log".into()),
        count: Some(count),
        why: format!("{count} files opened, none closed"),
        next_step: "Close them.".to_owned(),
        origin: Some(Origin {
            culprit: Culprit::from_stack(stack),
            leaking_caller: None,
            through: Vec::new(),
            partly: false,
            stack: stack.to_vec(),
            thread: Some(7),
            live: count,
            opened: count,
            closed: 0,
            oldest_age_seconds: None,
        }),
        ..Finding::new("leak", pid, "srv".into(), Severity::Warning)
    }
}

/// A party to a hazard.
pub(crate) fn party(thread: u32, stack: &[Frame]) -> Party {
    Party {
        thread: Some(thread),
        culprit: Culprit::from_stack(stack),
        stack: stack.to_vec(),
    }
}

/// A close by a stranger that hit a third party.
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

/// A count over time, one point per second.
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
    let process = Process {
        pid: 100,
        comm: "srv".into(),
        cmdline: vec!["./srv".into(), "<script>alert(2)</script>".into()],
        ..Process::default()
    };
    let times = (Timestamp::UNIX_EPOCH, Timestamp::from_second(90).unwrap());
    Diagnosis {
        samples: 90,
        baseline: Some(4),
        last: Some(120),
        verdict: Verdict::Leaking,
        ..Diagnosis::new(process, times, WatchEnd::ProcessEnded, "preload")
    }
}
