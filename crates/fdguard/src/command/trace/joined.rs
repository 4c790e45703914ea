//! The verdict of the watch, joined with the origins that the tracer knows.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use fdguard_core::diagnosis::{Coverage, DIAGNOSIS_SCHEMA, Diagnosis, Ended};
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::rule::Settings;
use fdguard_core::snapshot::Process;
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::{Subject, Watch};
use fdguard_core::{Class, Gap, Text};
use fdguard_trace::{Descriptor, Site, Symbols, Table, Tables, Traced};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::Watched;
use crate::watching::Live;

const BACKEND: &str = "preload";

/// What a trace came to.
pub(in crate::command) struct Joined {
    /// The verdict.
    pub(in crate::command) diagnosis: Diagnosis,
    /// Everything that was open at the end, by site, of each process.
    pub(in crate::command) processes: Vec<Origins>,
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
    /// Descriptors that nobody saw being opened.
    pub(in crate::command) unknown: usize,
}

impl Joined {
    pub(in crate::command) fn of(
        watched: &Watched<'_>,
        traced: &Traced,
        command: &[std::ffi::OsString],
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let seen = watched.live.as_ref().map(Live::watch);
        match seen.and_then(|watch| Some((watch, watch.diagnosis(settings)?))) {
            Some((watch, diagnosis)) => {
                let last = traced.tables()?;
                Ok(Self::watched(watched, &last, traced, watch, diagnosis))
            }
            None => Self::ended_early(watched.began, traced, command),
        }
    }

    fn watched(
        watched: &Watched<'_>,
        last: &Tables,
        traced: &Traced,
        watch: &Watch,
        mut diagnosis: Diagnosis,
    ) -> Self {
        let (tables, now) = (&watched.tables, monotonic());
        let mut symbols = Symbols::new();
        let mut processes = Vec::new();
        let mut untold = Vec::new();
        for subject in watch.subjects() {
            let pid = subject.process.pid;
            let Some(end) = last.of(pid).or_else(|| tables.of(pid)) else {
                let is_root = pid == traced.pid();
                if !is_root && !traced.has_told(pid) && subject.timeline.looks() > 1 {
                    untold.push(subject.process.comm.to_lossy().into_owned());
                }
                continue;
            };
            let table = tables.of(pid).unwrap_or(end);
            let mine = diagnosis.findings.iter_mut().filter(|one| one.pid == pid);
            for finding in mine {
                let fds = members(&subject.timeline, finding);
                let sites = Site::rank(tables, table, fds, &mut symbols);
                finding.origin = sites.first().map(|site| site.origin(now));
            }
            let mut origins = Origins::of(last, end, subject, watched.looked, &mut symbols);
            origins.now = now;
            processes.push(origins);
        }
        let unknown = processes.iter().map(|one: &Origins| one.unknown).sum();
        diagnosis.coverage.backend = BACKEND.to_owned();
        diagnosis.coverage.attributed_fds = processes.iter().map(Origins::attributed).sum();
        diagnosis.coverage.lost_events = last.lost_events();
        diagnosis.gaps.extend(gaps(traced, last, unknown));
        diagnosis.gaps.extend(untold_gap(&mut untold));
        Self {
            diagnosis,
            processes,
        }
    }

