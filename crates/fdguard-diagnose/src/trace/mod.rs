//! Joins a trace with the watch that runs beside it: the tracer knows the lines, the watch the
//! class and target of each descriptor, and the counts of processes that the tracer cannot see
//! into.
//!
//! [`LaunchedTrace`] is a program that fdguard launched, [`observed`] one that another fdguard
//! launched; both give a [`TraceReport`]. [`GrowingSites`] follows the sites while it runs.

mod gaps;
mod growing;
mod launched;
mod names;
mod observed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use fdguard_core::children::finding::{self, ChildPile};
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::evidence::Curves;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::WatchedProcess;
use fdguard_core::{Class, Fd, Pid, Text};
use fdguard_trace::{CallPath, OpenFd, OpenSites, Site, TraceScope, TracedProcess, TracedProgram};

pub use growing::{GrowingSites, SiteNow};
pub use launched::{LaunchedProgram, LaunchedTrace};
pub use names::FdNames;
pub use observed::observed;

/// An aggregated trace: every output is made from it.
#[derive(Clone, Debug)]
pub struct TraceReport {
    /// The verdict, the findings and the hazards.
    pub diagnosis: Diagnosis,
    /// Each process with the sites of what it held at the end.
    pub processes: Vec<ProcessSites>,
    /// What the injected library recorded of each process; empty if another fdguard runs the trace.
    pub traced: Vec<TracedProcess>,
}

/// One process and the sites of its open descriptors.
#[derive(Clone, Debug)]
pub struct ProcessSites {
    /// Its pid.
    pub pid: Pid,
    /// Its command name.
    pub comm: String,
    /// Its sites, the largest first.
    pub sites: Vec<Site>,
    /// Class and target of each open number, if known.
    pub open: HashMap<Fd, (Class, Text)>,
    /// The current time, by the clock of the sites.
    pub now: u64,
    /// Descriptors that were open before its first instruction.
    pub inherited: usize,
    /// Descriptors whose open was not seen.
    pub unknown: usize,
    /// The count of its descriptors over time; `None` if it was never sampled.
    pub curves: Option<Curves>,
    /// Whether it is a Go program, which makes most system calls without libc.
    pub is_go: bool,
}

impl TraceReport {
    /// Every call path that left something open, with its process and its site.
    pub fn call_paths(&self) -> impl Iterator<Item = (&ProcessSites, &Site, &CallPath)> {
        self.processes.iter().flat_map(|process| {
            let sites = process.sites.iter();
            sites.flat_map(move |site| site.paths.iter().map(move |path| (process, site, path)))
        })
    }

    /// The call paths of a process that left nothing open.
    #[must_use]
    pub fn closed_paths(&self, pid: Pid) -> Vec<CallPath> {
        let process = self.traced.iter().rev().find(|one| one.pid == pid);
        let sites = process.into_iter().flat_map(|process| &process.sites);
        let paths = sites.flat_map(|site| &site.paths).map(CallPath::from);
        paths.filter(|path| path.fds.is_empty()).collect()
    }
}

impl ProcessSites {
    /// Joins what a process held with what a look from outside saw of it. The sites are those
    /// before and after the look, which saw everything that is older than `looked`, if it was open.
    fn from_open(
        (before, after): (&OpenSites, &OpenSites),
        subject: &WatchedProcess,
        looked: u64,
    ) -> Self {
        let live = subject.timeline.live();
        let held: BTreeSet<Fd> = live.iter().map(|(fd, _)| fd).collect();
        // Descriptors closed since the look had a known line.
        let mut traced = after.open();
        traced.extend(before.open());
        traced.extend(before.closed.iter().chain(&after.closed));
        let untraced = held.difference(&traced);
        let (inherited, unknown): (Vec<Fd>, Vec<Fd>) =
            untraced.partition(|fd| after.inherited.contains(fd));
        // A descriptor that the look did not see was opened since, or was closed without the
        // library noticing.
        let is_open = |one: &OpenFd| held.contains(&one.fd) || one.descriptor.ns > looked;
        let what = live.iter();
        Self {
            pid: after.pid,
            comm: subject.process.comm.to_lossy().into_owned(),
            sites: after.only(is_open),
            open: what
                .map(|(fd, held)| (fd, (held.class.clone(), held.target.clone())))
                .collect(),
            now: looked,
            inherited: inherited.len(),
            unknown: unknown.len(),
            curves: Some(Curves::of(&subject.timeline)),
            is_go: false,
        }
    }

