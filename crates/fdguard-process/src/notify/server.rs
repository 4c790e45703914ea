//! The notification socket that we offer to the program.
//!
//! It is a path in a folder of our own, and not an abstract name: a folder keeps other users out, and an abstract name is anybody's in the same
//! network namespace and nobody's in another. Who speaks is known from the kernel's credentials, never from the message. See decision 027.

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

/// What systemd takes of a message, and as many descriptors as the kernel lets through at once.
const LONGEST: usize = 4096;
const MOST_FDS: usize = 253;
/// As many messages as one turn takes: a program that never stops talking must not have us for itself.
const MOST_AT_ONCE: usize = 64;
/// How our folders are called, and the socket inside.
const FOLDER: &str = "fdguard-notify.";
const SOCKET: &str = "socket";

/// Our end towards the program. Dropped, its socket and its folder are removed.
#[derive(Debug)]
pub struct NotifyServer {
    socket: OwnedFd,
    folder: PathBuf,
    path: PathBuf,
    refused: u64,
    truncated: u64,
}

/// One message, from whom, with what.
#[derive(Debug)]
pub struct ReceivedMessage {
    /// The process that sent it; the kernel says so.
    pub pid: u32,
    /// What it said.
    pub message: NotifyMessage,
    /// Descriptors that came along, close-on-exec. Dropped, they are closed.
    pub fds: Vec<OwnedFd>,
    /// The sender of a barrier waits until this is closed: when the caller drops it, with all before it dealt with.
    #[expect(dead_code, reason = "held only to be closed in its turn")]
    barrier: Option<OwnedFd>,
}

impl NotifyServer {
    /// Opens one below `XDG_RUNTIME_DIR`, or else the folder for temporary files.
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

    /// Opens one below this folder.
    pub fn open_in(base: &Path) -> io::Result<Self> {
        sweep(base);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        // Before the name exists: no message without credentials can come in.
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        let folder = new_folder(base)?;
        let path = folder.join(SOCKET);
        // From here on a failure takes the folder away again.
        let server = Self {
            socket,
            folder,
            path,
            refused: 0,
            truncated: 0,
        };
        let address = SocketAddrUnix::new(&server.path)?;
        rustix::net::bind(&server.socket, &address)?;
        Ok(server)
    }

    /// What the program gets as `NOTIFY_SOCKET`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Readable when something was said.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What was said since, by those that may speak; never waits. Deal with it in its order and drop each: a barrier is one of them.
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

    /// Messages of processes that may not speak.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Messages that were too long, or came without credentials.
    #[must_use]
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// One message; nothing when it must not be believed.
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
        remove(&self.folder);
    }
}

/// A folder that only we can enter. One that is there already is never used: somebody else may have made it.
fn new_folder(base: &Path) -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..1000 {
        let folder = base.join(format!("{FOLDER}{}.{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn remove(folder: &Path) {
    // Nothing can be done about a failure, and the next one that opens sweeps.
    drop(std::fs::remove_file(folder.join(SOCKET)));
    drop(std::fs::remove_dir(folder));
}

/// Takes away what servers left that were killed: folders of ours whose socket nobody holds. The pid in the name proves nothing, because
/// another pid namespace may share the folder.
fn sweep(base: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(FOLDER);
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
    // A folder without a socket may be one that is just being made.
    rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests;
