//! Builds a trace report: the verdict of the watch together with the sites that the tracer knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::evidence::Curves;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::rule::RuleSettings;
use fdguard_core::snapshot::Process;
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Gap, Text};
use fdguard_diagnose::watching::LiveWatch;
use fdguard_trace::{
    BlindReason, Descriptor, GO, ProcessTable, ProcessTables, Site, SiteDetail, Symbols,
    TracedCommand, TracedProgram, UntracedProgram, monotonic,
};
use jiff::Timestamp;

use super::conclusions::Material;
use super::run_loop::WatchOutcome;
use super::unread_languages;
use crate::report::trace::{ProcessSites, TraceReport};

const BACKEND: &str = "preload";

/// The process that a trace is about.
pub(super) struct TraceScope {
    pub(super) pid: u32,
    /// Why the library cannot trace it.
    pub(super) blind: Option<BlindReason>,
    /// The programs of its processes without a table.
    pub(super) became: BTreeMap<u32, UntracedProgram>,
    /// Processes whose table was read once.
    pub(super) with_table: BTreeSet<u32>,
}

impl TraceScope {
    fn from_command(traced: &TracedCommand) -> Self {
        Self {
            pid: traced.pid(),
            blind: traced.blind(),
            became: traced.became(),
            with_table: traced.pids_with_table().clone(),
        }
    }
}

impl TraceReport {
    /// The report of a launched program: the samples from outside, overruled by what the library
    /// saw.
    pub(in crate::command) fn of_launched(
        watched: &WatchOutcome<'_>,
        (traced, detail): (&TracedCommand, SiteDetail),
        command: &[std::ffi::OsString],
        settings: &RuleSettings,
    ) -> anyhow::Result<Self> {
        let watch = watched.live.as_ref().map(LiveWatch::watch);
        let looked = watch.and_then(|watch| watch.diagnosis(settings));
        let mut diagnosis =
            looked.unwrap_or_else(|| unwatched(watched.began, traced.pid(), command));
        name_the_command(&mut diagnosis.process, traced.pid(), command);
        let mut symbols = Symbols::new();
        let traces = traced.processes(&mut symbols, (watched.status.is_some(), detail));
        let material = Material {
            watch,
            processes: &traces,
            names: &watched.names,
            settings,
        };
        let processes = material.conclude(&mut diagnosis);
        let (hazards, blind) = traced.hazards(&mut symbols, true);
        diagnosis.hazards = hazards;
        let tables = traced.tables()?;
        let scope = TraceScope::from_command(traced);
        diagnosis.coverage.backend = BACKEND.to_owned();
        diagnosis.coverage.attributed_fds = processes.iter().map(ProcessSites::attributed).sum();
        diagnosis.coverage.lost_events = tables.lost_events();
        diagnosis.gaps.extend(gaps(&scope, &tables, &processes));
        let traced_pids: BTreeSet<u32> = traces.iter().map(|one| one.pid).collect();
        let untraced: Vec<&WatchedProcess> = watch
            .map(|watch| watch.subjects().collect::<Vec<_>>())
            .unwrap_or_default()
            .into_iter()
            .filter(|one| {
                let pid = one.process.pid;
                let has_table = traced_pids.contains(&pid) || scope.with_table.contains(&pid);
                // A forked shell wrote a table, and then executed a program that cannot.
                let became = scope.became.get(&pid).map(|became| became.blind);
                let is_blind = became.is_some_and(|blind| blind != BlindReason::NotLoaded);
                pid != scope.pid && (!has_table || is_blind) && one.timeline.looks() > 1
            })
            .collect();
        diagnosis.gaps.extend(untraced_gaps(&scope, &untraced));
        diagnosis.gaps.extend(unread_gaps(&processes));
        diagnosis.gaps.extend(blind);
        if watch.is_none() && traces.iter().all(|one| one.pid != scope.pid) {
            diagnosis.gaps.push(Gap::new(
                "whether it leaks",
                "the program ended before the first sample",
                "no action needed: the descriptors it left open are listed",
            ));
        }
        Ok(Self {
            diagnosis,
            processes,
            traced: traces,
        })
    }