    /// A program that ended before the first look: what it left open is known by its own table alone.
    fn ended_early(
        began: Timestamp,
        traced: &Traced,
        command: &[std::ffi::OsString],
    ) -> anyhow::Result<Self> {
        let (tables, now) = (traced.tables()?, monotonic());
        let process = process(traced.pid(), command);
        let table = tables.of(traced.pid());
        let origins = table.map(|table| Origins {
            pid: traced.pid(),
            comm: process.comm.to_lossy().into_owned(),
            sites: Site::rank(
                &tables,
                table,
                table.open.keys().copied(),
                &mut Symbols::new(),
            ),
            held: HashMap::new(),
            now,
            unknown: 0,
        });
        let mut gaps = gaps(traced, &tables, 0);
        gaps.push(Gap::new(
            "whether it leaks",
            "it ended before the first look",
            "nothing: what it left open at its end is shown",
        ));
        let diagnosis = Diagnosis {
            schema: DIAGNOSIS_SCHEMA.to_owned(),
            started_at: began,
            ended_at: Timestamp::now(),
            process,
            samples: 0,
            baseline: None,
            last: None,
            verdict: Verdict::Unknown,
            ended: Ended::ProcessEnded,
            findings: Vec::new(),
            hazards: Vec::new(),
            processes: Vec::new(),
            predecessors: Vec::new(),
            coverage: Coverage {
                backend: BACKEND.to_owned(),
                attributed_fds: origins.as_ref().map_or(0, Origins::attributed),
                live_fds: None,
                lost_events: tables.lost_events(),
            },
            gaps,
        };
        Ok(Self {
            diagnosis,
            processes: origins.into_iter().collect(),
        })
    }
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
        cmdline: command.iter().map(|word| text(word)).collect(),
        uid: None,
        ppid: None,
        threads: None,
        children: None,
        zombies: None,
        container: None,
        ns_pid: None,
        cohorts: Vec::new(),
    }
}

impl Origins {
    fn of(
        tables: &Tables,
        table: &Table,
        subject: &Subject,
        looked: u64,
        symbols: &mut Symbols,
    ) -> Self {
        let live = subject.timeline.live();
        let held: BTreeSet<u32> = live.iter().map(|(fd, _)| fd).collect();
        let what = live
            .iter()
            .map(|(fd, held)| (fd, (held.class.clone(), held.target.clone())));
        let is_known = |fd: &&u32| table.open.contains_key(fd) || table.inherited.contains(fd);
        let unknown = held.iter().filter(|fd| !is_known(fd)).count();
        // What the last look did not see was opened since, or was closed where the library did not see it.
        let is_open = |(fd, one): &(&u32, &Descriptor)| held.contains(fd) || one.ns > looked;
        let open = table.open.iter().filter(is_open).map(|(fd, _)| *fd);
        Self {
            pid: table.pid,
            comm: subject.process.comm.to_lossy().into_owned(),
            sites: Site::rank(tables, table, open, symbols),
            held: what.collect(),
            now: looked,
            unknown,
        }
    }

    /// Descriptors whose opening line is known.
    fn attributed(&self) -> u64 {
        let known = self.sites.iter().filter(|site| site.culprit.is_some());
        known.map(|site| site.open.len() as u64).sum()
    }
}

/// What the tracer did not see.
fn gaps(traced: &Traced, tables: &Tables, unknown: usize) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let is_untold = tables.of(traced.pid()).is_none();
    if let Some(blind) = traced.blind().or(traced.became().filter(|_| is_untold)) {
        let what = "the lines that opened descriptors: launch tracing cannot see into this program";
        gaps.push(Gap::new(what, blind.why(), blind.remedy()));
    } else if is_untold {
        gaps.push(Gap::new(
            "the lines that opened descriptors",
            "the program did not load the injected library, or could not write its table",
            "see that its limits (ulimit -f, -v) and its environment leave room for it",
        ));
    }
    if unknown > 0 {
        gaps.push(Gap::new(
            format!("the opening line of {unknown} descriptors"),
            "they were opened inside the C library or by a system call of its own",
            "nothing: their class and target are known",
        ));
    }
    let lost: u64 = tables.iter().map(|table| table.lost_stacks).sum();
    if lost > 0 {
        gaps.push(Gap::new(
            format!("the stacks of {lost} openings"),
            "more different stacks than the table has places for",
            "nothing: they are counted, without a line",
        ));
    }
    gaps
}

/// Children that the library does not see into.
fn untold_gap(names: &mut Vec<String>) -> Option<Gap> {
    names.sort_unstable();
    names.dedup();
    let list = names.join(", ");
    (!names.is_empty()).then(|| {
        Gap::new(
            format!("the lines that opened descriptors of {list}"),
            "these children are static, run with other rights or in another environment, and did not load the injected library",
            "fdguard watch PID tells class, target and rate, not the line",
        )
    })
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

/// Now, by the clock that the injected library uses, in nanoseconds.
pub(in crate::command) fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    let passed = Duration::new(time.tv_sec.unsigned_abs(), nanos);
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}
