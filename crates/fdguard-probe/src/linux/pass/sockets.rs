//! Identifies the sockets of processes, one network namespace at a time.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{OnceLock, PoisonError};

use fdguard_core::detail::InetPeer;
use fdguard_core::{Class, Detail, Gap, Pid, TcpState};
use fdguard_proc::link::Link;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;

use super::Context;
use crate::linux::borrow::{self, Borrower};
use crate::linux::foreign_netns::{ForeignNetns, Home};
use crate::linux::gaps::{socket_gap, unlisted_gaps};
use crate::linux::socket::{ConnectionEnds, SocketTable};
use crate::linux::socket_entry::{self, SocketDescription};
use crate::linux::table::{Connection, TableDraft};
use crate::linux::{Probe, files};
use crate::parse::sockaddr::SocketName;
use crate::workers;

/// From this many descriptors on, requesting all sockets while the table is read saves more than it
/// costs.
const LARGE: i64 = 4096;

/// Makes an entry of every socket: each namespace is queried once, for all of its processes.
pub(super) fn resolve(context: &Context<'_>, tables: &mut [&mut TableDraft]) {
    let probe = context.probe;
    join_connections(tables);
    let mut by_netns: HashMap<Option<Vec<u8>>, Vec<&TableDraft>> = HashMap::new();
    for table in tables.iter().filter(|table| !table.sockets.is_empty()) {
        by_netns.entry(table.netns.clone()).or_default().push(table);
    }
    if by_netns.is_empty() {
        return;
    }
    let own_netns = files::read_link(&probe.proc, c"self/ns/net").ok();
    let mut ahead = context
        .ahead
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let namespaces: HashMap<_, _> = by_netns
        .into_iter()
        .map(|(netns, members)| {
            let sockets = members.iter().flat_map(|table| &table.sockets);
            let wanted: FxHashSet<u64> = sockets.map(|socket| socket.id.ino).collect();
            let is_own = probe.real && netns.is_some() && netns == own_netns;
            let own = is_own.then(|| files::open_base_at(&probe.proc, c"thread-self").ok());
            let pids = members.iter().map(|table| table.pid);
            let others = pids.filter_map(|pid| probe.still_inside(pid, netns.as_ref()));
            // A thread of fdguard has the tables of its namespace, and does not end meanwhile.
            let mut dirs = own.flatten().into_iter().chain(others);
            let opened = context.base.is_none().then(|| dirs.next()).flatten();
            let inside = context.base.or(opened.as_ref().map(OwnedFd::as_fd));
            let mut found =
                probe.socket_table((netns.as_ref(), is_own), inside, &wanted, &mut ahead);
            let lasts = |dir: &OwnedFd| is_inside(dir, netns.as_ref());
            let add = |dir: &OwnedFd| found.table.add_rare(dir.as_fd(), Some(&wanted));
            read_until_one_lasts(opened, dirs, lasts, add);
            (netns, found)
        })
        .collect();
    let foreign = ForeignNetns::new(probe.proc.as_fd());
    workers::for_each(tables, 16, |table| {
        if let Some(sockets) = namespaces.get(&table.netns)
            && !table.sockets.is_empty()
        {
            table.gaps.extend(sockets.gap.clone());
            probe.resolve_with(table, sockets, &foreign);
        }
    });
}

/// Gives the connections within this host their other ends, where those are among the tables at
/// hand. The others become sockets again, whose namespaces must be read.
fn join_connections(tables: &mut [&mut TableDraft]) {
    let mut known: FxHashMap<(u64, ConnectionEnds), u64> = FxHashMap::default();
    known.reserve(tables.iter().map(|table| table.connections.len()).sum());
    for connection in tables.iter().flat_map(|table| &table.connections) {
        let place = connection.place;
        known.extend(place.map(|(netns, ino)| ((netns, connection.ends), ino)));
    }
    for table in tables {
        let mut connections = std::mem::take(&mut table.connections);
        connections.sort_unstable_by_key(|connection| connection.fd);
        let mut lone = Vec::new();
        let mut rest = &mut table.entries[..];
        for Connection { fd, place, ends } in connections {
            let (local, remote) = ends;
            let other = |(netns, _)| known.get(&(netns, (remote, local))).copied();
            let Some(ino) = place.and_then(other) else {
                lone.push(fd);
                continue;
            };
            // Both lists are ascending.
            let before = rest.iter().take_while(|entry| entry.fd < fd).count();
            rest = &mut rest[before..];
            if let Some(entry) = rest.first_mut().filter(|entry| entry.fd == fd) {
                set_other_end(&mut entry.detail, ino);
            }
        }
        table.unresolve(&lone);
    }
}

fn set_other_end(detail: &mut Detail, ino: u64) {
    if let Detail::Inet(inet) = detail {
        inet.peer = Some(InetPeer {
            ino,
            ..InetPeer::default()
        });
    }
}

impl Probe {
    /// Whether to request all sockets while these processes are read through `/proc`: many
    /// processes have some, and for a large one in fdguard's network namespace that saves more than
    /// it costs.
    pub(in crate::linux) fn wants_sockets_ahead(&self, pids: &[Pid], many: usize) -> bool {
        let [pid] = pids else {
            return self.real && pids.len() >= many;
        };
        let large = || {
            self.table_stat(*pid)
                .is_ok_and(|stat| stat.st_size >= LARGE)
        };
        let netns = |who: String| files::read_link(&self.proc, format!("{who}/ns/net")).ok();
        self.sizes && large() && netns(pid.to_string()) == netns("self".to_owned())
    }

    /// The directory of a process, if it is still in this network namespace.
    fn still_inside(&self, pid: Pid, netns: Option<&Vec<u8>>) -> Option<OwnedFd> {
        let base = self.open_process(pid).ok()?;
        is_inside(&base, netns).then_some(base)
    }

