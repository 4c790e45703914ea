//! A program that is run to its end: what it and its children held then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use fdguard_core::judge;
use fdguard_core::origin::Origin;
use fdguard_core::proof::births::Closed;
use fdguard_core::proof::ended::{self, Left, Life, Place};
use fdguard_core::proof::{Judged, Remains, own};
use fdguard_core::watch::{Subject, Watch};
use fdguard_core::{Class, Pid, Text};
use fdguard_trace::{Farewell, Open, Site, Symbols, Table, Tables};

use super::name;
use crate::command::trace::joined::members;

/// What is known when everything has ended.
pub(super) struct Ending<'a> {
    /// The watch beside it, where there was time for one.
    pub(super) watch: Option<&'a Watch>,
    /// By the monotonic clock: what is older was seen by the last look.
    pub(super) looked: u64,
    /// What the processes wrote down.
    pub(super) tables: &'a Tables,
    /// The same as it was at the last look.
    pub(super) at_work: &'a Tables,
    /// The launched process, and whether a signal ended it.
    pub(super) root: (Pid, bool),
    /// Processes that did not end by themselves.
    pub(super) cut_off: &'a [Pid],
    /// The findings of the watch that tell what grew.
    pub(super) grown: &'a [fdguard_core::finding::Finding],
    /// Whether everything counts.
    pub(super) strict: bool,
    /// The command of a process that the watch did not see.
    pub(super) comm: &'a dyn Fn(Pid) -> Text,
}

/// Judges what every process left open, the worst first.
pub(super) fn remains(ending: &Ending<'_>) -> Vec<Remains> {
    let mut symbols = Symbols::new();
    let mut remains: Vec<Remains> = ending
        .tables
        .latest()
        .filter(|table| !ending.cut_off.contains(&table.pid))
        .flat_map(|table| {
            let (fds, farewell) = left_by(table);
            of_process(ending, (ending.tables, table), fds, farewell, &mut symbols)
        })
        .collect();
    remains.sort_by_key(|one| (one.judged, std::cmp::Reverse(one.count)));
    remains
}

/// Judges in the same way what was open at the last look and went with the end of the program: an interpreter closes its
/// objects when it ends, and what leaked until then leaked all the same.
pub(super) fn went(ending: &Ending<'_>, remains: &[Remains]) -> Vec<Remains> {
    let mut symbols = Symbols::new();
    let mut went = Vec::new();
    for table in ending.at_work.latest() {
        let end = ending.tables.of(table.pid);
        let is_recent = end.is_some_and(|end| is_near(table, end));
        let is_judged = is_recent && !ending.cut_off.contains(&table.pid);
        let open = table.open.iter().filter(|(fd, one)| {
            let still = end.and_then(|end| end.open.get(fd));
            let is_gone = still.is_none_or(|still| still.generation != one.generation);
            is_judged && one.forks == 0 && **fd > 2 && is_gone
        });
        let fds: Vec<u32> = open.map(|(fd, _)| *fd).collect();
        let tables = (ending.at_work, table);
        let judged = of_process(ending, tables, fds, Some(Farewell::default()), &mut symbols);
        went.extend(judged.into_iter().filter(|one| {
            let is_told = remains.iter().any(|other| is_same(one, other));
            !is_told && matches!(one.judged, Judged::Grew | Judged::Held | Judged::Rolling)
        }));
    }
    for one in &mut went {
        one.why
            .push_str("; they were closed when the program ended");
    }
    went
}

/// Whether both are of one line and kind.
fn is_same(one: &Remains, other: &Remains) -> bool {
    let culprit = |of: &Remains| of.origin.as_ref().and_then(|origin| origin.culprit.clone());
    let family = |of: &Remains| of.class.as_ref().map(Class::family);
    one.pid == other.pid && culprit(one) == culprit(other) && family(one) == family(other)
}

/// Whether so little of its life came after this table that it shows the end.
fn is_near(table: &Table, end: &Table) -> bool {
    const LAST: f64 = 0.15;
    let (lived, last) = (seconds(end.began, last_event(end)), last_event(table));
    table.began == end.began && seconds(last, last_event(end)) <= LAST * lived
}

/// The numbers that a process left open, and its last word.
fn left_by(table: &Table) -> (Vec<u32>, Option<Farewell>) {
    let farewell = table.farewell();
    // Who does not tell of all is believed by its table. The last look is no witness: on a busy machine it may be of long before.
    let whole = farewell.as_ref().filter(|farewell| farewell.is_whole);
    let is_open = |fd: u32| whole.is_none_or(|farewell| farewell.names.contains_key(&fd));
    let own = table.open.iter().filter(|(fd, one)| {
        // Of a parent's it is the parent who is asked, and stdio is nobody's to close.
        one.forks == 0 && **fd > 2 && is_open(**fd)
    });
    (own.map(|(fd, _)| *fd).collect(), farewell)
}

