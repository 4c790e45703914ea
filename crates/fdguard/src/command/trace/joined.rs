//! The verdict of the watch, joined with the origins that the tracer knows.

use std::collections::BTreeSet;
use std::time::Duration;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::rule::Settings;
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::Subject;
use fdguard_core::{Class, Gap};
use fdguard_trace::{Site, Symbols, Table, Tables, Traced};
use rustix::time::{ClockId, clock_gettime};

use super::Watched;

/// What a trace came to.
pub(super) struct Joined {
    /// The verdict; absent when the program ended before anybody could look.
    pub(super) diagnosis: Option<Diagnosis>,
    /// Everything that was open at the end, by site, of each process.
    pub(super) processes: Vec<Origins>,
    /// Why there may be less here than there was.
    pub(super) gaps: Vec<Gap>,
}

/// One process and its sites.
pub(super) struct Origins {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) sites: Vec<Site>,
    /// Now, by the clock of the sites.
    pub(super) now: u64,
    /// Descriptors that nobody saw being opened.
    pub(super) unknown: usize,
}

impl Joined {
    pub(super) fn of(
        watched: &Watched<'_>,
        traced: &Traced,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let mut symbols = Symbols::new();
        let now = monotonic();
        let mut joined = Self {
            diagnosis: None,
            processes: Vec::new(),
            gaps: gaps(traced),
        };
        let Some(live) = &watched.live else {
            joined.add_ended(&traced.tables()?, traced.pid(), now, &mut symbols);
            return Ok(joined);
        };
        let watch = live.watch();
        let mut diagnosis = watch.diagnosis(settings);
        let (mut attributed, mut unknown) = (0, 0);
        for subject in watch.subjects() {
            let pid = subject.process.pid;
            let Some(table) = watched.tables.of(pid) else {
                continue;
            };
            let origins = Origins::of(&watched.tables, table, subject, now, &mut symbols);
            attributed += origins.attributed();
            unknown += origins.unknown;
            if let Some(found) = &mut diagnosis {
                let mine = found.findings.iter_mut().filter(|one| one.pid == pid);
                for finding in mine {
                    let fds = members(&subject.timeline, finding);
                    let sites = Site::rank(&watched.tables, table, fds, &mut symbols);
                    finding.origin = sites.first().map(|site| site.origin(now));
                }
            }
            joined.processes.push(origins);
        }
        joined.note_unknown(unknown);
        if let Some(found) = &mut diagnosis {
            found.coverage.backend = "preload".to_owned();
            found.coverage.attributed_fds = attributed;
            found.coverage.lost_events = watched.tables.lost_events();
            found.gaps.extend(joined.gaps.iter().cloned());
        }
        joined.diagnosis = diagnosis;
        Ok(joined)
    }

    /// A program that nobody could look at from outside: what it left open by its own table.
    fn add_ended(&mut self, tables: &Tables, pid: u32, now: u64, symbols: &mut Symbols) {
        let Some(table) = tables.of(pid) else {
            return;
        };
        let fds = table.open.keys().copied();
        self.processes.push(Origins {
            pid,
            comm: String::new(),
            sites: Site::rank(tables, table, fds, symbols),
            now,
            unknown: 0,
        });
    }

    fn note_unknown(&mut self, unknown: usize) {
        if unknown > 0 {
            self.gaps.push(Gap::new(
                format!("the opening line of {unknown} descriptors"),
                "they were opened inside the C library or by a system call of its own",
                "their class and target are shown; attach tracing will see them",
            ));
        }
    }
}

impl Origins {
    fn of(
        tables: &Tables,
        table: &Table,
        subject: &Subject,
        now: u64,
        symbols: &mut Symbols,
    ) -> Self {
        let held: BTreeSet<u32> = subject.timeline.live().iter().map(|(fd, _)| fd).collect();
        let is_known = |fd: &&u32| table.open.contains_key(fd) || table.inherited.contains(fd);
        let unknown = held.iter().filter(|fd| !is_known(fd)).count();
        // What is only in the table was opened after the last look, or closed where nobody saw it.
        let open = table.open.keys().copied().filter(|fd| held.contains(fd));
        Self {
            pid: table.pid,
            comm: subject.process.comm.to_lossy().into_owned(),
            sites: Site::rank(tables, table, open, symbols),
            now,
            unknown,
        }
    }

    /// Descriptors whose opening line is known.
    fn attributed(&self) -> u64 {
        let known = self.sites.iter().filter(|site| site.culprit.is_some());
        known.map(|site| site.open.len() as u64).sum()
    }
}

fn gaps(traced: &Traced) -> Vec<Gap> {
    let blind = traced.blind().map(|blind| {
        let what = "the lines that opened descriptors: launch tracing cannot see into this program";
        Gap::new(what, blind.why(), blind.remedy())
    });
    blind.into_iter().collect()
}

/// The descriptors that a finding is about: those of its group, the new ones where there are some.
fn members(timeline: &Timeline, finding: &Finding) -> Vec<u32> {
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

fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    let passed = Duration::new(time.tv_sec.unsigned_abs(), nanos);
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}
