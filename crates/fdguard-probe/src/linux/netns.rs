//! Identifies the sockets of processes, one network namespace at a time.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use fdguard_core::{Class, FdEntry, Gap, Pid, TcpState};
use fdguard_proc::link::Link;
use rustc_hash::FxHashSet;
use rustix::io::Errno;

use super::borrow::{self, Borrower};
use super::draft::Draft;
use super::foreign_netns::{ForeignNetns, Home};
use super::gaps::{socket_gap, unlisted_gaps};
use super::socket::SocketTable;
use super::table::Table;
use super::{Probe, files, socket_entry};
use crate::parse::sockaddr::SocketName;
use crate::workers;

/// From this many descriptors on, requesting all sockets while the table is read saves more than it
/// costs.
const LARGE: i64 = 4096;

impl Probe {
    /// Fills in every socket: each namespace is queried once, for all of its processes.
    pub(super) fn describe_sockets(&self, drafts: &mut [Draft], mut ahead: Option<SocketTable>) {
        let mut by_netns: HashMap<Option<Vec<u8>>, Vec<&Draft>> = HashMap::new();
        for draft in drafts.iter() {
            if draft
                .table
                .as_ref()
                .is_some_and(|table| !table.sockets.is_empty())
            {
                by_netns.entry(draft.netns.clone()).or_default().push(draft);
            }
        }
        let own_netns = files::read_link(&self.proc, c"self/ns/net").ok();
        let tables: HashMap<_, _> = by_netns
            .into_iter()
            .map(|(netns, members)| {
                let tables = members.iter().filter_map(|draft| draft.table.as_ref());
                let wanted = tables.flat_map(socket_inodes).collect();
                let inside = members
                    .iter()
                    .find_map(|draft| self.still_inside(draft.pid, netns.as_ref()));
                let place = (netns.as_ref(), own_netns.as_ref());
                let found = self.socket_table(place, inside.as_ref(), &wanted, &mut ahead);
                (netns, found)
            })
            .collect();
        let foreign = ForeignNetns::new(self.proc.as_fd());
        workers::for_each(drafts, 16, |draft| {
            if let Some(sockets) = tables.get(&draft.netns) {
                draft.gaps.extend(sockets.gap.clone());
                if let Some(table) = &mut draft.table {
                    let unlisted = self.describe_with(draft.pid, table, sockets, &foreign);
                    draft.gaps.extend(unlisted);
                }
            }
        });
    }

    /// Whether a process is large enough to request its sockets in advance, and shares fdguard's
    /// network namespace.
    pub(super) fn wants_sockets_ahead(&self, pid: Pid) -> bool {
        let large = || self.table_stat(pid).is_ok_and(|stat| stat.st_size >= LARGE);
        let netns = |who: String| files::read_link(&self.proc, format!("{who}/ns/net")).ok();
        let ours = pid == std::process::id();
        self.sizes && !ours && large() && netns(pid.to_string()) == netns("self".to_owned())
    }

    /// The directory of a process, if it is still in this network namespace.
    fn still_inside(&self, pid: Pid, netns: Option<&Vec<u8>>) -> Option<OwnedFd> {
        let base = self.open_process(pid).ok()?;
        let now = files::read_link(&base, c"ns/net").ok();
        (now.as_ref() == netns).then_some(base)
    }

    fn socket_table(
        &self,
        (netns, own): (Option<&Vec<u8>>, Option<&Vec<u8>>),
        inside: Option<&OwnedFd>,
        wanted: &FxHashSet<u64>,
        ahead: &mut Option<SocketTable>,
    ) -> Sockets {
        let is_own = netns.is_some() && netns == own;
        let is_ahead = is_own && ahead.is_some();
        let by_netlink = if !self.real {
            None
        } else if is_own {
            ahead
                .take()
                .or_else(|| SocketTable::by_netlink(Some(wanted)).ok())
        } else {
            inside
                .and_then(|base| files::open_file_at(base, c"ns/net").ok())
                .and_then(|file| SocketTable::by_netlink_in(file.as_fd(), Some(wanted)).ok())
        };
        let without_netlink = by_netlink.is_none();
        let by_text = || inside.map(|base| SocketTable::by_text(base.as_fd(), wanted));
        let mut table = by_netlink.or_else(by_text).unwrap_or_default();
        if let Some(inside) = inside {
            table.add_rare(inside.as_fd(), Some(wanted));
        }
        let is_less = without_netlink && (self.real || !table.complete);
        let gap = is_less.then(|| socket_gap(table.complete));
        Sockets {
            table,
            gap,
            late: is_ahead.then(OnceLock::new),
            home: Home {
                ino: netns.and_then(|netns| inode(netns)),
                is_ours: is_own,
            },
        }
    }

    /// Fills in the sockets of a table that was read alone.
    pub(super) fn describe_alone(&self, pid: Pid, base: &OwnedFd, table: &mut Table) {
        if table.sockets.is_empty() {
            return;
        }
        let netns = files::read_link(base, c"ns/net").ok();
        let own = files::read_link(&self.proc, c"self/ns/net").ok();
        let wanted = socket_inodes(table).collect();
        let place = (netns.as_ref(), own.as_ref());
        let sockets = self.socket_table(place, Some(base), &wanted, &mut None);
        let foreign = ForeignNetns::new(self.proc.as_fd());
        self.describe_with(pid, table, &sockets, &foreign);
    }

