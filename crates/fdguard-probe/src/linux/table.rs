//! One process's descriptor table: every number in it is read once.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use fdguard_core::{Fd, FdEntry};
use rustix::io::Errno;

use super::epoll::Registrations;
use super::files::{self, Listing};
use super::mounts::Mounts;
use super::reader::{ReadState, Reader};
use crate::workers;

/// Below this a second thread costs more than it saves.
const WORTH_A_THREAD: u64 = 512;
const CHUNK: usize = 128;

/// The content of one table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Ascending by number.
    pub(super) entries: Vec<FdEntry>,
    /// Numbers of the sockets among them: their class is not known yet.
    pub(super) sockets: Vec<Fd>,
    /// Registrations of the epoll instances among them.
    pub(super) epolls: Vec<Registrations>,
    /// How many numbers were in use when they were listed.
    pub(super) listed: u64,
    /// Descriptors that exist but may not be read.
    pub(super) denied: u64,
    /// Descriptors that were reused faster than they could be read.
    pub(super) unstable: u64,
    /// Why reading failed, if not because of the target: fdguard's own table or the host's is full.
    pub(super) trouble: Option<Errno>,
    /// Whether it comes from a kernel walk.
    pub(super) by_kernel: bool,
}

impl Table {
    pub(super) fn absorb(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
        self.sockets.append(&mut other.sockets);
        self.epolls.append(&mut other.epolls);
        self.listed += other.listed;
        self.denied += other.denied;
        self.unstable += other.unstable;
        self.trouble = self.trouble.or(other.trouble);
    }

    /// How many descriptors there were, readable or not.
    pub(super) fn count(&self) -> u64 {
        self.entries.len() as u64 + self.denied + self.unstable
    }

    pub(super) fn add(&mut self, seen: ReadState) {
        match seen {
            ReadState::Entry(entry) => self.entries.push(entry),
            ReadState::Socket(entry) => {
                self.sockets.push(entry.fd);
                self.entries.push(entry);
            }
            ReadState::Epoll(entry, registrations) => {
                self.epolls.push((entry.fd, registrations));
                self.entries.push(entry);
            }
            ReadState::Gone => {}
            ReadState::Denied => self.denied += 1,
            ReadState::Unstable => self.unstable += 1,
            ReadState::Trouble(error) => self.trouble = Some(error),
        }
    }
}

/// The open directories of one process's table.
#[derive(Debug)]
pub(super) struct TableDir {
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
    pub(super) fn read_all(&self, threads: usize) -> Result<Table, Errno> {
        let is_large = self.count().is_none_or(|count| count >= WORTH_A_THREAD);
        let mut buffer = vec![MaybeUninit::uninit(); 1 << 14];
        let listing = Mutex::new(Listing::of(self.listed(), &mut buffer)?);
        let parts = workers::run(if is_large { threads } else { 1 }, || {
            self.read_from(&listing)
        });
        let mut parts = parts.into_iter();
        let mut table = parts.next().unwrap_or_else(|| Ok(Table::default()))?;
        for part in parts {
            table.absorb(part?);
        }
        if !table.entries.is_sorted_by_key(|entry| entry.fd) {
            table.entries.sort_unstable_by_key(|entry| entry.fd);
        }
        Ok(table)
    }

    fn read_from(&self, listing: &Mutex<Listing<'_>>) -> Result<Table, Errno> {
        let mut reader = Reader::new(self);
        let mut table = Table::default();
        let mut numbers = Vec::with_capacity(CHUNK);
        loop {
            if !files::take_shared(listing, CHUNK, &mut numbers)? {
                return Ok(table);
            }
            for number in numbers.iter().filter(|number| !self.mine.contains(number)) {
                table.listed += 1;
                table.add(reader.read_entry(*number));
            }
        }
    }

    /// Reads each of these numbers.
    pub(super) fn read(&self, numbers: &[Fd]) -> Table {
        let mut reader = Reader::new(self);
        let mut table = Table::default();
        for number in numbers {
            table.listed += 1;
            table.add(reader.read_entry(*number));
        }
        table
    }
}
