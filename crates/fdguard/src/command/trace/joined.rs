//! The verdict of the watch, joined with the origins that the tracer knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_core::diagnosis::{Coverage, DIAGNOSIS_SCHEMA, Diagnosis, WatchEnd};
use fdguard_core::evidence::Curves;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::rule::Settings;
use fdguard_core::snapshot::Process;
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Gap, Text};
use fdguard_trace::{
    Became, Blind, Descriptor, Detail, GO, Program, Site, Symbols, Table, Tables, Traced,
    TracedProcess, monotonic,
};
use jiff::Timestamp;

use super::conclusions::Material;
use super::running::Watched;
use super::unread;
use crate::watching::LiveWatch;

const BACKEND: &str = "preload";

/// What a trace came to.
pub(in crate::command) struct Joined {
    /// The verdict.
    pub(in crate::command) diagnosis: Diagnosis,
    /// Everything that was open at the end, by site, of each process.
    pub(in crate::command) processes: Vec<Origins>,
    /// What the library saw of each process; none where another fdguard runs the trace.
    pub(in crate::command) traces: Vec<TracedProcess>,
}

/// One process and its sites.
pub(in crate::command) struct Origins {
    pub(in crate::command) pid: u32,
    pub(in crate::command) comm: String,
    pub(in crate::command) sites: Vec<Site>,
    /// What each number was at the last look.
    pub(in crate::command) held: HashMap<u32, (Class, Text)>,
    /// Now, by the clock of the sites.
    pub(in crate::command) now: u64,
    /// Descriptors that were open before its first instruction.
    pub(super) inherited: usize,
    /// Descriptors that nobody saw being opened.
    pub(in crate::command) unknown: usize,
    /// How many it held over time; absent where nobody looked.
    pub(super) curves: Option<Curves>,
    /// Whether it is a Go program, which opens most by system calls of its own.
    pub(super) is_go: bool,
}

/// Which process a trace is about.
pub(super) struct About {
    pub(super) pid: u32,
    /// Why the library does not see into it.
    pub(super) blind: Option<Blind>,
    /// What its processes are that have no table.
    pub(super) became: BTreeMap<u32, Became>,
    /// Those whose table was read once.
    pub(super) told: BTreeSet<u32>,
}

impl About {
    fn of(traced: &Traced) -> Self {
        Self {
            pid: traced.pid(),
            blind: traced.blind(),
            became: traced.became(),
            told: traced.told().clone(),
        }
    }
}

impl Joined {
    /// What a launched program came to: the looks from outside, overruled by what the library saw.
    pub(in crate::command) fn of(
        watched: &Watched<'_>,
        (traced, detail): (&Traced, Detail),
        command: &[std::ffi::OsString],
        settings: &Settings,
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
        let about = About::of(traced);
        diagnosis.coverage.backend = BACKEND.to_owned();
        diagnosis.coverage.attributed_fds = processes.iter().map(Origins::attributed).sum();
        diagnosis.coverage.lost_events = tables.lost_events();
        diagnosis.gaps.extend(gaps(&about, &tables, &processes));
        let traced_pids: BTreeSet<u32> = traces.iter().map(|one| one.pid).collect();
        let untold: Vec<&WatchedProcess> = watch
            .map(|watch| watch.subjects().collect::<Vec<_>>())
            .unwrap_or_default()
            .into_iter()
            .filter(|one| {
                let pid = one.process.pid;
                let is_told = traced_pids.contains(&pid) || about.told.contains(&pid);
                // A forked shell wrote a table, and then became a program that cannot.
                let became = about.became.get(&pid).map(|became| became.blind);
                let is_blind = became.is_some_and(|blind| blind != Blind::NotLoaded);
                pid != about.pid && (!is_told || is_blind) && one.timeline.looks() > 1
            })
            .collect();
        diagnosis.gaps.extend(untold_gaps(&about, &untold));
        diagnosis.gaps.extend(unread_gaps(&processes));
        diagnosis.gaps.extend(blind);
        if watch.is_none() && traces.iter().all(|one| one.pid != about.pid) {
            diagnosis.gaps.push(Gap::new(
                "whether it leaks",
                "the program ended before the first sample",
                "no action needed: the descriptors it left open are listed",
            ));
        }
        Ok(Self {
            diagnosis,
            processes,
            traces,
        })
    }