    fn socket_table(
        &self,
        (netns, is_own): (Option<&Vec<u8>>, bool),
        inside: Option<BorrowedFd<'_>>,
        wanted: &FxHashSet<u64>,
        ahead: &mut Option<SocketTable>,
    ) -> Sockets {
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
        let by_text = || inside.map(|base| SocketTable::by_text(base, wanted));
        let mut table = by_netlink.or_else(by_text).unwrap_or_default();
        if let Some(inside) = inside {
            table.add_rare(inside, Some(wanted));
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

    /// Makes entries of the sockets of one process.
    fn resolve_with(&self, table: &mut TableDraft, sockets: &Sockets, foreign: &ForeignNetns<'_>) {
        let mut borrower = None;
        let (mut unasked, mut unseen) = (0, 0);
        table.entries.reserve(table.sockets.len());
        for socket in std::mem::take(&mut table.sockets) {
            let (fd, ino) = (socket.fd, socket.id.ino);
            if let Some(mut known) = sockets.table.describe(ino) {
                known.detail.set_netns(sockets.home.ino);
                table.entries.push(socket.resolve(known));
                continue;
            }
            let protocol = self.protocol_name(table.pid, fd, ino);
            let complete = sockets.table.complete;
            let mut known = socket_entry::by_protocol(ino, protocol.as_deref(), complete);
            let borrower = borrower
                .get_or_insert_with(|| self.real.then(|| Borrower::new(table.pid)).flatten());
            match borrower.as_ref().map(|it| it.borrow(fd, ino)) {
                Some(Ok(borrowed)) => {
                    let is_settled = ask_borrowed(&mut known, ino, &borrowed, sockets, foreign);
                    unseen += u64::from(!is_settled);
                }
                // The number was reused.
                Some(Err(Errno::BADF | Errno::SRCH)) => {}
                // If the tables were not read, there is already a gap.
                _ => unasked += u64::from(complete && self.real),
            }
            table.entries.push(socket.resolve(known));
        }
        table.sort();
        table.gaps.extend(unlisted_gaps(unasked, unseen));
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

/// Completes a socket that the tables of its process's namespace do not list, through a duplicate
/// of the descriptor; `false` if a table of another namespace would have more.
fn ask_borrowed(
    known: &mut SocketDescription,
    ino: u64,
    socket: &OwnedFd,
    sockets: &Sockets,
    foreign: &ForeignNetns<'_>,
) -> bool {
    let place = foreign.place(socket.as_fd(), sockets.home);
    if let Some(listed) = place.table().and_then(|table| table.describe(ino)) {
        *known = listed;
        known.detail.set_netns(place.ino());
        return true;
    }
    let answer = borrow::ask_socket(socket);
    let bound = answer.local.as_ref().and_then(SocketName::inet);
    let is_bound = bound.is_some_and(|local| local.port() != 0);
    if is_bound
        && !place.is_foreign()
        && let Some(listed) = sockets.describe_late(ino)
    {
        *known = listed;
        known.detail.set_netns(sockets.home.ino);
        return true;
    }
    let interface = borrow::interface_name(socket, &answer);
    let answered = socket_entry::by_answer(known, &answer, interface);
    let has_answered = answered.is_some();
    if let Some(answered) = answered {
        *known = answered;
    }
    known.detail.set_netns(place.ino());
    // A socket that is closed or has no address is in no table, whatever the namespace.
    let is_listed = has_answered && known.class != Class::Tcp(TcpState::Close);
    !is_listed || place.is_settled() || !has_table(&known.class)
}

/// Whether sockets of this class are in tables that have more than the socket itself.
fn has_table(class: &Class) -> bool {
    matches!(class, Class::Tcp(_) | Class::Udp | Class::Unix)
}

/// Whether the process of this directory runs, in this network namespace.
fn is_inside(base: &OwnedFd, netns: Option<&Vec<u8>>) -> bool {
    files::read_link(base, c"ns/net").ok().as_ref() == netns
}

/// Reads again from other processes, until one was there to the end: the tables of a process that
/// ends become empty. `first` was read.
fn read_until_one_lasts<D>(
    first: Option<D>,
    mut others: impl Iterator<Item = D>,
    lasts: impl Fn(&D) -> bool,
    mut read: impl FnMut(&D),
) {
    let mut last = first;
    while let Some(ended) = last.take_if(|dir| !lasts(dir)) {
        drop(ended);
        last = others.next();
        last.iter().for_each(&mut read);
    }
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
    /// A socket that came into use after the table was read.
    fn describe_late(&self, ino: u64) -> Option<SocketDescription> {
        let late = self.late.as_ref()?;
        late.get_or_init(|| SocketTable::by_netlink(None).unwrap_or_default())
            .describe(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::read_until_one_lasts;

    /// Which processes are read after the first, if these end meanwhile.
    fn read_after(first: Option<u32>, ended: &[u32]) -> Vec<u32> {
        let mut read = Vec::new();
        let lasts = |pid: &u32| !ended.contains(pid);
        read_until_one_lasts(first, [2, 3, 4].into_iter(), lasts, |pid| read.push(*pid));
        read
    }

    #[test]
    fn tables_of_a_process_that_ended_are_read_from_another() {
        assert_eq!(read_after(Some(1), &[]), [0_u32; 0]);
        assert_eq!(read_after(Some(1), &[1]), [2]);
        assert_eq!(read_after(Some(1), &[1, 2, 3]), [2, 3, 4]);
        assert_eq!(read_after(Some(1), &[1, 2, 3, 4]), [2, 3, 4]);
        assert_eq!(read_after(None, &[]), [0_u32; 0]);
    }
}
