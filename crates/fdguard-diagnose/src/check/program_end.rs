//! Judges what a program and its children held when they ended.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::blame::blamed;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::dependency_path::through;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::judge;
use fdguard_core::lifetimes::{JudgedPath, JudgedSite, Lifetime};
use fdguard_core::origin::Origin;
use fdguard_core::proof::Remains;
use fdguard_core::proof::at_exit::{self, DescriptorAtExit, Life, SiteAtExit};
use fdguard_core::proof::process::LeftoverProcess;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Gap, Pid, Text};
use fdguard_trace::{ExitReport, ProcessTables, TracedProcess};

use super::baseline::{self, HeldCounts};
use super::proof::CheckEvidence;
use crate::link;

/// The class and target of a descriptor of a process, as far as looks from outside know them.
pub type DescriptorNames<'a> =
    &'a dyn Fn(&TracedProcess, &Lifetime) -> (Option<Class>, Option<Text>);

/// What is known when everything has ended.
#[derive(Debug)]
pub struct ProgramEnd<'a> {
    /// The launched process.
    pub pid: Pid,
    /// Its exit code, as in a shell.
    pub status: u8,
    /// Whether a signal ended it.
    pub was_signalled: bool,
    /// What the library saw of every process.
    pub traces: &'a [TracedProcess],
    /// What the processes recorded.
    pub tables: &'a ProcessTables,
    /// The looks from outside, if there were any.
    pub watch: Option<&'a Watch>,
    /// Lines that start children and do not wait for them.
    pub piles: Vec<ChildPile>,
    /// Processes that outlived it, and zombies.
    pub processes: Vec<LeftoverProcess>,
    /// Whether everything counts.
    pub strict: bool,
}

impl ProgramEnd<'_> {
    /// The evidence for a proof; the diagnosis is that of the trace.
    #[must_use]
    pub fn evidence(self, mut diagnosis: Diagnosis, names: DescriptorNames<'_>) -> CheckEvidence {
        let remains = self.remains(names);
        let is_traced = self.traces.iter().any(|one| one.pid == self.pid);
        let blind = !is_traced && !self.has_history();
        if blind {
            diagnosis.gaps.push(too_short());
        } else if is_traced {
            // If the end state is known, it does not matter that there was no look while it ran.
            diagnosis.gaps.retain(|gap| gap.what != "whether it leaks");
        }
        let held = self.held(names).or_else(|| {
            let mut processes = diagnosis.processes.iter();
            let opinion = processes.find(|one| one.pid == self.pid)?;
            let classes = opinion.classes.as_ref()?.iter();
            Some(baseline::count(
                classes.map(|one| (one.class.clone(), one.count)),
            ))
        });
        CheckEvidence {
            diagnosis,
            remains,
            piles: self.piles,
            processes: self.processes,
            status: Some(self.status),
            exercises: Vec::new(),
            held,
            blind,
        }
    }

    /// Judges what every process left open, the worst first.
    fn remains(&self, names: DescriptorNames<'_>) -> Vec<Remains> {
        // A process that outlived the program did not exit by itself.
        let is_cut_off = |pid: Pid| self.processes.iter().any(|one| one.pid == pid);
        let mut remains: Vec<Remains> = latest(self.traces)
            .filter(|process| !is_cut_off(process.pid))
            .flat_map(|process| self.of_process(process, names))
            .collect();
        remains.sort_by_key(|one| (one.judged, std::cmp::Reverse(one.count)));
        remains
    }

    /// What the launched process held at its end, by class; `None` if unknown.
    fn held(&self, names: DescriptorNames<'_>) -> Option<HeldCounts> {
        let root = latest(self.traces).find(|process| process.pid == self.pid)?;
        let names = EndNames::new(self.tables, root, names);
        let paths = root.sites.iter().flat_map(|site| &site.paths);
        let live = paths.flat_map(|path| &path.history.live);
        let own = live.filter(|one| names.is_open(one.fd));
        let own = own.filter_map(|one| names.name(one).0);
        // It inherited these from fdguard, under the same numbers.
        let inherited = root.inherited.iter().filter_map(|fd| {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            link::of_link(std::os::unix::ffi::OsStrExt::as_bytes(link.as_os_str())).0
        });
        Some(baseline::count(
            own.chain(inherited).map(|class| (class, 1)),
        ))
    }

    /// Whether it was sampled often enough from outside to be judged by that alone.
    fn has_history(&self) -> bool {
        let is_enough = |one: &WatchedProcess| {
            one.timeline.is_listed() && one.timeline.looks() >= judge::LEAST_LOOKS as u64
        };
        self.watch.is_some_and(|watch| {
            let mut subjects = watch.subjects();
            subjects.any(|one| one.process.pid == self.pid && is_enough(one))
        })
    }

    fn of_process(&self, process: &TracedProcess, names: DescriptorNames<'_>) -> Vec<Remains> {
        let names = EndNames::new(self.tables, process, names);
        let life = Life {
            pid: process.pid,
            comm: Text::from(process.comm.as_str()),
            lived: seconds(process.began, process.until),
            // Only the parent learns a child's exit status. A child that ended by itself wrote an exit
            // report.
            was_cut_off: if process.pid == self.pid {
                self.was_signalled
            } else {
                names.report.is_none()
            },
            is_worker: process.parent.is_some(),
        };
        let places = process.sites.iter().flat_map(|site| {
            let paths = site.paths.iter();
            paths.filter_map(|path| place(&names, &life, site, path))
        });
        places
            .flat_map(|place| at_exit::judge(&life, &place, self.strict))
            .collect()
    }
}

