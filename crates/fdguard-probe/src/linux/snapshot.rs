//! Snapshots: the table, then what the rest of the system adds to it.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;

use fdguard_core::snapshot::Ceilings;
use fdguard_core::{Class, Detail, Pid, Snapshot, Text};

use super::borrow::Borrower;
use super::draft::Draft;
use super::gaps::peers_gap;
use super::kernel::walk::Walk;
use super::peers::{Holdings, Interest};
use super::socket::SocketTable;
use super::table::Table;
use super::{Probe, files};
use crate::Error;
use crate::workers::{self, Queue};

/// From this many processes on, all sockets are requested in advance.
const MANY: usize = 64;

/// How to take a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to find the holders of the other ends, which requires a search of every process.
    pub peers: bool,
    /// How many threads may read; 0 for as many as there are cores, up to four.
    pub threads: usize,
    /// Whether all tables may be read by a kernel walk.
    pub depth: Depth,
}

/// How several processes are read, where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// By a kernel walk where that is allowed and worthwhile, otherwise through `/proc`.
    #[default]
    Auto,
    /// Only through `/proc`.
    Full,
    /// By a kernel walk wherever that is allowed.
    Kernel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peers: true,
            threads: 0,
            depth: Depth::Auto,
        }
    }
}

impl Options {
    fn threads(self) -> usize {
        match self.threads {
            0 => workers::cores(),
            given => given,
        }
    }

    /// A walk covers the whole host: for a few processes that takes longer.
    fn wants_walk(self, processes: usize) -> bool {
        match self.depth {
            Depth::Auto => processes >= MANY,
            Depth::Full => false,
            Depth::Kernel => true,
        }
    }
}

impl Probe {
    /// The descriptors of one process.
    pub fn snapshot(&self, pid: Pid, options: Options) -> Result<Snapshot, Error> {
        let ahead = self.wants_sockets_ahead(pid).then_some(all_sockets);
        // For fdguard itself, the walk would show its own descriptors.
        let others = self.real && pid != std::process::id();
        let walk = (others && options.depth == Depth::Kernel).then(Walk::default);
        walk.as_ref().inspect(|walk| walk.make());
        let (ahead, draft) =
            workers::beside(ahead, || self.draft(pid, options.threads(), walk.as_ref()));
        let mut draft = draft?;
        draft
            .basics
            .adopt(self.children(pid, draft.basics.process.start_ticks));
        self.describe_sockets(std::slice::from_mut(&mut draft), ahead.flatten());
        let mut host = super::ceilings::read(self.proc.as_fd());
        let mut holdings = None;
        if options.peers && draft.table.is_some() {
            let all = self.pids().unwrap_or_default();
            let found = self.walk_others(std::slice::from_ref(&draft), all, options.threads());
            finish_inotify(&draft, &found, &mut host);
            holdings = Some(found);
        }
        self.complete(&mut draft, holdings.as_ref());
        Ok(draft.into_snapshot(host))
    }

    /// The descriptors of several processes. Each has its own outcome; those that exited meanwhile
    /// are errors.
    pub fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>> {
        // fdguard itself first, while only the descriptors of this one read are open.
        let own = pids
            .iter()
            .position(|pid| self.real && *pid == std::process::id());
        let own = own.map(|at| (at, self.draft(pids[at], 1, None)));
        // Some of many processes will have sockets: requested while reading, they cost no extra
        // time.
        let ahead = (self.real && pids.len() >= MANY).then_some(all_sockets);
        let walk = (self.real && options.wants_walk(pids.len())).then(Walk::default);
        let (ahead, mut drafts) = workers::beside(ahead, || {
            self.drafts(pids, options.threads(), walk.as_ref())
        });
        if let Some((at, draft)) = own {
            drafts[at] = draft;
        }
        let mut good = Vec::new();
        let order: Vec<Result<(), Error>> = drafts
            .into_iter()
            .map(|draft| draft.map(|draft| good.push(draft)))
            .collect();
        let all = self.pids().unwrap_or_default();
        self.adopt_all(&mut good, &all);
        self.describe_sockets(&mut good, ahead.flatten());
        let holdings = options
            .peers
            .then(|| self.walk_others(&good, all, options.threads()));
        let host = super::ceilings::read(self.proc.as_fd());
        workers::for_each(&mut good, 16, |draft| {
            self.complete(draft, holdings.as_ref())
        });
        let mut finished = good.into_iter().map(|draft| draft.into_snapshot(host));
        order
            .into_iter()
            .filter_map(|slot| match slot {
                Ok(()) => finished.next().map(Ok),
                Err(error) => Some(Err(error)),
            })
            .collect()
    }

    /// Gives every process its children: for most of the host from what was already read, for a few
    /// processes from their own lists.
    fn adopt_all(&self, drafts: &mut [Draft], all: &[Pid]) {
        if drafts.len() * 2 < all.len() {
            return workers::for_each(drafts, 8, |draft| {
                let children = self.children(draft.pid, draft.basics.process.start_ticks);
                draft.basics.adopt(children);
            });
        }
        let read = drafts
            .iter()
            .map(|draft| (draft.pid, &draft.basics.process))
            .collect();
        let mut families = self.families(all, &read);
        for draft in drafts {
            let children = families.remove(&draft.pid).unwrap_or_default();
            draft.basics.adopt(Some(children));
        }
    }

