//! An aggregated trace and its outputs: text, folded stacks, a flame graph, a profile. The web page
//! is [`super::html::trace`].

pub mod answer;
pub mod folded;
pub mod hazard;
pub mod name;
pub mod pprof;
mod protobuf;
pub mod svg;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;

use std::collections::{BTreeMap, HashMap};

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::evidence::Curves;
use fdguard_core::{Class, Fd, Pid, Text};
use fdguard_trace::{CallPath, Site, TracedProcess};

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
