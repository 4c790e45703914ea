//! The passes that complete what a process's own files show. To add one: a file here, and a line of
//! [`PASSES`].

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, OnceLock};

use fdguard_core::{Pid, Tier};

use super::Probe;
use super::snapshot::{Options, ProcessDraft};
use super::socket::SocketTable;
use super::table::TableDraft;
use crate::{sqlite, workers};

mod bpf;
pub(super) mod children;
mod devices;
mod ghosts;
mod peers;
mod pidfds;
mod sockets;

/// One pass.
struct Pass {
    needs: Needs,
    /// The lowest tier in which there is something to complete.
    tier: Tier,
    run: Run,
}

/// What a pass needs; each level includes those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    /// Some descriptors of a process: a watch runs it on the new ones.
    Descriptors,
    /// A whole table, or more time than a tick of a watch has.
    Table,
    /// A search of all other processes, which [`Options`] can turn off.
    Search,
}

/// On what a pass runs, and when.
enum Run {
    /// On one table, while the directory of its process is open.
    Open(fn(&mut TableDraft, Links<'_>)),
    /// On all processes at once.
    Processes(fn(&Context<'_>, &mut [&mut ProcessDraft])),
    /// On all tables at once, so that what they have in common is read once.
    Tables(fn(&Context<'_>, &mut [&mut TableDraft])),
    /// On one table after the other, on several cores.
    Each(fn(&Context<'_>, &mut TableDraft)),
}

/// The directory of a process's links, if it is real and can be opened.
pub(super) type Links<'a> = &'a dyn Fn() -> Option<BorrowedFd<'a>>;

const fn pass(needs: Needs, tier: Tier, run: Run) -> Pass {
    Pass { needs, tier, run }
}

/// All passes, in order.
#[rustfmt::skip]
static PASSES: &[Pass] = &[
    pass(Needs::Table,       Tier::Full,  Run::Open(ghosts::mark)),
    pass(Needs::Descriptors, Tier::Full,  Run::Open(classify_sqlite)),
    pass(Needs::Table,       Tier::Radar, Run::Processes(children::adopt)),
    pass(Needs::Descriptors, Tier::Full,  Run::Tables(sockets::resolve)),
    pass(Needs::Descriptors, Tier::Full,  Run::Each(pidfds::describe)),
    pass(Needs::Table,       Tier::Full,  Run::Each(bpf::describe)),
    pass(Needs::Table,       Tier::Full,  Run::Each(devices::describe)),
    pass(Needs::Search,      Tier::Full,  Run::Tables(peers::describe)),
];

/// What the passes of one call share.
pub(super) struct Context<'a> {
    probe: &'a Probe,
    /// Passes that need more are left out.
    offers: Needs,
    threads: usize,
    /// The sockets of fdguard's network namespace, if they were requested in advance.
    ahead: Mutex<Option<SocketTable>>,
    /// The open directory of the only process.
    base: Option<BorrowedFd<'a>>,
    /// The user of the only process.
    user: Option<u32>,
    /// Every process, once one pass has asked for them.
    all: OnceLock<Vec<Pid>>,
    /// How many inotify instances and watches that user has, if the process has any and every
    /// process could be searched.
    pub(super) inotify: OnceLock<(u64, u64)>,
}

impl<'a> Context<'a> {
    /// For snapshots of these processes.
    pub(super) fn of_snapshots(
        probe: &'a Probe,
        drafts: &[ProcessDraft],
        options: Options,
        ahead: Option<SocketTable>,
    ) -> Self {
        let offers = if options.peers {
            Needs::Search
        } else {
            Needs::Table
        };
        let user = match drafts {
            [only] => only.basics.process.uid,
            _ => None,
        };
        Self {
            ahead: Mutex::new(ahead),
            user,
            threads: options.threads(),
            ..Self::new(probe, offers)
        }
    }

    /// For some descriptors of one process, whose directory is open.
    pub(super) fn of_watch(probe: &'a Probe, base: BorrowedFd<'a>) -> Self {
        Self {
            base: Some(base),
            ..Self::new(probe, Needs::Descriptors)
        }
    }

    fn new(probe: &'a Probe, offers: Needs) -> Self {
        Self {
            probe,
            offers,
            threads: 1,
            ahead: Mutex::new(None),
            base: None,
            user: None,
            all: OnceLock::new(),
            inotify: OnceLock::new(),
        }
    }

    fn all_pids(&self) -> &[Pid] {
        self.all
            .get_or_init(|| self.probe.pids().unwrap_or_default())
    }
}

/// Runs the passes that need the table to be open.
pub(super) fn run_open(table: &mut TableDraft, offers: Needs, links: Links<'_>) {
    for pass in PASSES.iter().filter(|pass| pass.needs <= offers) {
        if let Run::Open(run) = pass.run {
            run(table, links);
        }
    }
}

/// Runs the other passes on processes.
pub(super) fn run(context: &Context<'_>, drafts: &mut [ProcessDraft]) {
    for group in groups() {
        if let [
            Pass {
                tier,
                run: Run::Processes(run),
                ..
            },
        ] = group
        {
            let mut ready: Vec<_> = drafts.iter_mut().filter(|it| it.tier() >= *tier).collect();
            run(context, &mut ready);
        } else {
            let mut tables: Vec<_> = drafts
                .iter_mut()
                .filter_map(|it| it.table.as_mut())
                .collect();
            run_group(context, group, &mut tables);
        }
    }
}

/// Runs the passes of a watch on some descriptors of one process.
pub(super) fn run_on_part(context: &Context<'_>, table: &mut TableDraft) {
    for group in groups() {
        run_group(context, group, &mut [table]);
    }
}

/// The passes in order. Those that run on one table after the other form one group, so that each
/// table is visited once.
fn groups() -> impl Iterator<Item = &'static [Pass]> {
    let is_each = |pass: &Pass| matches!(pass.run, Run::Each(_));
    PASSES.chunk_by(move |a, b| is_each(a) && is_each(b))
}

fn run_group(context: &Context<'_>, group: &[Pass], tables: &mut [&mut TableDraft]) {
    let wanted = |pass: &Pass, tier: Tier| pass.needs <= context.offers && pass.tier <= tier;
    if let [pass] = group
        && let Run::Tables(run) = pass.run
    {
        let ready = tables.iter_mut().filter(|it| wanted(pass, it.tier()));
        let mut ready: Vec<&mut TableDraft> = ready.map(|table| &mut **table).collect();
        if !ready.is_empty() {
            run(context, &mut ready);
        }
        return;
    }
    workers::for_each(tables, 16, |table| {
        let tier = table.tier();
        for pass in group.iter().filter(|pass| wanted(pass, tier)) {
            if let Run::Each(run) = pass.run {
                run(context, table);
            }
        }
    });
}

fn classify_sqlite(table: &mut TableDraft, links: Links<'_>) {
    sqlite::classify(&mut table.entries, links);
}