    /// The report of a program that another fdguard launched: the tables at the last sample and at
    /// the end, with the diagnosis of a watch.
    pub(super) fn of_observed(
        (tables, last): (&ProcessTables, &ProcessTables),
        looked: u64,
        scope: &TraceScope,
        watch: &Watch,
        mut diagnosis: Diagnosis,
    ) -> Self {
        let now = monotonic();
        let mut symbols = Symbols::new();
        let mut processes = Vec::new();
        let mut untraced = Vec::new();
        for subject in watch.subjects() {
            let pid = subject.process.pid;
            let Some(end) = last.table_of(pid).or_else(|| tables.table_of(pid)) else {
                let lacks_table = pid != scope.pid && !scope.with_table.contains(&pid);
                if lacks_table && subject.timeline.looks() > 1 {
                    untraced.push(subject);
                }
                continue;
            };
            let table = tables.table_of(pid).unwrap_or(end);
            let mine = diagnosis.findings.iter_mut().filter(|one| one.pid == pid);
            let mut grown = BTreeSet::new();
            for finding in mine {
                let fds = members(&subject.timeline, finding);
                let mut sites = Site::rank(tables, table, fds.iter().copied(), &mut symbols);
                finding.origin = sites.first_mut().map(|site| {
                    site.find_leaking_caller(tables, table, &mut symbols);
                    site.origin(now)
                });
                if finding.severity >= Severity::Warning {
                    tell_path(finding);
                    grown.extend(fds);
                }
            }
            let end = &at_exit(end, table, &grown);
            let tables_of_process = (table, end);
            let mut sites =
                ProcessSites::from_tables(last, tables_of_process, subject, looked, &mut symbols);
            sites.now = now;
            sites.is_go = is_go(subject);
            for site in &mut sites.sites {
                site.find_leaking_caller(last, end, &mut symbols);
            }
            processes.push(sites);
        }
        diagnosis.coverage.backend = BACKEND.to_owned();
        diagnosis.coverage.attributed_fds = processes.iter().map(ProcessSites::attributed).sum();
        diagnosis.coverage.lost_events = last.lost_events();
        diagnosis.gaps.extend(gaps(scope, last, &processes));
        diagnosis.gaps.extend(untraced_gaps(scope, &untraced));
        diagnosis.gaps.extend(unread_gaps(&processes));
        Self {
            diagnosis,
            processes,
            traced: Vec::new(),
        }
    }
}

/// The diagnosis of a program that ended before the first look from outside.
fn unwatched(began: Timestamp, pid: u32, command: &[std::ffi::OsString]) -> Diagnosis {
    let times = (began, Timestamp::now());
    Diagnosis::new(
        process(pid, command),
        times,
        WatchEnd::ProcessEnded,
        BACKEND,
    )
}

/// A process that was already exiting at the first look has no command line.
fn name_the_command(process: &mut Process, pid: u32, command: &[std::ffi::OsString]) {
    if process.pid == pid && process.cmdline.is_empty() {
        process.cmdline = words(command);
    }
}

fn words(command: &[std::ffi::OsString]) -> Vec<Text> {
    let words = command.iter();
    words.map(|word| Text::from(word.as_bytes())).collect()
}

/// All that is known of a process that was never seen.
fn process(pid: u32, command: &[std::ffi::OsString]) -> Process {
    let text = |word: &OsStr| Text::from(word.as_bytes());
    let program = command.first().map_or(OsStr::new(""), |first| first);
    let name = Path::new(program).file_name().unwrap_or(program);
    Process {
        pid,
        comm: text(name),
        cmdline: words(command),
        ..Process::default()
    }
}