    /// Searches every other process for what the read ones have open.
    fn walk_others(&self, drafts: &[Draft], all: Vec<Pid>, threads: usize) -> Holdings {
        let read = || {
            drafts
                .iter()
                .filter_map(|draft| Some((draft, draft.table.as_ref()?)))
        };
        let mut holdings = Holdings::default();
        for (draft, table) in read() {
            let is_near = || self.shares_mounts(draft.pid);
            holdings.add_entries(draft.pid, &table.entries, is_near);
        }
        let known: HashSet<Pid> = read().map(|(draft, _)| draft.pid).collect();
        let mut others = all;
        others.retain(|pid| !known.contains(pid) && self.holds_something(*pid));
        if !others.is_empty() {
            let mut interest = Interest::default();
            for (draft, table) in read() {
                interest.add(&table.entries, || self.shares_mounts(draft.pid));
            }
            interest.mounts = files::read_link(&self.proc, c"self/ns/mnt").ok();
            interest.inotify_of = inotify_user(drafts);
            if !interest.is_empty() {
                holdings.absorb(self.walk(&others, &interest, threads));
            }
        }
        // Hidden processes may hold anything.
        holdings.unread += u64::from(self.hides);
        holdings.sort();
        holdings
    }

    /// Whether a process is in fdguard's mount namespace: then `/dev/pts/3` is the same terminal.
    fn shares_mounts(&self, pid: Pid) -> bool {
        let mounts = |who: String| files::read_link(&self.proc, format!("{who}/ns/mnt")).ok();
        let theirs = mounts(pid.to_string());
        theirs.is_some() && theirs == mounts("self".to_owned())
    }

    /// Whether a process is worth searching: kernel threads and zombies hold nothing.
    pub(super) fn holds_something(&self, pid: Pid) -> bool {
        !self.sizes || self.table_stat(pid).is_ok_and(|stat| stat.st_size > 0)
    }

    pub(super) fn walk(&self, pids: &[Pid], interest: &Interest, threads: usize) -> Holdings {
        let queue = Queue::new(pids.len(), 4);
        let parts = workers::run(threads.min(pids.len() / 16 + 1), || {
            let mut part = Holdings::default();
            while let Some(range) = queue.take() {
                for pid in &pids[range] {
                    if let Ok(base) = self.open_process(*pid) {
                        part.add_links(*pid, base.as_fd(), interest);
                    }
                }
            }
            part
        });
        let mut total = Holdings::default();
        for part in parts {
            total.absorb(part);
        }
        total
    }

    /// Adds what the other processes and the host contribute to one process.
    fn complete(&self, draft: &mut Draft, holdings: Option<&Holdings>) {
        let Some(table) = &mut draft.table else {
            return;
        };
        self.describe_pidfds(table);
        self.describe_bpf(draft.pid, table);
        self.describe_devices(draft.pid, &mut table.entries);
        if let Some(holdings) = holdings {
            let is_near = || self.shares_mounts(draft.pid);
            holdings.describe(draft.pid, &mut table.entries, is_near);
            self.settle_widowed(draft.pid, table);
            draft.gaps.extend(peers_gap(holdings, table));
        }
    }

    /// If an unreadable process could hold the other end of a pipe, the pipe itself is queried.
    fn settle_widowed(&self, pid: Pid, table: &mut Table) {
        let mut borrower = None;
        for entry in &mut table.entries {
            let Detail::Pipe(pipe) = &mut entry.detail else {
                continue;
            };
            if pipe.peer.is_some() || pipe.end.is_none() || entry.class != Class::Pipe || !self.real
            {
                continue;
            }
            let Some(id) = entry.id else { continue };
            let borrower = borrower.get_or_insert_with(|| Borrower::new(pid));
            if borrower
                .as_ref()
                .and_then(|borrower| borrower.is_widowed(entry.fd, id.ino))
                == Some(true)
            {
                pipe.peer = Some(Vec::new());
            }
        }
    }

    /// Fills in the state of the processes behind process handles.
    pub(super) fn describe_pidfds(&self, table: &mut Table) {
        let mut known: HashMap<Pid, Option<(bool, Text)>> = HashMap::new();
        for entry in &mut table.entries {
            let Detail::Pidfd(pidfd) = &mut entry.detail else {
                continue;
            };
            let Some(pid) = pidfd.pid else { continue };
            let state = known.entry(pid).or_insert_with(|| self.is_alive(pid));
            // fdinfo named it a moment ago: if it no longer exists, it exited and was reaped.
            pidfd.alive = Some(state.as_ref().is_some_and(|(alive, _)| *alive));
            pidfd.command = state.as_ref().map(|(_, command)| command.clone());
            if let Some(command) = &pidfd.command {
                entry.target =
                    Text::from([format!("pid {pid} ").as_bytes(), command.as_bytes()].concat());
            }
        }
    }
}

/// Every socket of fdguard's network namespace.
fn all_sockets() -> Option<SocketTable> {
    SocketTable::by_netlink(None).ok()
}

/// The user whose inotify use matters: that of a single process which watches files.
fn inotify_user(drafts: &[Draft]) -> Option<u32> {
    let [only] = drafts else { return None };
    let mut entries = only.table.iter().flat_map(|table| &table.entries);
    let watches = entries.any(|entry| entry.class == Class::Inotify);
    only.basics.process.uid.filter(|_| watches)
}

/// The inotify use of this process's user, if every process could be read.
fn finish_inotify(draft: &Draft, others: &Holdings, host: &mut Ceilings) {
    let watchers = draft.table.iter().flat_map(|table| &table.entries);
    let (instances, watches) =
        watchers.fold((0, 0), |sum, entry| match (&entry.class, &entry.detail) {
            (Class::Inotify, Detail::Watcher(watcher)) => (sum.0 + 1, sum.1 + watcher.watches),
            _ => sum,
        });
    if instances > 0 && others.unread == 0 {
        host.inotify_instances.used = Some(instances + others.inotify.0);
        host.inotify_watches.used = Some(watches + others.inotify.1);
    }
}
