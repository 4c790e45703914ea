//! A unix socket at a path, and the file that a killed server left there.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path as FilePath, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The file of a bound socket. On drop it is removed if it is unchanged.
#[derive(Debug)]
pub struct Path {
    path: PathBuf,
    /// Device and inode.
    id: Option<(u64, u64)>,
}

/// Why binding failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A process listens there, or may.
    Held,
    /// The file exists and is not a socket.
    NoSocket,
    /// This step failed.
    Refused(&'static str, Errno),
}

impl Path {
    /// Leaves the file where it is.
    pub(super) fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let there = self.path.symlink_metadata().ok();
        let there = there.map(|meta| (meta.dev(), meta.ino()));
        if self.id.is_some() && there == self.id {
            // If this fails, a stale file is left, which the next start replaces.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Binds and listens at a path. A socket file without a listener is replaced.
pub(super) fn bind(path: &FilePath, mode: Option<u32>) -> Result<(OwnedFd, Path), Failure> {
    let step = |step: &'static str| move |error: Errno| Failure::Refused(step, error);
    let address = SocketAddrUnix::new(path).map_err(step("path"))?;
    let socket = stream(SocketFlags::CLOEXEC).map_err(step("socket"))?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => replace(&socket, path, &address)?,
        Err(error) => return Err(Failure::Refused("bind", error)),
    }
    let meta = path.symlink_metadata().ok();
    let file = Path {
        path: path.to_owned(),
        id: meta.map(|meta| (meta.dev(), meta.ino())),
    };
    // No process can connect before it listens, so the wider mode is never used.
    if let Some(mode) = mode {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(step("chmod"))?;
    }
    rustix::net::listen(&socket, super::BACKLOG).map_err(step("listen"))?;
    Ok((socket, file))
}

fn stream(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a stale file and binds. If two fdguard processes start at once, both could find it
/// stale, and the slower would remove what the faster just bound, so this is done under a lock on
/// the directory.
fn replace(socket: &OwnedFd, path: &FilePath, address: &SocketAddrUnix) -> Result<(), Failure> {
    let step = |step: &'static str| move |error: Errno| Failure::Refused(step, error);
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let parent = parent.unwrap_or(FilePath::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(parent, flags, Mode::empty()).map_err(step("open its directory"))?;
    match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // Another process is replacing it.
        Err(Errno::AGAIN) => return Err(Failure::Held),
        Err(error) => return Err(Failure::Refused("lock its directory", error)),
    }
    let meta = path.symlink_metadata();
    if meta.is_ok_and(|meta| !meta.file_type().is_socket()) {
        return Err(Failure::NoSocket);
    }
    let caller = stream(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(step("socket"))?;
    match rustix::net::connect(&caller, address) {
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path).map_err(step("unlink"))?,
        Err(Errno::NOENT) => {}
        // It answered, is busy, has another type, or access was denied: it is in use.
        Ok(()) | Err(_) => return Err(Failure::Held),
    }
    rustix::net::bind(socket, address).map_err(|error| match error {
        Errno::ADDRINUSE => Failure::Held,
        error => Failure::Refused("bind", error),
    })
}
