//! Finds the processes that have a socket open, by its address.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use fdguard_core::Pid;
use fdguard_core::snapshot::Process;
use fdguard_proc::net::{self, InetKind, SocketRow};
use rustix::io::Errno;

use super::kernel::KernelReader;
use super::kernel::search::Glimpse;
use super::search::{Interest, Thing};
use super::socket::SocketTable;
use super::{Probe, files};
use crate::Error;

/// The holders of sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketHolders {
    /// By the inode of the socket, each list ascending and without duplicates. Sockets without a
    /// visible holder are missing.
    pub by_socket: BTreeMap<u64, Vec<Pid>>,
    /// Processes that could not be read: absence proves nothing while there are any.
    pub unread: u64,
}

/// A process, read through one directory: everything belongs to the same process.
#[derive(Clone, Debug)]
pub struct IdentifiedProcess {
    /// The process.
    pub process: Process,
    /// The requested variable, as set in its environment at its start; absent if it is not set.
    pub variable: Option<Vec<u8>>,
    /// Whether its environment could be read.
    pub environment_read: bool,
    /// Whether it is in fdguard's pid namespace; absent if unknown.
    pub same_pid_namespace: Option<bool>,
}

impl Probe {
    /// Every TCP, UDP and Unix socket of fdguard's network namespace: by netlink, otherwise by the
    /// text tables.
    pub fn sockets(&self) -> Result<Vec<SocketRow>, Error> {
        match SocketTable::by_netlink(None) {
            Ok(table) => Ok(table.into_rows().collect()),
            Err(_) => self.sockets_by_text(),
        }
    }

    fn sockets_by_text(&self) -> Result<Vec<SocketRow>, Error> {
        let mut rows = Vec::new();
        let read = |name: &str| files::read(&self.proc, format!("self/net/{name}"));
        let tcp = read("tcp").map_err(|error| Error::io("the socket table", error))?;
        rows.extend(net::inet(InetKind::Tcp, &tcp));
        for (name, kind) in [
            ("tcp6", InetKind::Tcp),
            ("udp", InetKind::Udp),
            ("udp6", InetKind::Udp),
        ] {
            // A machine without IPv6 has no such table.
            let bytes = read(name).unwrap_or_default();
            rows.extend(net::inet(kind, &bytes));
        }
        rows.extend(net::unix(&read("unix").unwrap_or_default()));
        Ok(rows)
    }

    /// Finds the holders of these sockets: one search of the links of all processes, including
    /// fdguard.
    pub fn socket_holders(&self, inodes: &[u64]) -> Result<SocketHolders, Error> {
        let mut pids = self.pids()?;
        pids.retain(|pid| self.holds_something(*pid));
        let interest = Interest::in_sockets(inodes);
        let may_include = |glimpse: Glimpse<'_>| interest.may_include(glimpse);
        let kept = self.keep_holders(&KernelReader::default(), &pids, may_include);
        let holdings = self.search(&kept.unwrap_or(pids), &interest, 1);
        let mut by_socket = BTreeMap::new();
        for ino in inodes {
            let held = holdings.of(&Thing::Socket(*ino)).iter();
            let mut held: Vec<Pid> = held.map(|it| it.pid).collect();
            held.sort_unstable();
            held.dedup();
            if !held.is_empty() {
                by_socket.insert(*ino, held);
            }
        }
        let unread = holdings.unread + u64::from(self.hides);
        Ok(SocketHolders { by_socket, unread })
    }

    /// A process, and the value of a variable in its environment.
    pub fn who_is(&self, pid: Pid, variable: &str) -> Result<IdentifiedProcess, Error> {
        let base = self.open_process(pid)?;
        let process = self.basics(pid, base.as_fd())?.process;
        let environment = files::read(&base, c"environ");
        let namespace = |base, path| files::read_link(base, path).ok();
        let theirs = namespace(base.as_fd(), c"ns/pid");
        let ours = namespace(self.proc.as_fd(), c"self/ns/pid");
        let identified = IdentifiedProcess {
            process,
            environment_read: environment.is_ok(),
            variable: environment.ok().and_then(|it| value_of(&it, variable)),
            same_pid_namespace: theirs.zip(ours).map(|(theirs, ours)| theirs == ours),
        };
        // It may have exited meanwhile; then unreadable files say nothing about it.
        match files::read(&base, c"stat") {
            Err(Errno::SRCH | Errno::NOENT) => Err(Error::Vanished(pid)),
            _ => Ok(identified),
        }
    }
}

fn value_of(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut all = environment.split(|byte| *byte == 0);
    all.find_map(|pair| {
        let rest = pair.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=").map(<[u8]>::to_vec)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::value_of;
    use crate::Probe;
    use fdguard_proc::net::SocketRecord;

    #[test]
    fn the_value_of_a_whole_name() {
        let environment = b"AB=1\0A=2=3\0EMPTY=\0";
        assert_eq!(value_of(environment, "A").as_deref(), Some(&b"2=3"[..]));
        assert_eq!(value_of(environment, "EMPTY").as_deref(), Some(&b""[..]));
        assert_eq!(value_of(environment, "B"), None);
    }

    #[test]
    fn our_own_listener_is_found_by_both_ways_and_is_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let probe = Probe::new().unwrap();
        let find = |rows: Vec<(u64, SocketRecord)>| {
            let mut rows = rows.into_iter();
            let found = rows.find(|(_, record)| {
                matches!(record, SocketRecord::Inet { local, state: 10, .. } if *local == address)
            });
            found.unwrap().0
        };
        let ino = find(probe.sockets().unwrap());
        assert_eq!(find(probe.sockets_by_text().unwrap()), ino);
        let holders = probe.socket_holders(&[ino, u64::MAX]).unwrap();
        assert_eq!(holders.by_socket.len(), 1);
        assert_eq!(holders.by_socket[&ino], [std::process::id()]);
        let own = probe.who_is(std::process::id(), "PATH").unwrap();
        assert!(own.environment_read && own.same_pid_namespace == Some(true));
        let path = std::env::var_os("PATH").map(std::ffi::OsString::into_encoded_bytes);
        assert_eq!(own.variable, path);
    }
}
