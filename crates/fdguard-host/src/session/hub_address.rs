//! The address of the hub's socket, which only the host can reach: a name in the file system that
//! is removed as soon as it is bound.
//!
//! Names chosen by the kernel are in a world-readable table, and every user can send to them. A
//! socket that was bound in a private directory can still be reached through a descriptor of that
//! name, and in no other way.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use fdguard_process::random;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::hub::bound;
use super::scratch;
use crate::Error;

/// The address.
#[derive(Debug)]
pub(super) enum HubAddress {
    /// A descriptor of the name that it had.
    Private(OwnedFd),
    /// A name chosen by the kernel, if no directory is writable.
    Open(SocketAddrUnix),
}

impl HubAddress {
    /// A new socket, and how it is reached.
    pub(super) fn bind() -> Result<(OwnedFd, Self), Error> {
        let private = scratch::dirs().iter().find_map(|dir| bind_in(dir));
        if let Some((socket, name)) = private {
            return Ok((socket, Self::Private(name)));
        }
        let (socket, address) = bound(SocketFlags::NONBLOCK)?;
        Ok((socket, Self::Open(address)))
    }

    /// To connect to it.
    pub(super) fn get(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Self::Private(name) => {
                SocketAddrUnix::new(format!("/proc/self/fd/{}", name.as_raw_fd()))
            }
            Self::Open(address) => Ok(address.clone()),
        }
    }

    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::Private(_))
    }
}

/// A socket with a name in a directory of its own, and a descriptor of that name. Both names are
/// gone when it returns.
fn bind_in(dir: &Path) -> Option<(OwnedFd, OwnedFd)> {
    let own = dir.join(format!("fdguard-{}", random::nonce().ok()?));
    std::fs::DirBuilder::new().mode(0o700).create(&own).ok()?;
    let path = own.join("hub");
    let attempt = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = open(&path, flags, Mode::empty())?;
        Ok::<_, Errno>((socket, name))
    };
    let bound = attempt().ok();
    // What is not there need not be removed; a directory that stays is empty.
    drop(std::fs::remove_file(&path));
    drop(std::fs::remove_dir(&own));
    bound
}

#[cfg(test)]
mod tests {
    use rustix::net::{RecvFlags, SendFlags, connect, recv, send};

    use super::*;

    #[test]
    fn the_hub_is_reached_by_the_host_alone_and_leaves_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let (hub, name) = bind_in(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // The path in the kernel's table leads nowhere.
        let shown = rustix::net::getsockname(&hub).unwrap();
        let shown = SocketAddrUnix::try_from(shown).unwrap();
        let path = shown.path_bytes().unwrap();
        assert!(path.starts_with(b"/"), "{shown:?}");
        let flags = SocketFlags::CLOEXEC;
        let side = || socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        connect(side(), &shown).unwrap_err();
        let own = side();
        connect(&own, &HubAddress::Private(name).get().unwrap()).unwrap();
        send(&own, b"end", SendFlags::empty()).unwrap();
        let mut room = [0; 8];
        let (_, length) = recv(&hub, &mut room[..], RecvFlags::empty()).unwrap();
        assert_eq!(&room[..length], b"end");
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_passed_over() {
        assert!(bind_in(Path::new("/no/such/directory")).is_none());
        let (_, address) = HubAddress::bind().unwrap();
        assert!(address.is_private());
    }
}
