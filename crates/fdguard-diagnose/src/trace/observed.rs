//! The report of a program that another fdguard launched: its tables have the lines of what is
//! open, and the watch beside them gives the verdict.

use std::collections::BTreeSet;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Fd, Pid};
use fdguard_trace::{OpenSites, Site, TraceState};

use super::{ProcessSites, TraceReport, add_coverage, gaps, is_go, members};

/// The report about the process `root`, from the states before and after the last look of a watch,
/// and the diagnosis of that watch.
#[must_use]
pub fn observed(
    (before, after): (&TraceState, &TraceState),
    root: Pid,
    watch: &Watch,
    mut diagnosis: Diagnosis,
) -> TraceReport {
    let now = after.now.0;
    let mut processes = Vec::new();
    let mut untraced: Vec<&WatchedProcess> = Vec::new();
    for subject in watch.subjects() {
        let pid = subject.process.pid;
        let Some(end) = after.sites_of(pid).or_else(|| before.sites_of(pid)) else {
            if pid != root && subject.timeline.looks() > 1 {
                untraced.push(subject);
            }
            continue;
        };
        let looked = before.sites_of(pid).unwrap_or(end);
        let mine = diagnosis.findings.iter_mut().filter(|one| one.pid == pid);
        let mut grown = BTreeSet::new();
        for finding in mine {
            let fds = members(&subject.timeline, finding).into_iter();
            let fds: BTreeSet<Fd> = fds.map(|(fd, _)| fd).collect();
            let sites = looked.only(|open| fds.contains(&open.fd));
            finding.origin = sites.first().map(|site| site.origin(now));
            if finding.severity >= Severity::Warning {
                explain_partial_closes(finding);
                grown.extend(fds);
            }
        }
        let end = at_exit(end, looked, &grown);
        let process = ProcessSites::from_open((looked, &end), subject, before.read_at);
        processes.push(ProcessSites {
            now,
            is_go: is_go(subject),
            ..process
        });
    }
    add_coverage(&mut diagnosis, &after.scope, &processes);
    let gaps = gaps::gaps(&after.scope, root, &processes, &untraced);
    diagnosis.gaps.extend(gaps);
    TraceReport {
        diagnosis,
        processes,
        traced: Vec::new(),
    }
}

/// If one stack leaves some open and closes others, the line alone does not explain it: the path
/// through the code does.
fn explain_partial_closes(finding: &mut Finding) {
    if let Some(origin) = finding.origin.as_ref().filter(|origin| origin.partly) {
        let why = finding.why.trim_end_matches('.');
        finding.why = format!(
            "{why}; {} of the {} opened there were closed: they stay open only on some paths, such as after a failed start, an exception or a timeout",
            origin.closed, origin.opened
        );
    }
}

/// What was open at the end. Descriptors that grew until the last look and disappeared with the
/// program (an interpreter closes its objects at exit) are the subject of the report: they are
/// shown as they were.
fn at_exit(end: &OpenSites, looked: &OpenSites, grown: &BTreeSet<Fd>) -> OpenSites {
    let open = end.open();
    let mut whole = end.clone();
    for site in looked.only(|one| grown.contains(&one.fd) && !open.contains(&one.fd)) {
        let is_same = |one: &&mut Site| one.culprit.is_some() && one.culprit == site.culprit;
        match whole.sites.iter_mut().find(is_same) {
            Some(known) => known.absorb(site),
            None => whole.sites.push(site),
        }
    }
    whole
}