    /// The class of most descriptors of a site, and their target if all of that class have the
    /// same.
    #[must_use]
    pub fn class_and_target(&self, site: &Site) -> Option<(&Class, Option<&Text>)> {
        let known = || site.open.iter().filter_map(|open| self.open.get(&open.fd));
        let mut counts: HashMap<&Class, usize> = HashMap::new();
        for (class, _) in known() {
            *counts.entry(class).or_default() += 1;
        }
        let most = counts
            .into_iter()
            .max_by_key(|(class, count)| (*count, std::cmp::Reverse(*class)));
        let (class, _) = most?;
        let mut targets = known().filter(|one| one.0 == *class).map(|one| &one.1);
        let first = targets.next();
        let is_one = targets.all(|target| Some(target) == first);
        Some((class, first.filter(|_| is_one)))
    }

    /// How many descriptors of each class a call path left open, in the order of classes; those of
    /// an unknown class come first.
    #[must_use]
    pub fn classes(&self, path: &CallPath) -> Vec<(Option<&Class>, u64)> {
        let mut counts: BTreeMap<Option<&Class>, u64> = BTreeMap::new();
        for fd in &path.fds {
            let class = self.open.get(fd).map(|(class, _)| class);
            *counts.entry(class).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// How many descriptors have a known opening line.
    #[must_use]
    pub fn attributed(&self) -> u64 {
        let known = self.sites.iter().filter(|site| site.culprit.is_some());
        known.map(|site| site.open.len() as u64).sum()
    }
}

/// Adds what the trace covers to a diagnosis from outside.
fn add_coverage(diagnosis: &mut Diagnosis, scope: &TraceScope, processes: &[ProcessSites]) {
    diagnosis.coverage.backend = scope.backend.to_owned();
    diagnosis.coverage.attributed_fds = processes.iter().map(ProcessSites::attributed).sum();
    diagnosis.coverage.lost_events = scope.lost_events;
}

fn is_go(subject: &WatchedProcess) -> bool {
    let path = subject.process.exe.as_ref().and_then(Text::as_str);
    path.is_some_and(|path| TracedProgram::is_go(Path::new(path)))
}

/// The descriptors of a finding: those of its group, only the new ones if there are any.
fn members(timeline: &Timeline, finding: &Finding) -> Vec<(u32, Option<f64>)> {
    let Some(class) = &finding.class else {
        return Vec::new();
    };
    let of_group = |wants_target: bool| -> Vec<(u32, Option<f64>)> {
        let groups = timeline.groups().filter(|(_, group)| {
            let is_target = !wants_target || group.key.target == finding.target;
            is_same_family(&group.key.family, class)
                && is_target
                && (wants_target || group.key.target.is_none())
        });
        let members = groups.flat_map(|(at, _)| timeline.members(at));
        let new = members.filter(|(_, held)| held.since.is_some());
        new.map(|(fd, held)| (fd, held.since)).collect()
    };
    let exact = of_group(true);
    if finding.target.is_some() && !exact.is_empty() {
        exact
    } else {
        of_group(false)
    }
}

fn is_same_family(family: &Class, class: &Class) -> bool {
    family == class || *family == class.family()
}

/// Adds the lines that start children and do not wait for them.
pub fn add_child_piles(diagnosis: &mut Diagnosis, piles: &[ChildPile]) {
    for pile in piles {
        // A child that was never seen has the command of the launched process.
        let comm = diagnosis.comm_of(pile.pid);
        let comm = comm.unwrap_or(&diagnosis.process.comm).clone();
        finding::add(&mut diagnosis.findings, pile, comm);
    }
    if !piles.is_empty() {
        diagnosis.verdict = Verdict::Leaking;
        let findings = &mut diagnosis.findings;
        findings.sort_by_key(|one| std::cmp::Reverse(one.severity));
    }
    for opinion in &mut diagnosis.processes {
        if piles.iter().any(|pile| pile.pid == opinion.pid) {
            let mine = diagnosis.findings.iter();
            let mine = mine.filter(|one| one.pid == opinion.pid);
            opinion.findings = mine.cloned().collect();
            opinion.verdict = Verdict::Leaking;
        }
    }
}
