//! The passes that complete what a process's own files show. To add one: a file here, and a line of
//! [`PASSES`].

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, OnceLock};

use fdguard_core::{Pid, Tier};

use super::Probe;
use super::kernel::KernelReader;
use super::snapshot::ProcessDraft;
use super::socket::SocketTable;
use super::table::TableDraft;
use crate::{sqlite, workers};

mod bpf;
pub(super) mod children;
mod devices;
mod ghosts;
mod open_files;
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
    /// A search of all other processes, which [`super::snapshot::Options`] can turn
    /// off.
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
    pass(Needs::Table,       Tier::Full,  Run::Tables(open_files::describe)),
    pass(Needs::Search,      Tier::Full,  Run::Tables(peers::describe)),
];

/// What the passes of one call share.
pub(super) struct Context<'a> {
    pub(super) probe: &'a Probe,
    /// Passes that need more are left out.
    pub(super) offers: Needs,
    pub(super) threads: usize,
    /// The sockets of fdguard's network namespace, if they were requested in advance.
    pub(super) ahead: Mutex<Option<SocketTable>>,
    /// To search all processes by a kernel walk, if that is wanted.
    pub(super) kernel: Option<&'a KernelReader>,
    /// The directory of the only process, if it is open.
    pub(super) base: Option<BorrowedFd<'a>>,
    /// The mounts of other namespaces.
    pub(super) foreign_mounts: devices::ForeignMounts,
    /// The user of the only process.
    pub(super) user: Option<u32>,
    /// Every process, once one pass has asked for them.
    pub(super) all: OnceLock<Vec<Pid>>,
    /// How many inotify instances and watches that user has, if the process has any and every
    /// process could be searched.
    pub(super) inotify: OnceLock<(u64, u64)>,
}

impl<'a> Context<'a> {
    /// For one call that offers this much.
    pub(super) fn new(probe: &'a Probe, offers: Needs) -> Self {
        Self {
            probe,
            offers,
            threads: 1,
            ahead: Mutex::new(None),
            kernel: None,
            foreign_mounts: devices::ForeignMounts::default(),
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
    let tier = table.tier();
    let wanted = |pass: &&Pass| pass.needs <= offers && pass.tier <= tier;
    for pass in PASSES.iter().filter(wanted) {
        if let Run::Open(run) = pass.run {
            run(table, links);
        }
    }
}

/// Runs the other passes on processes.
pub(super) fn run(context: &Context<'_>, drafts: &mut [ProcessDraft]) {
    for pass in PASSES.iter().filter(|pass| pass.needs <= context.offers) {
        let ready = drafts.iter_mut().filter(|it| it.tier() >= pass.tier);
        if let Run::Processes(run) = pass.run {
            run(context, &mut ready.collect::<Vec<_>>());
        } else {
            let tables = ready.filter_map(|draft| draft.table.as_mut());
            pass.run_on(context, &mut tables.collect::<Vec<_>>());
        }
    }
}

/// Runs the other passes on some descriptors of one process.
pub(super) fn run_on_part(context: &Context<'_>, table: &mut TableDraft) {
    for pass in PASSES.iter().filter(|pass| pass.needs <= context.offers) {
        pass.run_on(context, &mut [table]);
    }
}

impl Pass {
    fn run_on(&self, context: &Context<'_>, tables: &mut [&mut TableDraft]) {
        match self.run {
            Run::Tables(run) => run(context, tables),
            Run::Each(run) => workers::for_each(tables, 16, |table| run(context, table)),
            // The one ran when the table was open, the other does not run on tables.
            Run::Open(_) | Run::Processes(_) => {}
        }
    }
}

fn classify_sqlite(table: &mut TableDraft, links: Links<'_>) {
    sqlite::classify(&mut table.entries, links);
}
