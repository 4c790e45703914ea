//! One process's descriptor table: every number in it is read once.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use fdguard_core::{Detail, Fd, FdEntry, Gap, Pid, Tier};
use fdguard_proc::fdinfo::EpollTarget;
use rustix::io::Errno;

use super::classify::{ClassifiedEntry, UnresolvedSocket};
use super::files::{self, Listing};
use super::mounts::Mounts;
use super::reader::{ReadFailure, Reader};
use super::socket::ConnectionEnds;
use super::socket_entry;
use crate::workers;

/// Below this a second thread costs more than it saves.
const WORTH_A_THREAD: u64 = 512;
const CHUNK: usize = 128;

/// A connection within this host among the entries of a table. All that finds its other end is kept
/// here: it is at hand when the entry is made, and later it is not in the caches any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) fd: Fd,
    /// The namespace and the inode of the socket.
    pub(super) place: Option<(u64, u64)>,
    pub(super) ends: ConnectionEnds,
}

impl Connection {
    fn new(entry: &FdEntry, ends: ConnectionEnds) -> Self {
        let netns = match &entry.detail {
            Detail::Inet(inet) => inet.netns,
            _ => None,
        };
        Self {
            fd: entry.fd,
            place: netns.zip(entry.id.map(|id| id.ino)),
            ends,
        }
    }
}

/// One table as its process's own files show it: the passes complete it.
#[derive(Debug, Default)]
pub(super) struct TableDraft {
    pub(super) pid: Pid,
    /// Ascending by number.
    pub(super) entries: Vec<FdEntry>,
    /// Those that no entry can be made of yet.
    pub(super) sockets: Vec<UnresolvedSocket>,
    /// Connections within this host among the entries, whose other ends are not known yet.
    pub(super) connections: Vec<Connection>,
    /// The link of its network namespace, if there are sockets.
    pub(super) netns: Option<Vec<u8>>,
    /// What the epoll instances among the entries have registered.
    pub(super) epolls: Vec<(Fd, Vec<EpollTarget>)>,
    /// How many numbers were in use when they were listed.
    pub(super) listed: u64,
    /// Descriptors that exist but may not be read.
    pub(super) denied: u64,
    /// Descriptors that were reused faster than they could be read.
    pub(super) unstable: u64,
    /// Why reading failed, if not because of the target: fdguard's own table or the host's is full.
    pub(super) trouble: Option<Errno>,
    /// Of a kernel walk: the open files, by their addresses, that something beside their number
    /// refers to.
    pub(super) shared: Vec<(Fd, u64)>,
    /// Of a kernel walk: those that were read through `/proc`.
    pub(super) by_proc: Vec<Fd>,
    /// Whether it comes from a kernel walk.
    pub(super) by_kernel: bool,
    /// What the passes could not find out.
    pub(super) gaps: Vec<Gap>,
}

impl TableDraft {
    pub(super) fn new(pid: Pid) -> Self {
        Self {
            pid,
            ..Self::default()
        }
    }

    /// Notes the network namespace, for the sockets.
    pub(super) fn with_netns(mut self, base: BorrowedFd<'_>) -> Self {
        // A connection may need the tables of its namespace, too.
        if !self.sockets.is_empty() || !self.connections.is_empty() {
            self.netns = files::read_link(base, c"ns/net").ok();
        }
        self
    }

    /// Takes what the other has, which keeps its room for more.
    pub(super) fn absorb(&mut self, other: &mut Self) {
        self.entries.append(&mut other.entries);
        self.sockets.append(&mut other.sockets);
        self.connections.append(&mut other.connections);
        self.epolls.append(&mut other.epolls);
        self.shared.append(&mut other.shared);
        self.by_proc.append(&mut other.by_proc);
        self.listed += std::mem::take(&mut other.listed);
        self.denied += std::mem::take(&mut other.denied);
        self.unstable += std::mem::take(&mut other.unstable);
        self.trouble = self.trouble.or(other.trouble.take());
    }

