//! Finds the processes that hold an address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_core::Pid;
use fdguard_probe::linux::socket_holders::IdentifiedProcess;
use fdguard_probe::{Error, Probe};
use fdguard_proc::ProcKey;
use fdguard_proc::net::{InetKind, SocketRecord};
use fdguard_process::listen::ListenAddress;
use fdguard_process::run_id::{self, RunId};
use jiff::Timestamp;

use super::class::{HolderClass, OwnProcesses, classify};
use super::text;

const LISTENS: u8 = 10;

/// Why an address cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub at: ListenAddress,
    /// Whether a process listens there; otherwise a connection or a bound socket holds it.
    pub listens: bool,
    /// The processes that hold it; several may hold one socket.
    pub holders: Vec<AddressHolder>,
    /// Sockets without a visible process: of another user or PID namespace.
    pub unseen: Vec<HiddenSocket>,
}

/// A process that holds the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressHolder {
    /// Its number.
    pub pid: Pid,
    /// Its start, in clock ticks after boot.
    pub start_ticks: Option<u64>,
    /// Its command, on one line.
    pub command: String,
    /// The user's name, or number.
    pub user: Option<String>,
    /// Its start time.
    pub since: Option<Timestamp>,
    /// How it is related to this run.
    pub class: HolderClass,
}

/// A socket without a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenSocket {
    /// Its inode.
    pub ino: u64,
    /// The user that created it, if the tables show it.
    pub user: Option<String>,
}

impl AddressHolder {
    /// Its identity, safe against pid reuse.
    #[must_use]
    pub fn key(&self) -> Option<ProcKey> {
        let (pid, start_ticks) = (self.pid, self.start_ticks?);
        Some(ProcKey { pid, start_ticks })
    }
}

impl Conflict {
    /// An address in use whose socket is in none of the kernel's tables.
    pub(super) fn without_holder(at: &ListenAddress) -> Self {
        Self {
            at: at.clone(),
            listens: false,
            holders: Vec::new(),
            unseen: Vec::new(),
        }
    }

    /// Whether earlier runs left all of it behind, so that it may be stopped.
    #[must_use]
    pub fn is_all_ours_before(&self) -> bool {
        let before =
            |holder: &AddressHolder| matches!(holder.class, HolderClass::OursBefore { .. });
        self.unseen.is_empty() && !self.holders.is_empty() && self.holders.iter().all(before)
    }
}

/// Finds the holders of this address; `None` if it is free.
pub fn find_conflict(
    probe: &Probe,
    at: &ListenAddress,
    ours: &OwnProcesses<'_>,
) -> Result<Option<Conflict>, Error> {
    let rows = probe.sockets()?;
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(ino, record)| Some((ino, is_in_the_way(at, &record)?, record)))
        .collect();
    let listens = rows.iter().any(|(_, listens, _)| *listens);
    // If there is a listener, its connections do not matter.
    let rows: Vec<_> = rows.into_iter().filter(|row| row.1 == listens).collect();
    // Connections without an owner linger for a minute and do not block a bind.
    let rows: Vec<_> = rows.into_iter().filter(|row| row.0 != 0).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let inodes: Vec<u64> = rows.iter().map(|row| row.0).collect();
    let found = probe.socket_holders(&inodes)?;
    let users = text::Users::read();
    let mut pids: Vec<Pid> = found.by_socket.values().flatten().copied().collect();
    pids.sort_unstable();
    pids.dedup();
    let mut holders = Vec::new();
    for pid in pids {
        match probe.who_is(pid, run_id::VARIABLE) {
            Ok(who) => holders.push(holder(&who, ours, &users)),
            // It exited during the check.
            Err(Error::NoSuchProcess(_) | Error::Vanished(_) | Error::Zombie { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let unseen: Vec<HiddenSocket> = rows
        .iter()
        .filter(|row| !found.by_socket.contains_key(&row.0))
        .map(|(ino, _, record)| HiddenSocket {
            ino: *ino,
            user: uid_of(record).map(|uid| users.name(uid)),
        })
        .collect();
    let conflict = Conflict {
        at: at.clone(),
        listens,
        holders,
        unseen,
    };
    let is_over = conflict.holders.is_empty() && conflict.unseen.is_empty();
    Ok((!is_over).then_some(conflict))
}

fn holder(who: &IdentifiedProcess, ours: &OwnProcesses<'_>, users: &text::Users) -> AddressHolder {
    let process = &who.process;
    AddressHolder {
        pid: process.pid,
        start_ticks: process.start_ticks,
        command: text::command(process),
        user: process.uid.map(|uid| users.name(uid)),
        since: process.start_time,
        class: classify(who, ours, RunId::is_running),
    }
}

fn uid_of(record: &SocketRecord) -> Option<u32> {
    match record {
        SocketRecord::Inet { uid, .. } => Some(*uid),
        _ => None,
    }
}

/// Whether a socket conflicts with an address, and whether it listens there.
#[must_use]
pub fn is_in_the_way(at: &ListenAddress, record: &SocketRecord) -> Option<bool> {
    match (at, record) {
        (
            ListenAddress::Unix(wanted),
            SocketRecord::Unix {
                listening, path, ..
            },
        ) => {
            let path = path.as_deref()?;
            let same = absolute(wanted) == absolute(Path::new(std::ffi::OsStr::from_bytes(path)));
            same.then_some(*listening)
        }
        (
            ListenAddress::Tcp(_) | ListenAddress::Any(_),
            SocketRecord::Inet {
                kind: InetKind::Tcp,
                state,
                local,
                ..
            },
        ) => {
            let wanted = match at {
                ListenAddress::Tcp(address) => *address,
                ListenAddress::Any(port) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), *port),
                ListenAddress::Unix(_) => return None,
            };
            overlap(wanted, *local).then_some(*state == LISTENS)
        }
        _ => None,
    }
}

fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether two sockets cannot both have these addresses. An IPv6 wildcard takes the IPv4 addresses,
/// too, unless its owner disabled that, which the tables do not show: the usual case is assumed.
fn overlap(wanted: SocketAddr, held: SocketAddr) -> bool {
    let (wanted_ip, held_ip) = (plain(wanted.ip()), plain(held.ip()));
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let same = wanted_ip == held_ip
        || wanted_ip == all
        || held_ip == all
        || wanted_ip.is_ipv4() == held_ip.is_ipv4()
            && (wanted_ip.is_unspecified() || held_ip.is_unspecified());
    wanted.port() == held.port() && same
}

/// An IPv4-mapped address of an IPv6 socket is an IPv4 address.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn which_addresses_are_in_each_others_way() {
        for (wanted, held, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "[::]:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
            ("0.0.0.0:80", "[::1]:80", false),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
        ] {
            let (one, other) = (wanted.parse().unwrap(), held.parse().unwrap());
            assert_eq!(overlap(one, other), expected, "{wanted} {held}");
        }
    }
}
