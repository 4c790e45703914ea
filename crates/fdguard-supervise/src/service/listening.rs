//! Whether a process that the program left behind listens: then it is a server, not a leftover.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use fdguard_proc::link::Link;
use fdguard_proc::net::{self, SocketRecord};

use crate::health::queue;

/// Where these processes listen, TCP and unix; unreadable processes are skipped.
pub(super) fn places(pids: &[u32]) -> Vec<String> {
    let tcp = queue::find(pids).unwrap_or_default();
    let mut places: Vec<String> = tcp.iter().map(|one| one.address.to_string()).collect();
    let table = fs::read("/proc/self/net/unix").unwrap_or_default();
    let listening = unix_listeners(&table);
    if !listening.is_empty() {
        let held: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets(*pid)).collect();
        let ours = listening
            .into_iter()
            .filter(|(inode, _)| held.contains(inode));
        places.extend(ours.map(|(_, path)| format!("unix:{path}")));
    }
    places
}

/// Inodes and paths of the unix sockets that accept.
fn unix_listeners(table: &[u8]) -> Vec<(u64, String)> {
    let listener = |(ino, record)| match record {
        SocketRecord::Unix {
            listening: true,
            path,
            ..
        } => {
            let path = path.as_deref().unwrap_or(b"unnamed");
            Some((ino, String::from_utf8_lossy(path).into_owned()))
        }
        _ => None,
    };
    net::unix(table).filter_map(listener).collect()
}

/// Inodes of a process's sockets.
fn sockets(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        Link::parse(target.as_os_str().as_bytes()).socket()
    };
    entries.flatten().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::{places, unix_listeners};

    #[test]
    fn only_sockets_that_accept_are_listeners() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1234 /run/a b\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 5678\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 91 @abstract\n\
            nonsense\n";
        let found = unix_listeners(table);
        assert_eq!(found, [(1234, "/run/a b".into()), (91, "@abstract".into())]);
    }

    #[test]
    fn our_own_listener_is_found_and_a_connection_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _pair = UnixStream::pair().unwrap();
        let expected = format!("unix:{}", path.display());
        assert!(!places(&[std::process::id()]).contains(&expected));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(places(&[std::process::id()]).contains(&expected));
        assert!(places(&[]).is_empty());
    }
}
