//! Snapshots: the table, then what the rest of the system adds to it.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdguard_core::snapshot::{Ceiling, Ceilings, Via};
use fdguard_core::{Class, Detail, Gap, Pid, Snapshot, Text, Tier};
use jiff::Timestamp;

use super::peers::{Holdings, Interest};
use super::process::{Basics, Families};
use super::socket::{self, SocketTable};
use super::table::{Table, TableDir};
use super::{Probe, epoll, files, sqlite};
use crate::Error;

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to find out who holds the other ends, which means a walk over every process.
    pub peers: bool,
    /// How many threads may read; 0 for as many as there are cores, up to four.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peers: true,
            threads: 0,
        }
    }
}

impl Options {
    fn threads(self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            given => given,
        }
    }
}

/// A process that was read, before the rest of the system was asked about it.
struct Draft {
    pid: Pid,
    basics: Basics,
    taken_at: Timestamp,
    count: Option<u64>,
    /// Absent where the table may not be listed.
    table: Option<Table>,
    netns: Option<Vec<u8>>,
    gaps: Vec<Gap>,
}

impl Probe {
    /// What one process holds.
    pub fn snapshot(&self, pid: Pid, options: Options) -> Result<Snapshot, Error> {
        let mut draft = self.draft(pid, options.threads(), None)?;
        self.describe_sockets(std::slice::from_mut(&mut draft));
        let mut holdings = Holdings::default();
        let mut host = super::ceilings::read(self.proc.as_fd());
        if options.peers && draft.table.is_some() {
            holdings = self.walk_others(std::slice::from_ref(&draft), options.threads());
            self.finish_inotify(&draft, &holdings, &mut host);
        }
        Ok(self.finish(draft, options.peers.then_some(&holdings), host))
    }

    /// What several processes hold. Each has its own outcome; those that ended meanwhile are errors.
    pub fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>> {
        let families = (pids.len() > 16).then(|| self.families());
        // Ourselves first, while nothing is open but what this one look takes.
        let own = pids
            .iter()
            .position(|pid| self.real && *pid == std::process::id())
            .map(|at| (at, self.draft(pids[at], 1, families.as_ref())));
        let mut drafts = self.drafts(pids, options.threads(), families.as_ref());
        if let Some((at, draft)) = own {
            drafts[at] = draft;
        }
        let (mut good, mut order) = (Vec::new(), Vec::new());
        for draft in drafts {
            match draft {
                Ok(draft) => {
                    order.push(Ok(()));
                    good.push(draft);
                }
                Err(error) => order.push(Err(error)),
            }
        }
        self.describe_sockets(&mut good);
        let holdings = options
            .peers
            .then(|| self.walk_others(&good, options.threads()));
        let host = super::ceilings::read(self.proc.as_fd());
        let mut finished = good
            .into_iter()
            .map(|draft| self.finish(draft, holdings.as_ref(), host));
        order
            .into_iter()
            .filter_map(|slot| match slot {
                Ok(()) => finished.next().map(Ok),
                Err(error) => Some(Err(error)),
            })
            .collect()
    }