/// The latest program of each process.
fn latest(traces: &[TracedProcess]) -> impl Iterator<Item = &TracedProcess> {
    traces.iter().filter(|one| {
        let mut others = traces.iter();
        !others.any(|other| other.pid == one.pid && other.began > one.began)
    })
}

/// What one call path left open; `None` if nothing.
fn place(
    names: &EndNames<'_>,
    life: &Life,
    site: &JudgedSite,
    path: &JudgedPath,
) -> Option<SiteAtExit> {
    // The parent is responsible for descriptors inherited from it, and stdio need not be closed.
    let open = path.history.live.iter();
    let open: Vec<&Lifetime> = open
        .filter(|one| one.fd > 2 && names.is_open(one.fd))
        .collect();
    let oldest = open.first()?;
    let age = |one: &Lifetime| (life.lived - one.opened.real).max(0.0);
    Some(SiteAtExit {
        origin: Origin {
            culprit: blamed(&path.stack),
            leaking_caller: site.leaking_caller.clone().filter(|_| path.is_leaking),
            through: through(&path.stack),
            partly: false,
            stack: path.stack.clone(),
            thread: Some(oldest.thread),
            live: open.len() as u64,
            opened: path.history.opened,
            closed: path.history.closed,
            oldest_age_seconds: Some(age(oldest)),
        },
        course: path.judgement.course,
        is_leaking: path.is_leaking,
        left: open
            .iter()
            .map(|one| {
                let (class, target) = names.name(one);
                DescriptorAtExit {
                    fd: one.fd,
                    class,
                    target,
                    call: one.call.name().to_owned(),
                    age: age(one),
                    by_main: one.thread == life.pid,
                }
            })
            .collect(),
    })
}

/// The gap for a program that cannot be traced and ended too soon for anything else.
fn too_short() -> Gap {
    Gap::new(
        "what it left open",
        "the program cannot be traced, and it ended before its descriptor counts showed a trend",
        "let it run for at least five seconds, or link it dynamically",
    )
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

/// The name of each descriptor of a process at its end.
struct EndNames<'a> {
    names: DescriptorNames<'a>,
    process: &'a TracedProcess,
    report: Option<ExitReport>,
    links: BTreeMap<u32, (Option<Class>, Text)>,
}

impl<'a> EndNames<'a> {
    fn new(tables: &ProcessTables, process: &'a TracedProcess, names: DescriptorNames<'a>) -> Self {
        let table = tables.table_of(process.pid);
        let report = table.and_then(fdguard_trace::ProcessTable::exit_report);
        let links = report.iter().flat_map(|report| &report.names);
        Self {
            names,
            process,
            links: links.map(|(fd, link)| (*fd, link::of_link(link))).collect(),
            report,
        }
    }

    /// Without a complete exit report, the recorded events decide.
    fn is_open(&self, fd: u32) -> bool {
        let whole = self.report.as_ref().filter(|report| report.is_whole);
        whole.is_none_or(|report| report.names.contains_key(&fd))
    }

    /// The name from the exit report, unless a look from outside found more.
    fn name(&self, one: &Lifetime) -> (Option<Class>, Option<Text>) {
        let (seen, target) = (self.names)(self.process, one);
        match self.links.get(&one.fd) {
            Some((Some(class), link)) if *class != Class::Regular || seen.is_none() => {
                (Some(class.clone()), target.or_else(|| Some(link.clone())))
            }
            Some((_, link)) => (seen, target.or_else(|| Some(link.clone()))),
            None => (seen, target),
        }
    }
}