    pub(super) fn tier(&self) -> Tier {
        if self.by_kernel {
            Tier::Kernel
        } else {
            Tier::Full
        }
    }

    /// How many descriptors there were, readable or not.
    pub(super) fn count(&self) -> u64 {
        (self.entries.len() + self.sockets.len()) as u64 + self.denied + self.unstable
    }

    /// Whether every listed number could still be read, and none can be missing from the list.
    pub(super) fn is_complete(&self) -> bool {
        // Of a short table, all were listed before the first was read, which proves that the
        // process was alive then. The list of a longer one ends early if the process does, and
        // what belongs to a process that ends may not be read.
        let is_short = (1..CHUNK as u64).contains(&self.listed);
        is_short && self.count() == self.listed && self.denied == 0
    }

    /// Whether no descriptor could be read.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.sockets.is_empty()
    }

    /// Restores the order of the entries after some were added.
    pub(super) fn sort(&mut self) {
        // Two ascending runs: the stable sort only merges them.
        if !self.entries.is_sorted_by_key(|entry| entry.fd) {
            self.entries.sort_by_key(|entry| entry.fd);
        }
    }

    pub(super) fn add(&mut self, entry: ClassifiedEntry) {
        match entry {
            ClassifiedEntry::Entry(entry) => self.entries.push(entry),
            ClassifiedEntry::Socket(socket) => self.sockets.push(socket),
            ClassifiedEntry::Connection(entry, ends) => {
                self.connections.push(Connection::new(&entry, ends));
                self.entries.push(entry);
            }
            ClassifiedEntry::Epoll(entry, registrations) => {
                self.epolls.push((entry.fd, registrations));
                self.entries.push(entry);
            }
        }
    }

    /// Makes sockets of these entries again, ascending.
    pub(super) fn unresolve(&mut self, fds: &[Fd]) {
        if fds.is_empty() {
            return;
        }
        let sockets = &mut self.sockets;
        self.entries.retain(|entry| {
            let is_lone = fds.binary_search(&entry.fd).is_ok();
            let socket = UnresolvedSocket::of_entry(entry).filter(|_| is_lone);
            let is_kept = socket.is_none();
            sockets.extend(socket);
            is_kept
        });
    }

    /// Adds the result of reading one listed number.
    fn add_read(&mut self, read: Result<ClassifiedEntry, ReadFailure>) {
        self.listed += 1;
        match read {
            Ok(entry) => self.add(entry),
            Err(ReadFailure::Gone) => {}
            Err(ReadFailure::Denied) => self.denied += 1,
            Err(ReadFailure::Unstable) => self.unstable += 1,
            Err(ReadFailure::Trouble(error)) => self.trouble = Some(error),
        }
    }

    /// The entries, each of them whole.
    pub(super) fn into_entries(mut self) -> Vec<FdEntry> {
        // None is left after the pass for sockets; without it they are sockets and nothing more.
        for socket in std::mem::take(&mut self.sockets) {
            let unknown = socket_entry::by_protocol(socket.id.ino, None, false);
            self.entries.push(socket.resolve(unknown));
        }
        self.sort();
        self.entries
    }
}

/// The open directories of one process's table.
#[derive(Debug)]
pub(super) struct TableDir {
    pid: Pid,
    pub(super) fd: OwnedFd,
    /// Absent if fdinfo cannot be opened: then there are only links.
    pub(super) fdinfo: Option<OwnedFd>,
    /// Whether the numbers can be listed there.
    lists_fdinfo: bool,
    /// fdguard's own table, to query descriptors that it holds for a moment; absent on a simulated
    /// tree.
    pub(super) own: Option<Arc<OwnedFd>>,
    /// The mounts that hold only sockets, pipes or anonymous inodes.
    pub(super) mounts: Arc<Mounts>,
    /// For fdguard's own table: the probe's descriptors, which are not part of the result.
    mine: Vec<Fd>,
}