    fn drafts(
        &self,
        pids: &[Pid],
        threads: usize,
        families: Option<&Families>,
    ) -> Vec<Result<Draft, Error>> {
        if pids.len() < 8 || threads < 2 {
            return pids
                .iter()
                .map(|pid| self.draft(*pid, threads, families))
                .collect();
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(pids.len()));
        let work = || {
            let mut part = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(pid) = pids.get(at) else { break };
                part.push((at, self.draft(*pid, 1, families)));
            }
            done.lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .append(&mut part);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Without a second thread the first one does all of it.
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        let mut done = done
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, draft)| draft).collect()
    }

    fn draft(&self, pid: Pid, threads: usize, families: Option<&Families>) -> Result<Draft, Error> {
        let base = self.open_process(pid)?;
        let basics = self.basics(pid, base.as_fd(), families)?;
        let ours = self.real && pid == std::process::id();
        let own = if self.real {
            files::open_base_at(&self.proc, c"self/fd").ok()
        } else {
            None
        };
        let taken_at = Timestamp::now();
        let mut gaps = Vec::new();
        let proc = ours.then(|| self.proc.as_fd());
        let (table, count) = match TableDir::open(base.as_fd(), own, proc) {
            Ok(dir) => match dir.numbers() {
                Ok(numbers) => {
                    let mut table = dir.read(&numbers, threads);
                    if let Some(error) = table.trouble {
                        return Err(Error::io(format!("descriptors of process {pid}"), error));
                    }
                    epoll::mark_ghosts(&mut table.entries, &table.epolls);
                    let fd_dir = self.real.then(|| dir.as_fd());
                    sqlite::classify(&mut table.entries, fd_dir);
                    gaps.extend(table_gaps(&table));
                    // What was closed between listing and reading is not held any more.
                    let count = table.entries.len() as u64 + table.denied + table.unstable;
                    (usable(table, numbers.len()), Some(count))
                }
                Err(error) => (None, self.refused(pid, error)?),
            },
            Err(error) => (None, self.refused(pid, error)?),
        };
        let count = count.or_else(|| self.count_of(&base));
        if table.is_none() {
            gaps.push(denied_gap(pid, count.is_some()));
        }
        self.still_there(pid, &base)?;
        let netns = files::read_link(&base, c"ns/net").ok();
        Ok(Draft {
            pid,
            basics,
            taken_at,
            count,
            table,
            netns,
            gaps,
        })
    }

    /// A table that may not be listed leaves its count to be found; any other failure is one.
    fn refused(&self, pid: Pid, error: rustix::io::Errno) -> Result<Option<u64>, Error> {
        if files::is_gone(error) {
            Err(Error::Vanished(pid))
        } else if files::is_ours(error) {
            Err(Error::io(format!("descriptors of process {pid}"), error))
        } else {
            Ok(None)
        }
    }

    /// The count without listing: the size of the directory (Linux 6.2 and later, no privilege).
    pub(super) fn count_of(&self, base: &OwnedFd) -> Option<u64> {
        if !self.real {
            return None;
        }
        let stat = rustix::fs::statat(base, c"fd", rustix::fs::AtFlags::empty()).ok()?;
        let size = u64::try_from(stat.st_size).ok()?;
        (size > 0 || self.tells_sizes()).then_some(size)
    }

    /// Whether the size of a table's directory is its count: our own is never empty while we look.
    pub(super) fn tells_sizes(&self) -> bool {
        let own = rustix::fs::statat(&self.proc, c"self/fd", rustix::fs::AtFlags::empty());
        self.real && own.is_ok_and(|stat| stat.st_size > 0)
    }

    /// A process that ended while it was read gives no half snapshot.
    fn still_there(&self, pid: Pid, base: &OwnedFd) -> Result<(), Error> {
        let bytes = match files::read(base, c"stat") {
            Err(error) if files::is_ours(error) => {
                return Err(Error::io(format!("stat of process {pid}"), error));
            }
            read => read.unwrap_or_default(),
        };
        match crate::parse::stat::Stat::parse(&bytes) {
            Some(stat) if !stat.is_ending() => Ok(()),
            _ => Err(Error::Vanished(pid)),
        }
    }

    fn describe_sockets(&self, drafts: &mut [Draft]) {
        let mut by_netns: HashMap<Option<Vec<u8>>, Vec<usize>> = HashMap::new();
        for (at, draft) in drafts.iter().enumerate() {
            if draft
                .table
                .as_ref()
                .is_some_and(|table| !table.sockets.is_empty())
            {
                by_netns.entry(draft.netns.clone()).or_default().push(at);
            }
        }
        let own_netns = files::read_link(&self.proc, c"self/ns/net").ok();
        for (netns, members) in by_netns {
            let wanted: HashSet<u64> = members
                .iter()
                .flat_map(|at| socket_inodes(&drafts[*at]))
                .collect();
            let base = members.iter().find_map(|at| self.reopened(&drafts[*at]));
            let (sockets, gap) =
                self.socket_table(netns.as_ref(), own_netns.as_ref(), base.as_ref(), &wanted);
            for at in members {
                self.describe_with(&mut drafts[at], &sockets);
                drafts[at].gaps.extend(gap.clone());
            }
        }
    }

    fn socket_table(
        &self,
        netns: Option<&Vec<u8>>,
        own: Option<&Vec<u8>>,
        base: Option<&OwnedFd>,
        wanted: &HashSet<u64>,
    ) -> (SocketTable, Option<Gap>) {
        let by_netlink = if !self.real {
            None
        } else if netns.is_some() && netns == own {
            SocketTable::by_netlink(wanted).ok()
        } else {
            base.and_then(|base| files::open_file_at(base, c"ns/net").ok())
                .and_then(|file| SocketTable::by_netlink_in(file.as_fd(), wanted).ok())
        };
        let asked = by_netlink.is_some();
        let mut table = match (by_netlink, base) {
            (Some(table), _) => table,
            (None, Some(base)) => SocketTable::by_text(base.as_fd(), wanted),
            (None, None) => SocketTable::default(),
        };
        if let Some(base) = base {
            table.add_rare(base.as_fd(), wanted);
        }
        let gap = (!asked && (!table.complete || self.real)).then(|| socket_gap(table.complete));
        (table, gap)
    }

    /// The directory of a process once more, if it is still the same process. Kept open for each
    /// of a host's processes, these would be more than we may hold.
    fn reopened(&self, draft: &Draft) -> Option<OwnedFd> {
        let base = self.open_process(draft.pid).ok()?;
        let bytes = files::read(&base, c"stat").ok()?;
        let stat = crate::parse::stat::Stat::parse(&bytes)?;
        (draft.basics.process.start_ticks == Some(stat.start_ticks)).then_some(base)
    }

    fn describe_with(&self, draft: &mut Draft, sockets: &SocketTable) {
        let Some(table) = &mut draft.table else {
            return;
        };
        for fd in &table.sockets {
            let Ok(at) = table.entries.binary_search_by_key(fd, |entry| entry.fd) else {
                continue;
            };
            let entry = &mut table.entries[at];
            if !sockets.describe(entry) {
                let protocol = self.protocol_name(draft.pid, *fd);
                socket::describe_by_protocol(entry, protocol.as_deref(), sockets.complete);
            }
        }
    }

    /// The protocol name that the kernel keeps as an attribute of a socket's inode.
    fn protocol_name(&self, pid: Pid, fd: u32) -> Option<String> {
        if !self.real {
            return None;
        }
        let path = self.path.join(format!("{pid}/fd/{fd}"));
        let mut buffer = [0; 64];
        let length = rustix::fs::getxattr(path, c"system.sockprotoname", &mut buffer[..]).ok()?;
        let name = buffer.get(..length)?;
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Asks every process that was not read who holds what the read ones hold.
    fn walk_others(&self, drafts: &[Draft], threads: usize) -> Holdings {
        let mut interest = Interest::default();
        let mut holdings = Holdings::default();
        for draft in drafts {
            if let Some(table) = &draft.table {
                interest.add(&table.entries);
                holdings.add_entries(draft.pid, &table.entries);
            }
        }
        if let [only] = drafts {
            let has_inotify = only
                .table
                .iter()
                .flat_map(|t| &t.entries)
                .any(|e| e.class == Class::Inotify);
            interest.inotify_of = only.basics.process.uid.filter(|_| has_inotify);
        }
        if interest.is_empty() {
            return holdings;
        }
        let known: HashSet<Pid> = drafts
            .iter()
            .filter(|draft| draft.table.is_some())
            .map(|draft| draft.pid)
            .collect();
        let others: Vec<Pid> = self
            .pids()
            .unwrap_or_default()
            .into_iter()
            .filter(|pid| !known.contains(pid))
            .collect();
        holdings.absorb(self.walk(&others, &interest, threads));
        holdings
    }

    fn walk(&self, pids: &[Pid], interest: &Interest, threads: usize) -> Holdings {
        let next = AtomicUsize::new(0);
        let total = Mutex::new(Holdings::default());
        let work = || {
            let mut part = Holdings::default();
            while let Some(pid) = pids.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Ok(base) = self.open_process(*pid) {
                    part.add_links(*pid, base.as_fd(), interest);
                }
            }
            total
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .absorb(part);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(pids.len() / 16 + 1) {
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        total
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the user of this process uses of inotify, when every process could be read.
    fn finish_inotify(&self, draft: &Draft, holdings: &Holdings, host: &mut Ceilings) {
        if holdings.unread > 0 {
            return;
        }
        let watchers = draft.table.iter().flat_map(|table| &table.entries);
        let own =
            watchers
                .filter(|entry| entry.class == Class::Inotify)
                .fold((0, 0), |sum, entry| match &entry.detail {
                    Detail::Watcher(watcher) => (sum.0 + 1, sum.1 + watcher.watches),
                    _ => sum,
                });
        let used = |own: u64, others: u64, ceiling: Ceiling| Ceiling {
            used: (own > 0).then_some(own + others),
            ..ceiling
        };
        host.inotify_instances = used(own.0, holdings.inotify.0, host.inotify_instances);
        host.inotify_watches = used(
            own.0,
            holdings.inotify.1 + own.1 - own.0.min(own.1),
            host.inotify_watches,
        );
    }

    fn finish(&self, mut draft: Draft, holdings: Option<&Holdings>, host: Ceilings) -> Snapshot {
        if let Some(table) = &mut draft.table {
            self.describe_pidfds(table);
            if let Some(holdings) = holdings {
                holdings.describe(draft.pid, &mut table.entries);
                draft.gaps.extend(peers_gap(holdings, table));
            }
        }
        Snapshot {
            taken_at: draft.taken_at,
            tier: if draft.table.is_some() {
                Tier::Full
            } else {
                Tier::Radar
            },
            via: Via::Proc,
            process: draft.basics.process,
            limits: draft.basics.limits,
            count: draft.count,
            table_size: draft.basics.table_size,
            host,
            fds: draft.table.map(|table| table.entries),
            gaps: draft.gaps,
        }
    }

    fn describe_pidfds(&self, table: &mut Table) {
        let mut known: HashMap<Pid, Option<(bool, Text)>> = HashMap::new();
        for entry in &mut table.entries {
            let Detail::Pidfd(pidfd) = &mut entry.detail else {
                continue;
            };
            let Some(pid) = pidfd.pid else { continue };
            let state = known.entry(pid).or_insert_with(|| self.is_alive(pid));
            // fdinfo named it a moment ago: if it is not there any more, it ended and was reaped.
            pidfd.alive = Some(state.as_ref().is_some_and(|(alive, _)| *alive));
            pidfd.command = state.as_ref().map(|(_, command)| command.clone());
            if let Some(command) = &pidfd.command {
                entry.target =
                    Text::from([format!("pid {pid} ").as_bytes(), command.as_bytes()].concat());
            }
        }
    }
}

fn socket_inodes(draft: &Draft) -> impl Iterator<Item = u64> {
    let table = draft.table.iter();
    table.flat_map(|table| {
        table.sockets.iter().filter_map(|fd| {
            let at = table
                .entries
                .binary_search_by_key(fd, |entry| entry.fd)
                .ok()?;
            table.entries[at].id.map(|id| id.ino)
        })
    })
}

/// A table in which nothing may be looked at is no table.
fn usable(table: Table, listed: usize) -> Option<Table> {
    let all_denied = listed > 0 && table.entries.is_empty() && table.denied > 0;
    (!all_denied).then_some(table)
}

fn table_gaps(table: &Table) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if table.denied > 0 && !table.entries.is_empty() {
        let what = format!("{} descriptors", table.denied);
        gaps.push(Gap::new(
            what,
            "permission denied",
            "run as root, or with CAP_SYS_PTRACE",
        ));
    }
    if table.unstable > 0 {
        let what = format!("{} descriptors", table.unstable);
        let why = "they were closed and reused faster than they could be read";
        gaps.push(Gap::new(
            what,
            why,
            "look again, or watch the process over a while",
        ));
    }
    gaps
}

fn denied_gap(pid: Pid, counted: bool) -> Gap {
    let what = if counted {
        format!("the descriptors of process {pid} (their number is known, what they are is not)")
    } else {
        format!("the descriptors of process {pid}, and their number")
    };
    let remedy = "run as the process's user or as root (sudo fdguard …), or with CAP_SYS_PTRACE";
    Gap::new(
        what,
        "permission denied: the process belongs to another user or is protected",
        remedy,
    )
}

fn socket_gap(complete: bool) -> Gap {
    if complete {
        let remedy = "run as root (CAP_SYS_ADMIN) to ask in that namespace";
        return Gap::new(
            "peers of unix sockets",
            "the process lives in another network namespace",
            remedy,
        );
    }
    let remedy = "run as root, or as the process's user";
    Gap::new(
        "states and addresses of sockets",
        "neither netlink nor /proc/PID/net could be read",
        remedy,
    )
}

fn peers_gap(holdings: &Holdings, table: &Table) -> Option<Gap> {
    let open_question = table.entries.iter().any(|entry| match &entry.detail {
        Detail::Pipe(pipe) => entry.class == Class::Pipe && pipe.peer.is_none(),
        Detail::Unix(unix) => unix
            .peer
            .as_ref()
            .is_some_and(|peer| peer.holders.is_empty()),
        _ => false,
    });
    let what = "who holds the other end of some pipes and sockets";
    let why = format!(
        "{} processes of other users could not be read",
        holdings.unread
    );
    (open_question && holdings.unread > 0).then(|| Gap::new(what, why, "run as root"))
}
