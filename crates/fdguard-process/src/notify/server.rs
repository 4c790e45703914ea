//! The notification socket that fdguard offers to the program.
//!
//! It is a path in a private directory, not an abstract name: a directory keeps other users out,
//! while an abstract name is open to every process in the same network namespace and to none in
//! another. The sender is identified by the kernel's credentials, never by the message. See
//! decision 027.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use super::message::NotifyMessage;

/// The longest message that systemd accepts, and as many descriptors as the kernel passes at once.
const LONGEST: usize = 4096;
const MOST_FDS: usize = 253;
/// The most messages per poll: a program that sends constantly must not starve the loop.
const MOST_AT_ONCE: usize = 64;
/// The name of the directories, and of the socket inside.
const DIR: &str = "fdguard-notify.";
const SOCKET: &str = "socket";

/// fdguard's end of the notification socket. On drop its socket and directory are removed.
#[derive(Debug)]
pub struct NotifyServer {
    socket: OwnedFd,
    dir: PathBuf,
    path: PathBuf,
    refused: u64,
    truncated: u64,
}

/// One message with its sender and descriptors.
#[derive(Debug)]
pub struct ReceivedMessage {
    /// The sender, as reported by the kernel.
    pub pid: u32,
    /// The message.
    pub message: NotifyMessage,
    /// The attached descriptors, close-on-exec. Dropping closes them.
    pub fds: Vec<OwnedFd>,
    /// The sender of a barrier waits until this is closed: when the caller drops it after
    /// processing everything before it.
    #[expect(dead_code, reason = "held only to be closed in its turn")]
    barrier: Option<OwnedFd>,
}

impl NotifyServer {
    /// Opens a socket below `XDG_RUNTIME_DIR`, or else below the directory for temporary files.
    pub fn open() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute());
        let bases = runtime.into_iter().chain([std::env::temp_dir()]);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for base in bases {
            match Self::open_in(&base) {
                Ok(server) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Opens a socket below this directory.
    pub fn open_in(base: &Path) -> io::Result<Self> {
        sweep(base);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        // Before the name exists, so that no message without credentials can arrive.
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        let dir = new_dir(base)?;
        let path = dir.join(SOCKET);
        // From here on a failure removes the directory.
        let server = Self {
            socket,
            dir,
            path,
            refused: 0,
            truncated: 0,
        };
        let address = SocketAddrUnix::new(&server.path)?;
        rustix::net::bind(&server.socket, &address)?;
        Ok(server)
    }

    /// The value of the program's `NOTIFY_SOCKET`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Readable when a message has arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Messages from permitted senders since the last call; never blocks. Process them in order and
    /// drop each: a barrier may be among them.
    pub fn poll(&mut self, may_speak: impl Fn(u32) -> bool) -> Vec<ReceivedMessage> {
        let mut all = Vec::new();
        for _ in 0..MOST_AT_ONCE {
            match self.receive() {
                Ok(Some(heard)) if may_speak(heard.pid) => all.push(heard),
                Ok(Some(_)) => self.refused += 1,
                Ok(None) => self.truncated += 1,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        all
    }

    /// Messages from processes without permission to send.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Messages that were too long, or had no credentials.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// One message; `None` if it cannot be trusted.
    fn receive(&self) -> Result<Option<ReceivedMessage>, Errno> {
        let mut bytes = [0; LONGEST];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        )?;
        let mut fds = Vec::new();
        let mut pid = None;
        for part in control.drain() {
            match part {
                RecvAncillaryMessage::ScmRights(some) => fds.extend(some),
                RecvAncillaryMessage::ScmCredentials(sender) => {
                    pid = u32::try_from(sender.pid.as_raw_nonzero().get()).ok();
                }
                _ => {}
            }
        }
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        let Some(pid) = pid.filter(|_| !received.flags.intersects(cut)) else {
            return Ok(None);
        };
        let message = NotifyMessage::parse(&bytes[..received.bytes]);
        let barrier = if message.barrier && fds.len() == 1 {
            fds.pop()
        } else {
            None
        };
        Ok(Some(ReceivedMessage {
            pid,
            message,
            fds,
            barrier,
        }))
    }
}

impl Drop for NotifyServer {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Creates a private directory. An existing one is never used: another user may have created it.
fn new_dir(base: &Path) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..1000 {
        let dir = base.join(format!("{DIR}{}.{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn remove(dir: &Path) {
    // Nothing can be done about a failure, and the next server that opens sweeps.
    drop(std::fs::remove_file(dir.join(SOCKET)));
    drop(std::fs::remove_dir(dir));
}

/// Removes what killed servers left behind: fdguard's directories whose socket no process holds.
/// The pid in the name proves nothing, because another pid namespace may share the directory.
fn sweep(base: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(DIR);
        let is_ours = || {
            let meta = entry.metadata();
            meta.is_ok_and(|meta| meta.is_dir() && meta.uid() == own)
        };
        if named && is_ours() && is_deserted(&entry.path().join(SOCKET)) {
            remove(&entry.path());
        }
    }
}

fn is_deserted(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(probe) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
    else {
        return false;
    };
    let Ok(address) = SocketAddrUnix::new(path) else {
        return false;
    };
    // A directory without a socket may be in the process of being created.
    rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests;