impl TableDir {
    /// Opens the table of the process behind `base`. Fails with the errno of `fd/` itself. `mine`
    /// are the probe's descriptors if the process is fdguard itself.
    pub(super) fn open(
        pid: Pid,
        base: BorrowedFd<'_>,
        own: Option<Arc<OwnedFd>>,
        mounts: Arc<Mounts>,
        mine: &[Fd],
    ) -> Result<Self, Errno> {
        let fd = files::open_dir_at(base, c"fd")?;
        let listable = files::open_dir_at(base, c"fdinfo");
        let lists_fdinfo = listable.is_ok() && own.is_some();
        let fdinfo = match listable {
            Err(error) if files::is_ours(error) => return Err(error),
            // Kept anyway: reading each file in it will report the missing permission.
            Err(error) if files::is_denied(error) => files::open_base_at(base, c"fdinfo").ok(),
            opened => opened.ok(),
        };
        let mut mine = mine.to_vec();
        if !mine.is_empty() {
            mine.push(files::number_of(&fd));
            mine.extend(fdinfo.as_ref().map(files::number_of));
        }
        Ok(Self {
            pid,
            fd,
            fdinfo,
            lists_fdinfo,
            own,
            mounts,
            mine,
        })
    }

    /// The directory of links.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The directory to list: listing makes the kernel cache each name, and those of fdinfo are
    /// opened next.
    fn listed(&self) -> BorrowedFd<'_> {
        let fdinfo = self.fdinfo.as_ref().filter(|_| self.lists_fdinfo);
        fdinfo.unwrap_or(&self.fd).as_fd()
    }

    /// The numbers in use, without the probe's.
    pub(super) fn numbers(&self) -> Result<Vec<Fd>, Errno> {
        let mut numbers = files::numbers(self.listed())?;
        numbers.retain(|number| !self.mine.contains(number));
        Ok(numbers)
    }

    /// Number of entries without listing them (Linux 6.2 and later); absent before.
    pub(super) fn count(&self) -> Option<u64> {
        let size = rustix::fs::fstat(&self.fd).ok()?.st_size;
        let size = u64::try_from(size).ok().filter(|size| *size > 0)?;
        Some(size - (self.mine.len() as u64).min(size))
    }

    /// Reads every number, with more threads if that is worthwhile.
    pub(super) fn read_all(&self, threads: usize) -> Result<TableDraft, Errno> {
        let is_large = self.count().is_none_or(|count| count >= WORTH_A_THREAD);
        let mut buffer = vec![MaybeUninit::uninit(); 1 << 14];
        let listing = Mutex::new(Listing::of(self.listed(), &mut buffer)?);
        let parts = workers::run(if is_large { threads } else { 1 }, || {
            self.read_from(&listing)
        });
        let mut parts = parts.into_iter();
        let mut table = parts
            .next()
            .unwrap_or_else(|| Ok(TableDraft::new(self.pid)))?;
        for part in parts {
            table.absorb(&mut part?);
        }
        table.sort();
        Ok(table)
    }

    fn read_from(&self, listing: &Mutex<Listing<'_>>) -> Result<TableDraft, Errno> {
        let mut reader = Reader::new(self);
        let mut table = TableDraft::new(self.pid);
        let mut numbers = Vec::with_capacity(CHUNK);
        loop {
            if !files::take_shared(listing, CHUNK, &mut numbers)? {
                return Ok(table);
            }
            for number in numbers.iter().filter(|number| !self.mine.contains(number)) {
                table.add_read(reader.read_entry(*number));
            }
        }
    }

    /// Reads each of these numbers.
    pub(super) fn read(&self, numbers: &[Fd]) -> TableDraft {
        let mut reader = Reader::new(self);
        let mut table = TableDraft::new(self.pid);
        for number in numbers {
            table.add_read(reader.read_entry(*number));
        }
        table
    }
}
