//! Determines whether a caller is a process of a scope. Such a caller dies with the scope and must
//! get its answer before.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use fdguard_probe::Probe;
use fdguard_proc::net::{InetKind, SocketRecord, SocketRow};
use fdguard_proc::process::stat;
use rustix::net::sockopt::socket_peercred;

use super::Scope;
use super::leftover::carries;
use super::resource::Resource;

/// More generations than any real tree has: parents are read one by one, and could be read in a
/// circle.
const GENERATIONS: usize = 4096;

impl Scope {
    /// Whether a process belongs to it: it is below the keeper of one of its programs or below a
    /// session, or carries the scope's mark. Reads a few files of `/proc`.
    #[must_use]
    pub fn is_inside(&self, pid: u32) -> bool {
        let heads = self.heads();
        let has_mark = |mark: &String| carries(pid, mark).unwrap_or(false);
        self.mark.as_ref().is_some_and(has_mark)
            || ancestry(pid, parent).any(|it| heads.contains(&it))
    }

    /// The processes below which everything is the scope's.
    fn heads(&self) -> BTreeSet<u32> {
        let mut heads = BTreeSet::new();
        let mut sessions = Vec::new();
        for entry in self.state().entries.iter().flatten() {
            match &entry.resource {
                Resource::Program { program, .. } if program.state().over.is_none() => {
                    heads.insert(program.keeper());
                }
                Resource::Process { identity } if identity.is_alive() => {
                    heads.insert(identity.pid);
                }
                Resource::Session { id } => sessions.push(id.clone()),
                _ => {}
            }
        }
        if let Some(host) = &self.means.host {
            // Those that lost their parent are among its members, too.
            let members = sessions.iter().filter_map(|id| host.members(id).ok());
            heads.extend(members.flatten());
        }
        heads
    }
}

/// The process at the other end of a unix socket, as recorded by the kernel when it connected.
#[must_use]
pub fn unix_caller(socket: impl AsFd) -> Option<u32> {
    let peer = socket_peercred(socket).ok()?;
    u32::try_from(peer.pid.as_raw_pid()).ok()
}

/// The processes that hold the other end of a loopback connection: `peer` is their address, `local`
/// the host's. It blocks for some milliseconds.
#[must_use]
pub fn tcp_callers(local: SocketAddr, peer: SocketAddr) -> Vec<u32> {
    let find = || {
        let probe = Probe::new().ok()?;
        let rows = probe.sockets().ok()?;
        let row = rows.iter().find(|row| is_end(row, peer, local))?;
        let holders = probe.socket_holders(&[row.0]).ok()?;
        holders.by_socket.into_values().next()
    };
    find().unwrap_or_default()
}

/// Whether a row of the kernel's table is the end with this address of a connection to that one. A
/// dual-stack socket writes an IPv4 address in its own form.
fn is_end((_, record): &SocketRow, local: SocketAddr, remote: SocketAddr) -> bool {
    let same = |a: SocketAddr, b: SocketAddr| {
        (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
    };
    match record {
        SocketRecord::Inet {
            kind: InetKind::Tcp,
            local: its,
            remote: other,
            ..
        } => same(*its, local) && same(*other, remote),
        _ => false,
    }
}

/// A process, its parent, and so on.
fn ancestry(pid: u32, parent: impl Fn(u32) -> Option<u32>) -> impl Iterator<Item = u32> {
    let above = move |pid: &u32| parent(*pid).filter(|above| *above != 0);
    std::iter::successors(Some(pid), above).take(GENERATIONS)
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, |stat| stat.ppid).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_ends_at_the_top_and_in_circles() {
        let up = |pid| {
            [(5, 4), (4, 1), (1, 0)]
                .iter()
                .find(|it| it.0 == pid)
                .map(|it| it.1)
        };
        assert_eq!(ancestry(5, up).collect::<Vec<_>>(), [5, 4, 1]);
        assert_eq!(ancestry(7, |pid| Some(15 - pid)).count(), GENERATIONS);
    }

    #[test]
    fn our_own_parent_is_above_us() {
        let above = std::os::unix::process::parent_id();
        assert_eq!(ancestry(std::process::id(), parent).nth(1), Some(above));
    }
}
