//! Reads the queues of listening sockets: by `sock_diag`, otherwise from the text tables.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;
use std::{fs, io};

use fdguard_probe::parse::diag::{self, DiagEnd, DiagTable};
use fdguard_proc::link::Link;
use fdguard_proc::net::{self, InetKind, SocketRecord, SocketRow};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::accept::{AcceptQueue, Listener};

const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// How many descriptors of one process are searched for listeners: servers open them first, and a
/// process that leaks has many.
const LOWEST: usize = 1024;

/// The connections waiting at these sockets, by port.
pub fn read_queues(listeners: &[Listener]) -> io::Result<BTreeMap<u16, AcceptQueue>> {
    let ours: BTreeSet<u64> = listeners.iter().map(|one| one.ino).collect();
    let ports: BTreeSet<u16> = listeners.iter().map(|one| one.address.port()).collect();
    let mut looks = BTreeMap::new();
    for port in ports {
        let mut queue = AcceptQueue::default();
        each(&[LISTEN], port, |ino, _, _, length| {
            if ours.contains(&ino) {
                queue.listens = true;
                queue.length = queue.length.saturating_add(length);
            }
        })?;
        if queue.length > 0 {
            // No process holds them yet: they have no inode.
            each(&[ESTABLISHED, CLOSE_WAIT], port, |ino, _, remote, _| {
                if ino == 0 {
                    queue.waiting.insert(remote);
                }
            })?;
        }
        looks.insert(port, queue);
    }
    Ok(looks)
}

/// The TCP sockets on which these processes listen.
pub fn find(pids: &[u32]) -> io::Result<Vec<Listener>> {
    let held: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets(*pid)).collect();
    let mut found = Vec::new();
    each(&[LISTEN], 0, |ino, local, _, _| {
        if held.contains(&ino) {
            found.push(Listener {
                ino,
                address: local,
            });
        }
    })?;
    found.sort();
    found.dedup();
    Ok(found)
}

/// Inodes of the sockets among the lowest numbers of a process; empty if it is gone or cannot be
/// read.
fn sockets(pid: u32) -> Vec<u64> {
    let dir = format!("/proc/{pid}/fd");
    let Ok(entries) = fs::read_dir(&dir) else {
        return Vec::new();
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.truncate(LOWEST);
    let link = |number: &u32| fs::read_link(format!("{dir}/{number}")).ok();
    let inode = |number: &u32| {
        let target = link(number)?;
        Link::parse(target.as_os_str().as_bytes()).socket()
    };
    numbers.iter().filter_map(inode).collect()
}

/// Passes on the inode, both addresses and the receive queue of each TCP socket in one of these
/// states at this port (0: any).
fn each(
    states: &[u8],
    port: u16,
    mut row: impl FnMut(u64, SocketAddr, SocketAddr, u32),
) -> io::Result<()> {
    let mut take = |(ino, record): SocketRow| {
        if let SocketRecord::Inet {
            state,
            local,
            remote,
            rx,
            ..
        } = record
            && states.contains(&state)
            && (port == 0 || local.port() == port)
        {
            row(ino, local, remote, rx);
        }
    };
    match by_netlink(states, port, &mut take) {
        Ok(()) => Ok(()),
        Err(_) => by_text(&mut take),
    }
}

fn by_netlink(states: &[u8], port: u16, take: &mut impl FnMut(SocketRow)) -> Result<(), Errno> {
    let protocol = Some(rustix::net::netlink::SOCK_DIAG);
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    // The kernel replies within the call; this is a safeguard.
    sockopt::set_socket_timeout(
        &socket,
        sockopt::Timeout::Recv,
        Some(Duration::from_secs(1)),
    )?;
    let states = states.iter().fold(0, |bits, state| bits | 1 << state);
    let mut buffer = vec![0; 32 << 10];
    // Read all before passing any on, so that an error does not report one twice.
    let mut rows = Vec::new();
    for table in [DiagTable::Tcp4, DiagTable::Tcp6] {
        rustix::net::send(
            &socket,
            &table.request_for(states, port),
            SendFlags::empty(),
        )?;
        read(&socket, table, &mut buffer, &mut rows)?;
    }
    rows.into_iter().for_each(take);
    Ok(())
}

fn read(
    socket: &OwnedFd,
    table: DiagTable,
    buffer: &mut [u8],
    rows: &mut Vec<SocketRow>,
) -> Result<(), Errno> {
    loop {
        let (count, _) = rustix::net::recv(socket, &mut *buffer, RecvFlags::empty())?;
        match diag::read_datagram(table, &buffer[..count], |row| rows.push(row)) {
            DiagEnd::More if count > 0 => {}
            DiagEnd::Refused(code) => return Err(Errno::from_raw_os_error(code)),
            DiagEnd::More | DiagEnd::Done => return Ok(()),
        }
    }
}

fn by_text(take: &mut impl FnMut(SocketRow)) -> io::Result<()> {
    let first = fs::read("/proc/self/net/tcp")?;
    net::inet(InetKind::Tcp, &first).for_each(&mut *take);
    // A machine without IPv6 has no such table.
    if let Ok(second) = fs::read("/proc/self/net/tcp6") {
        net::inet(InetKind::Tcp, &second).for_each(take);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::{by_text, find, read_queues};
    use crate::health::accept::{AcceptProgress, Listener};

    fn ours(listener: &TcpListener) -> Listener {
        Listener {
            ino: rustix::fs::fstat(listener.as_fd()).unwrap().st_ino,
            address: listener.local_addr().unwrap(),
        }
    }

    #[test]
    fn r30_a_server_that_takes_nothing_is_seen_and_one_that_does_is_not() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let known = [ours(&server)];
        let port = known[0].address.port();
        let mut progress = AcceptProgress::default();
        let mut judge = || progress.seen(read_queues(&known).unwrap());
        assert_eq!(judge(), Ok(()));
        let dial = || TcpStream::connect(known[0].address).unwrap();
        let clients = [dial(), dial()];
        assert_eq!(judge(), Ok(()), "they came since");
        let why = judge().unwrap_err();
        assert_eq!(
            why,
            format!("accepts no connections: 2 connections are waiting on port {port}")
        );
        let _more = dial();
        assert!(judge().is_err(), "one more came, none was taken");
        let (taken, _) = server.accept().unwrap();
        let _last = dial();
        assert_eq!(
            judge(),
            Ok(()),
            "one was taken, one came: as many wait as before"
        );
        drop((taken, clients));
    }

    #[test]
    fn a_servers_listeners_are_found_by_its_process() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0").ok();
        let _connected = TcpStream::connect(four.local_addr().unwrap()).unwrap();
        let found = find(&[std::process::id()]).unwrap();
        assert!(found.contains(&ours(&four)), "{found:?}");
        let expected = 1 + usize::from(six.is_some());
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn the_text_tables_say_the_same() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let wanted = ours(&server);
        let mut queue = None;
        by_text(&mut |(ino, record)| {
            if ino == wanted.ino {
                queue = Some(record);
            }
        })
        .unwrap();
        let Some(fdguard_proc::net::SocketRecord::Inet { rx, local, .. }) = queue else {
            panic!("{queue:?}")
        };
        assert_eq!((rx, local), (1, wanted.address));
    }

    #[test]
    fn a_socket_that_is_gone_is_told() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let known = [ours(&server)];
        drop(server);
        let mut progress = AcceptProgress::default();
        assert!(
            progress
                .seen(read_queues(&known).unwrap())
                .unwrap_err()
                .contains("nothing listens")
        );
    }
}