fn subject<'a>(ending: &Ending<'a>, pid: Pid) -> Option<&'a Subject> {
    let watch = ending.watch?;
    watch.subjects().find(|one| one.process.pid == pid)
}

fn of_process(
    ending: &Ending<'_>,
    (tables, table): (&Tables, &Table),
    fds: Vec<u32>,
    farewell: Option<Farewell>,
    symbols: &mut Symbols,
) -> Vec<Remains> {
    if fds.is_empty() {
        return Vec::new();
    }
    let subject = subject(ending, table.pid);
    let grown = grown(ending, subject);
    let last = last_event(table);
    let (root, was_signalled) = ending.root;
    let life = Life {
        pid: table.pid,
        comm: subject.map_or_else(|| (ending.comm)(table.pid), |one| one.process.comm.clone()),
        lived: seconds(table.began, last),
        has_history: subject.is_some_and(has_history),
        // The status of a child is its parent's to know; who ended by itself said farewell.
        was_cut_off: if table.pid == root {
            was_signalled
        } else {
            farewell.is_none()
        },
    };
    let names = Names {
        seen: subject.map(seen).unwrap_or_default(),
        looked: ending.looked,
        farewell: farewell.unwrap_or_default().names,
    };
    let mut sites = Site::rank(tables, table, fds, symbols);
    Site::add_spent(&mut sites, table, symbols);
    let places = sites.iter().map(|site| Place {
        origin: Origin {
            culprit: own::culprit(&site.stack),
            ..site.origin(last)
        },
        closed: closed(site),
        left: site
            .open
            .iter()
            .map(|open| names.left(open, table.pid, last, &grown))
            .collect(),
    });
    places
        .flat_map(|place| ended::judge(&life, &place, ending.strict))
        .collect()
}

/// What became of those of a place that are not open, in seconds since the process began.
fn closed(site: &Site) -> Closed {
    let account = &site.account;
    Closed {
        count: account.closed,
        born: seconds(0, account.closed_born),
        youngest: seconds(0, account.closed_youngest),
        lived: seconds(0, account.closed_lived),
        longest: seconds(0, account.closed_longest),
    }
}

/// The numbers that the findings about growth are about.
fn grown(ending: &Ending<'_>, subject: Option<&Subject>) -> HashSet<u32> {
    let Some(subject) = subject else {
        return HashSet::new();
    };
    let mine = ending
        .grown
        .iter()
        .filter(|one| one.pid == subject.process.pid);
    mine.flat_map(|finding| members(&subject.timeline, finding))
        .collect()
}

pub(super) fn has_history(subject: &Subject) -> bool {
    subject.timeline.is_listed() && subject.timeline.looks() >= judge::LEAST_LOOKS as u64
}

fn seen(subject: &Subject) -> HashMap<u32, (Class, Text)> {
    let live = subject.timeline.live().iter();
    live.map(|(fd, held)| (fd, (held.class.clone(), held.target.clone())))
        .collect()
}

/// When the process last opened or closed something: nobody knows when exactly it ended.
fn last_event(table: &Table) -> u64 {
    let births = table.open.values().map(|one| one.ns);
    births.chain(table.last).max().unwrap_or(table.began)
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

/// What each number was.
struct Names {
    seen: HashMap<u32, (Class, Text)>,
    looked: u64,
    farewell: BTreeMap<u32, Vec<u8>>,
}

impl Names {
    fn left(&self, open: &Open, pid: Pid, last: u64, grown: &HashSet<u32>) -> Left {
        let (fd, descriptor) = (open.fd, &open.descriptor);
        // What was opened since the last look may have the number of another one.
        let was_seen = descriptor.ns <= self.looked;
        let seen = self.seen.get(&fd).filter(|_| was_seen).cloned();
        let told = || self.farewell.get(&fd).map(|link| name::of_link(link));
        let (class, target) = match (seen, told()) {
            (Some((class, target)), _) => (Some(class), Some(target)),
            (None, Some((class, target))) => (class, Some(target)),
            (None, None) => (None, None),
        };
        Left {
            fd,
            class: class.or_else(|| name::of_call(descriptor.how.name())),
            target,
            call: descriptor.how.name().to_owned(),
            age: seconds(descriptor.ns, last),
            by_main: descriptor.tid == pid,
            grew: was_seen && grown.contains(&fd),
        }
    }
}