impl ProcessSites {
    /// The sites of a process, from its table at the last sample and its table at the end.
    pub(super) fn from_tables(
        tables: &ProcessTables,
        (sampled, table): (&ProcessTable, &ProcessTable),
        subject: &WatchedProcess,
        looked: u64,
        symbols: &mut Symbols,
    ) -> Self {
        let live = subject.timeline.live();
        let held: BTreeSet<u32> = live.iter().map(|(fd, _)| fd).collect();
        let what = live
            .iter()
            .map(|(fd, held)| (fd, (held.class.clone(), held.target.clone())));
        // Descriptors closed since the sample had a known line.
        let is_closed = |fd: &u32| table.closed.contains(fd) || sampled.closed.contains(fd);
        let is_open_somewhere =
            |fd: &u32| table.open.contains_key(fd) || sampled.open.contains_key(fd);
        let is_traced = |fd: &u32| is_open_somewhere(fd) || is_closed(fd);
        let untraced = held.iter().copied().filter(|fd| !is_traced(fd));
        let (inherited, unknown): (Vec<u32>, Vec<u32>) =
            untraced.partition(|fd| table.inherited.contains(fd));
        // A descriptor that the last look did not see was opened since, or was closed without the
        // library noticing.
        let is_open = |(fd, one): &(&u32, &Descriptor)| held.contains(fd) || one.ns > looked;
        let open = table.open.iter().filter(is_open).map(|(fd, _)| *fd);
        Self {
            pid: table.pid,
            comm: subject.process.comm.to_lossy().into_owned(),
            sites: Site::rank(tables, table, open, symbols),
            open: what.collect(),
            now: looked,
            inherited: inherited.len(),
            unknown: unknown.len(),
            curves: Some(Curves::of(&subject.timeline)),
            is_go: false,
        }
    }
}

/// If one stack leaves some open and closes others, the line alone does not explain it: the path
/// through the code does.
fn tell_path(finding: &mut Finding) {
    if let Some(origin) = finding.origin.as_ref().filter(|origin| origin.partly) {
        let why = finding.why.trim_end_matches('.');
        finding.why = format!(
            "{why}; {} of the {} opened there were closed: they stay open only on some paths, such as after a failed start, an exception or a timeout",
            origin.closed, origin.opened
        );
    }
}

/// The table at the end. Descriptors that grew until the last look and disappeared with the program
/// (an interpreter closes its objects at exit) are the subject of the report: they are shown as
/// they were.
fn at_exit(end: &ProcessTable, looked: &ProcessTable, grown: &BTreeSet<u32>) -> ProcessTable {
    let mut table = end.clone();
    for fd in grown {
        if let Some(descriptor) = looked.open.get(fd) {
            table.open.entry(*fd).or_insert(*descriptor);
        }
    }
    table
}

pub(super) fn is_go(subject: &WatchedProcess) -> bool {
    let path = subject.process.exe.as_ref().and_then(Text::as_str);
    path.is_some_and(|path| TracedProgram::is_go(Path::new(path)))
}

/// What the tracer did not see.
fn gaps(scope: &TraceScope, tables: &ProcessTables, processes: &[ProcessSites]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let lacks_table = tables.table_of(scope.pid).is_none();
    let became = scope.became.get(&scope.pid).map(|became| became.blind);
    if let Some(blind) = scope.blind.or(became.filter(|_| lacks_table)) {
        let what = "the lines that opened descriptors: fdguard cannot trace this program";
        gaps.push(Gap::new(what, blind.why(), blind.remedy()));
    } else if lacks_table {
        gaps.push(Gap::new(
            "the lines that opened descriptors",
            "the program did not load the injected library, or the library could not write its table",
            "raise its limits (ulimit -f, -v) and keep LD_PRELOAD in its environment",
        ));
    }
    let unseen = |is_go: bool| {
        let those = processes.iter().filter(|one| one.is_go == is_go);
        let unknown: usize = those.map(|one| one.unknown).sum();
        (unknown > 0).then(|| format!("the opening line of {unknown} descriptors"))
    };
    if let Some(what) = unseen(true) {
        let remedy = "run fdguard watch PID for class and rate; descriptors opened by its C code do have lines";
        gaps.push(Gap::new(what, GO, remedy));
    }
    if let Some(what) = unseen(false) {
        gaps.push(Gap::new(
            what,
            "they were opened inside the C library, or by a direct system call of the program",
            "no action needed: their class and target are known",
        ));
    }
    let lost: u64 = tables.iter().map(|table| table.lost_stacks).sum();
    if lost > 0 {
        gaps.push(Gap::new(
            format!("the stacks of {lost} opened descriptors"),
            "the program has more distinct stacks than the table can hold",
            "no action needed: they are counted, without a line",
        ));
    }
    gaps
}

