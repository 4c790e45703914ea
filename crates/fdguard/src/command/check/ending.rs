//! What a program and its children held when they ended.

use std::collections::BTreeMap;
use std::time::Duration;

use fdguard_core::blame::blamed;
use fdguard_core::dependency_path::through;
use fdguard_core::judge;
use fdguard_core::lifetimes::{JudgedPath, JudgedSite, Lifetime};
use fdguard_core::origin::Origin;
use fdguard_core::proof::Remains;
use fdguard_core::proof::at_exit::{self, DescriptorAtExit, Life, SiteAtExit};
use fdguard_core::watch::WatchedProcess;
use fdguard_core::{Class, Pid, Text};
use fdguard_diagnose::trace::{FdNames, classify_link};
use fdguard_trace::{ExitReport, ProcessTables, TracedProcess};

use super::baseline::{self, HeldCounts};

/// What is known when everything has ended.
pub(super) struct Ending<'a> {
    /// What the library saw of every process.
    pub(super) traces: &'a [TracedProcess],
    /// What the processes recorded.
    pub(super) tables: &'a ProcessTables,
    /// The descriptors' names at the looks from outside.
    pub(super) names: &'a FdNames,
    /// The launched process, and whether a signal ended it.
    pub(super) root: (Pid, bool),
    /// Processes that did not exit by themselves.
    pub(super) cut_off: &'a [Pid],
    /// Whether everything counts.
    pub(super) strict: bool,
}

/// Judges what every process left open, the worst first.
pub(super) fn remains(ending: &Ending<'_>) -> Vec<Remains> {
    let mut remains: Vec<Remains> = latest(ending.traces)
        .filter(|process| !ending.cut_off.contains(&process.pid))
        .flat_map(|process| of_process(ending, process))
        .collect();
    remains.sort_by_key(|one| (one.judged, std::cmp::Reverse(one.count)));
    remains
}

/// What the launched process held at its end, by class; `None` if unknown.
pub(super) fn held(ending: &Ending<'_>) -> Option<HeldCounts> {
    let root = latest(ending.traces).find(|process| process.pid == ending.root.0)?;
    let names = EndNames::of(ending, root);
    let paths = root.sites.iter().flat_map(|site| &site.paths);
    let live = paths.flat_map(|path| &path.history.live);
    let own = live.filter(|one| names.is_open(one.fd));
    let own = own.filter_map(|one| names.name(one).0);
    // It inherited these from fdguard, under the same numbers.
    let inherited = root.inherited.iter().filter_map(|fd| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        classify_link(std::os::unix::ffi::OsStrExt::as_bytes(link.as_os_str())).0
    });
    Some(baseline::count(
        own.chain(inherited).map(|class| (class, 1)),
    ))
}

/// The latest program of each process.
fn latest(traces: &[TracedProcess]) -> impl Iterator<Item = &TracedProcess> {
    traces.iter().filter(|one| {
        let mut others = traces.iter();
        !others.any(|other| other.pid == one.pid && other.began > one.began)
    })
}

fn of_process(ending: &Ending<'_>, process: &TracedProcess) -> Vec<Remains> {
    let names = EndNames::of(ending, process);
    let (root, was_signalled) = ending.root;
    let life = Life {
        pid: process.pid,
        comm: Text::from(process.comm.as_str()),
        lived: seconds(process.began, process.until),
        // Only the parent learns a child's exit status. A child that ended by itself wrote an exit
        // report.
        was_cut_off: if process.pid == root {
            was_signalled
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
        .flat_map(|place| at_exit::judge(&life, &place, ending.strict))
        .collect()
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

/// Whether it was sampled often enough from outside to be judged by that alone.
pub(super) fn has_history(subject: &WatchedProcess) -> bool {
    subject.timeline.is_listed() && subject.timeline.looks() >= judge::LEAST_LOOKS as u64
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

/// The name of each descriptor of a process at its end.
struct EndNames<'a> {
    names: &'a FdNames,
    process: &'a TracedProcess,
    report: Option<ExitReport>,
    links: BTreeMap<u32, (Option<Class>, Text)>,
}

impl<'a> EndNames<'a> {
    fn of(ending: &Ending<'a>, process: &'a TracedProcess) -> Self {
        let table = ending.tables.table_of(process.pid);
        let report = table.and_then(fdguard_trace::ProcessTable::exit_report);
        let links = report.iter().flat_map(|report| &report.names);
        Self {
            names: ending.names,
            process,
            links: links.map(|(fd, link)| (*fd, classify_link(link))).collect(),
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
        let (seen, target) = self.names.name(self.process, one);
        match self.links.get(&one.fd) {
            Some((Some(class), link)) if *class != Class::Regular || seen.is_none() => {
                (Some(class.clone()), target.or_else(|| Some(link.clone())))
            }
            Some((_, link)) => (seen, target.or_else(|| Some(link.clone()))),
            None => (seen, target),
        }
    }
}