    /// The tables at the last look, and those of the end, with what a watch came to.
    pub(super) fn watched(
        (tables, last): (&Tables, &Tables),
        looked: u64,
        about: &About,
        watch: &Watch,
        mut diagnosis: Diagnosis,
    ) -> Self {
        let now = monotonic();
        let mut symbols = Symbols::new();
        let mut processes = Vec::new();
        let mut untold = Vec::new();
        for subject in watch.subjects() {
            let pid = subject.process.pid;
            let Some(end) = last.of(pid).or_else(|| tables.of(pid)) else {
                let is_untold = pid != about.pid && !about.told.contains(&pid);
                if is_untold && subject.timeline.looks() > 1 {
                    untold.push(subject);
                }
                continue;
            };
            let table = tables.of(pid).unwrap_or(end);
            let mine = diagnosis.findings.iter_mut().filter(|one| one.pid == pid);
            let mut grown = BTreeSet::new();
            for finding in mine {
                let fds = members(&subject.timeline, finding);
                let mut sites = Site::rank(tables, table, fds.iter().copied(), &mut symbols);
                finding.origin = sites.first_mut().map(|site| {
                    site.tell_apart(tables, table, &mut symbols);
                    site.origin(now)
                });
                if finding.severity >= Severity::Warning {
                    tell_path(finding);
                    grown.extend(fds);
                }
            }
            let end = &at_exit(end, table, &grown);
            let seen = (table, end);
            let mut origins = Origins::of(last, seen, subject, looked, &mut symbols);
            origins.now = now;
            origins.is_go = is_go(subject);
            for site in &mut origins.sites {
                site.tell_apart(last, end, &mut symbols);
            }
            processes.push(origins);
        }
        diagnosis.coverage.backend = BACKEND.to_owned();
        diagnosis.coverage.attributed_fds = processes.iter().map(Origins::attributed).sum();
        diagnosis.coverage.lost_events = last.lost_events();
        diagnosis.gaps.extend(gaps(about, last, &processes));
        diagnosis.gaps.extend(untold_gaps(about, &untold));
        diagnosis.gaps.extend(unread_gaps(&processes));
        Self {
            diagnosis,
            processes,
            traces: Vec::new(),
        }
    }
}

/// The diagnosis of a program that ended before the first look from outside.
fn unwatched(began: Timestamp, pid: u32, command: &[std::ffi::OsString]) -> Diagnosis {
    Diagnosis {
        schema: DIAGNOSIS_SCHEMA.to_owned(),
        started_at: began,
        ended_at: Timestamp::now(),
        process: process(pid, command),
        samples: 0,
        baseline: None,
        last: None,
        verdict: Verdict::Unknown,
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
            backend: BACKEND.to_owned(),
            attributed_fds: 0,
            live_fds: None,
            lost_events: 0,
        },
        gaps: Vec::new(),
    }
}

/// A process that was on its way out when it was first looked at has no command line any more.
fn name_the_command(process: &mut Process, pid: u32, command: &[std::ffi::OsString]) {
    if process.pid == pid && process.cmdline.is_empty() {
        process.cmdline = words(command);
    }
}

fn words(command: &[std::ffi::OsString]) -> Vec<Text> {
    let words = command.iter();
    words.map(|word| Text::from(word.as_bytes())).collect()
}

/// All that is known of a process that nobody saw.
fn process(pid: u32, command: &[std::ffi::OsString]) -> Process {
    let text = |word: &OsStr| Text::from(word.as_bytes());
    let program = command.first().map_or(OsStr::new(""), |first| first);
    let name = Path::new(program).file_name().unwrap_or(program);
    Process {
        pid,
        start_time: None,
        start_ticks: None,
        comm: text(name),
        exe: None,
        cmdline: words(command),
        uid: None,
        ppid: None,
        pgid: None,
        threads: None,
        children: None,
        zombies: None,
        container: None,
        ns_pid: None,
        cohorts: Vec::new(),
    }
}