    /// Fills in the sockets of one process; returns what stayed unknown about those that no table
    /// lists.
    fn describe_with(
        &self,
        pid: Pid,
        table: &mut Table,
        sockets: &Sockets,
        foreign: &ForeignNetns<'_>,
    ) -> Vec<Gap> {
        let mut borrower = None;
        let (mut unasked, mut unseen) = (0, 0);
        for fd in &table.sockets {
            let Ok(at) = table.entries.binary_search_by_key(fd, |entry| entry.fd) else {
                continue;
            };
            let entry = &mut table.entries[at];
            let Some(id) = entry.id else { continue };
            if sockets.table.describe(entry) {
                entry.detail.set_netns(sockets.home.ino);
                continue;
            }
            let protocol = self.protocol_name(pid, *fd, id.ino);
            let complete = sockets.table.complete;
            socket_entry::describe_by_protocol(entry, protocol.as_deref(), complete);
            if !self.real {
                continue;
            }
            let borrower = borrower.get_or_insert_with(|| Borrower::new(pid));
            match borrower.as_ref().map(|it| it.borrow(*fd, id.ino)) {
                Some(Ok(socket)) => {
                    let known = describe_borrowed(entry, &socket, sockets, foreign);
                    unseen += u64::from(!known);
                }
                // The number was reused.
                Some(Err(Errno::BADF | Errno::SRCH)) => {}
                // If the tables were not read, there is already a gap.
                _ => unasked += u64::from(complete),
            }
        }
        unlisted_gaps(unasked, unseen)
    }

    /// The protocol name that the kernel keeps as an attribute of a socket's inode; `None` if the
    /// number was reused.
    fn protocol_name(&self, pid: Pid, fd: u32, ino: u64) -> Option<String> {
        if !self.real {
            return None;
        }
        let path = self.path.join(format!("{pid}/fd/{fd}"));
        let mut buffer = [0; 64];
        let length = rustix::fs::getxattr(&path, c"system.sockprotoname", &mut buffer[..]).ok()?;
        let same = rustix::fs::stat(&path).is_ok_and(|stat| stat.st_ino == ino);
        let name = buffer.get(..length).filter(|_| same)?;
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// Fills in a socket that the tables of its process's namespace do not list, through a duplicate of
/// the descriptor; `false` if a table of another namespace would have more.
fn describe_borrowed(
    entry: &mut FdEntry,
    socket: &OwnedFd,
    sockets: &Sockets,
    foreign: &ForeignNetns<'_>,
) -> bool {
    let place = foreign.place(socket.as_fd(), sockets.home);
    if let Some(table) = place.table()
        && table.describe(entry)
    {
        entry.detail.set_netns(place.ino());
        return true;
    }
    let answer = borrow::ask_socket(socket);
    let bound = answer.local.as_ref().and_then(SocketName::inet);
    let is_bound = bound.is_some_and(|local| local.port() != 0);
    if is_bound && !place.is_foreign() && sockets.describe_late(entry) {
        entry.detail.set_netns(sockets.home.ino);
        return true;
    }
    let interface = borrow::interface_name(socket, &answer);
    let said = socket_entry::describe_by_answer(entry, &answer, interface);
    entry.detail.set_netns(place.ino());
    // A socket that is closed or has no address is in no table, whatever the namespace.
    let is_listed = said && entry.class != Class::Tcp(TcpState::Close);
    !is_listed || place.is_settled() || !has_table(&entry.class)
}

/// Whether sockets of this class are in tables that have more than the socket itself.
fn has_table(class: &Class) -> bool {
    matches!(class, Class::Tcp(_) | Class::Udp | Class::Unix)
}

/// The number in `net:[4026531840]`.
fn inode(link: &[u8]) -> Option<u64> {
    match Link::parse(link) {
        Link::Numbered { ino, .. } => Some(ino),
        _ => None,
    }
}

/// The sockets of one namespace.
struct Sockets {
    table: SocketTable,
    /// What could not be determined.
    gap: Option<Gap>,
    /// Requested when a table that was read in advance lacks a socket that is in use by now.
    late: Option<OnceLock<SocketTable>>,
    /// Which namespace it is.
    home: Home,
}

impl Sockets {
    /// Fills in a socket that came into use after the table was read; `false` if it did not.
    fn describe_late(&self, entry: &mut FdEntry) -> bool {
        let Some(late) = &self.late else { return false };
        late.get_or_init(|| SocketTable::by_netlink(None).unwrap_or_default())
            .describe(entry)
    }
}

fn socket_inodes(table: &Table) -> impl Iterator<Item = u64> {
    table.sockets.iter().filter_map(|fd| {
        let at = table
            .entries
            .binary_search_by_key(fd, |entry| entry.fd)
            .ok()?;
        table.entries[at].id.map(|id| id.ino)
    })
}