/// Gaps for languages whose lines are not read.
fn unread_gaps(processes: &[ProcessSites]) -> Vec<Gap> {
    let names = processes.iter().map(|one| one.comm.as_str());
    unread_languages::gaps(names, processes.iter().flat_map(|one| &one.sites))
}

/// Gaps for untraced children, by reason.
fn untraced_gaps(scope: &TraceScope, children: &[&WatchedProcess]) -> Vec<Gap> {
    const UNSURE: &str = "these child processes did not load the injected library: they are static, privileged, or run in another environment";
    let mut names: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for child in children {
        let (why, name) = match scope.became.get(&child.process.pid) {
            Some(became) => (became.blind.why(), became.comm.clone()),
            None => {
                let why = if is_go(child) { GO } else { UNSURE };
                (why, child.process.comm.to_lossy().into_owned())
            }
        };
        names.entry(why).or_default().insert(name);
    }
    // A short-lived process may have come and gone between two looks.
    let blind = scope.became.iter().filter(|(pid, became)| {
        **pid != scope.pid && became.blind != BlindReason::NotLoaded && !became.comm.is_empty()
    });
    for (_, became) in blind {
        let known = names.entry(became.blind.why()).or_default();
        known.insert(became.comm.clone());
    }
    let gap = |(why, names): (&str, BTreeSet<String>)| {
        let list = names.into_iter().collect::<Vec<_>>().join(", ");
        Gap::new(
            format!("the lines that opened descriptors of {list}"),
            why,
            "run fdguard watch PID for class, target and rate (without the line)",
        )
    };
    names.into_iter().map(gap).collect()
}

/// The descriptors of a finding: those of its group, only the new ones if there are any.
pub(in crate::command) fn members(timeline: &Timeline, finding: &Finding) -> Vec<u32> {
    let Some(class) = &finding.class else {
        return Vec::new();
    };
    let of_group = |wants_target: bool| -> Vec<u32> {
        let groups = timeline.groups().filter(|(_, group)| {
            let is_target = !wants_target || group.key.target == finding.target;
            is_same_family(&group.key.family, class)
                && is_target
                && (wants_target || group.key.target.is_none())
        });
        let members = groups.flat_map(|(at, _)| timeline.members(at));
        let new = members.filter(|(_, held)| held.since.is_some());
        new.map(|(fd, _)| fd).collect()
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

#[cfg(test)]
mod tests {
    use super::{name_the_command, process};

    #[test]
    fn a_command_line_that_could_not_be_read_is_the_one_that_was_started() {
        let command = ["sh", "start.sh"].map(std::ffi::OsString::from);
        let whole = process(7, &command);
        let mut blank = process(7, &[]);
        name_the_command(&mut blank, 8, &command);
        assert!(blank.cmdline.is_empty(), "another process");
        name_the_command(&mut blank, 7, &command);
        assert_eq!(blank.cmdline, whole.cmdline);
        let mut renamed = process(7, &["nginx: master".into()]);
        name_the_command(&mut renamed, 7, &command);
        assert_eq!(renamed.cmdline.len(), 1);
    }
}