impl Origins {
    /// `seen` is the table of the last look and the one of the end.
    pub(super) fn of(
        tables: &Tables,
        (seen, table): (&Table, &Table),
        subject: &WatchedProcess,
        looked: u64,
        symbols: &mut Symbols,
    ) -> Self {
        let live = subject.timeline.live();
        let held: BTreeSet<u32> = live.iter().map(|(fd, _)| fd).collect();
        let what = live
            .iter()
            .map(|(fd, held)| (fd, (held.class.clone(), held.target.clone())));
        // What was closed since the look had its line.
        let is_closed = |fd: &u32| table.ended.contains(fd) || seen.ended.contains(fd);
        let is_traced =
            |fd: &u32| table.open.contains_key(fd) || seen.open.contains_key(fd) || is_closed(fd);
        let untraced = held.iter().copied().filter(|fd| !is_traced(fd));
        let (inherited, unknown): (Vec<u32>, Vec<u32>) =
            untraced.partition(|fd| table.inherited.contains(fd));
        // What the last look did not see was opened since, or was closed where the library did not see it.
        let is_open = |(fd, one): &(&u32, &Descriptor)| held.contains(fd) || one.ns > looked;
        let open = table.open.iter().filter(is_open).map(|(fd, _)| *fd);
        Self {
            pid: table.pid,
            comm: subject.process.comm.to_lossy().into_owned(),
            sites: Site::rank(tables, table, open, symbols),
            held: what.collect(),
            now: looked,
            inherited: inherited.len(),
            unknown: unknown.len(),
            curves: Some(Curves::of(&subject.timeline)),
            is_go: false,
        }
    }

    /// Descriptors whose opening line is known.
    fn attributed(&self) -> u64 {
        let known = self.sites.iter().filter(|site| site.culprit.is_some());
        known.map(|site| site.open.len() as u64).sum()
    }
}

/// Where one stack leaves some open and closes others, the line alone is not the answer: which way through it is.
fn tell_path(finding: &mut Finding) {
    if let Some(origin) = finding.origin.as_ref().filter(|origin| origin.partly) {
        finding.why.push_str(&format!(
            "; {} of the {} that came from there were closed: they stay open on some path only, as after a failed start, an exception or a timeout",
            origin.closed, origin.opened
        ));
    }
}

/// The table at the end. What grew until the last look and went with the end of a program (an interpreter closes its
/// objects when it ends) is what the report is about: it is shown as it was.
fn at_exit(end: &Table, looked: &Table, grown: &BTreeSet<u32>) -> Table {
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
    path.is_some_and(|path| Program::is_go(Path::new(path)))
}

/// What the tracer did not see.
fn gaps(about: &About, tables: &Tables, processes: &[Origins]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let is_untold = tables.of(about.pid).is_none();
    let became = about.became.get(&about.pid).map(|became| became.blind);
    if let Some(blind) = about.blind.or(became.filter(|_| is_untold)) {
        let what = "the lines that opened descriptors: fdguard cannot trace this program";
        gaps.push(Gap::new(what, blind.why(), blind.remedy()));
    } else if is_untold {
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

/// Languages whose lines are not read.
fn unread_gaps(processes: &[Origins]) -> Vec<Gap> {
    let names = processes.iter().map(|one| one.comm.as_str());
    unread::gaps(names, processes.iter().flat_map(|one| &one.sites))
}

/// Children that the library does not see into, by the reason.
fn untold_gaps(about: &About, children: &[&WatchedProcess]) -> Vec<Gap> {
    const UNSURE: &str = "these child processes did not load the injected library: they are static, privileged, or run in another environment";
    let mut names: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for child in children {
        let (why, name) = match about.became.get(&child.process.pid) {
            Some(became) => (became.blind.why(), became.comm.clone()),
            None => {
                let why = if is_go(child) { GO } else { UNSURE };
                (why, child.process.comm.to_lossy().into_owned())
            }
        };
        names.entry(why).or_default().insert(name);
    }
    // A short one may have come and gone between two looks.
    let blind = about.became.iter().filter(|(pid, became)| {
        **pid != about.pid && became.blind != Blind::NotLoaded && !became.comm.is_empty()
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

/// The descriptors that a finding is about: those of its group, the new ones where there are some.
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
