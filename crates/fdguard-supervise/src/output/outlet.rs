//! Writes to fdguard's own output without blocking on its reader.
//!
//! `O_NONBLOCK` belongs to the open file, not to a descriptor: set on standard output, it would
//! affect the shell and every other program that shares it. So a pipe or a terminal is reopened
//! through `/proc/self/fd`, which creates a separate open file; a socket is written with a flag for
//! the one call; a regular file never blocks on a reader. Where none of this is possible, only as
//! much as `poll` has room for is written, a little at a time.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::poll::{Interest, Readiness};

/// From here on nothing more is read from the service until some of it is written.
const HIGH: usize = 64 << 10;
/// How much a pipe or terminal that `poll` reports as writable accepts without blocking.
const LITTLE: usize = 512;

/// One of fdguard's outputs.
#[derive(Debug)]
pub(super) struct Outlet {
    fd: OwnedFd,
    way: Way,
    queue: Vec<u8>,
    sent: usize,
    is_gone: bool,
    /// The disk behind it is full: reported once.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A separate nonblocking open file, or a regular file.
    Own,
    Socket,
    Shared,
}

impl Outlet {
    pub(super) fn new(shared: BorrowedFd<'_>) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(shared)?.st_mode);
        let own = match kind {
            FileType::Fifo | FileType::CharacterDevice => reopened(shared),
            _ => None,
        };
        let way = match (kind, &own) {
            (FileType::Socket, _) => Way::Socket,
            (FileType::RegularFile, _) | (_, Some(_)) => Way::Own,
            _ => Way::Shared,
        };
        let fd = match own {
            Some(own) => own,
            None => rustix::io::fcntl_dupfd_cloexec(shared, 10)?,
        };
        Ok(Self {
            fd,
            way,
            queue: Vec::new(),
            sent: 0,
            is_gone: false,
            is_full: false,
        })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_gone {
            self.queue.extend_from_slice(bytes);
        }
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.waiting() < HIGH
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.sent
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if self.waiting() > 0 {
            wants.write(self.fd.as_fd());
        }
    }

    /// Writes what is accepted. An error is returned once. It means that there is no reader any
    /// more, and further output is dropped; or that there is no room, and the present output is
    /// dropped.
    pub(super) fn flush(&mut self, ready: &Readiness) -> Result<(), Errno> {
        if self.way == Way::Shared && !ready.has(&self.fd) {
            return Ok(());
        }
        while self.waiting() > 0 {
            let rest = &self.queue[self.sent..];
            let written = match self.way {
                Way::Own => rustix::io::write(&self.fd, rest),
                Way::Socket => {
                    rustix::net::send(&self.fd, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
                }
                Way::Shared => rustix::io::write(&self.fd, &rest[..rest.len().min(LITTLE)]),
            };
            match written {
                Ok(count) => {
                    self.sent += count;
                    self.is_full = false;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(why) => return self.give_up(why),
            }
            if self.way == Way::Shared {
                break;
            }
        }
        self.queue.drain(..self.sent);
        self.sent = 0;
        Ok(())
    }
}

impl Outlet {
    fn give_up(&mut self, why: Errno) -> Result<(), Errno> {
        let no_room = matches!(
            why,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOBUFS | Errno::NOMEM
        );
        let is_torn = self.sent > 0 && self.queue[self.sent - 1] != b'\n';
        self.queue = Vec::new();
        self.sent = 0;
        if no_room && is_torn {
            self.queue.push(b'\n');
        }
        let is_known = no_room && std::mem::replace(&mut self.is_full, true);
        self.is_gone = !no_room;
        if is_known { Ok(()) } else { Err(why) }
    }
}

/// Reopens the same pipe or terminal; `None` if not permitted.
fn reopened(shared: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", shared.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use rustix::fs::OFlags;
    use rustix::pipe::PipeFlags;

    use super::{Outlet, Way};
    use crate::poll::{Interest, Readiness};

    fn is_nonblocking(fd: impl std::os::fd::AsFd) -> bool {
        rustix::fs::fcntl_getfl(fd)
            .unwrap()
            .contains(OFlags::NONBLOCK)
    }

    #[test]
    fn a_full_pipe_holds_nobody_up_and_stays_as_it_was_for_others() {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut outlet = Outlet::new(writer.as_fd()).unwrap();
        assert_eq!(outlet.way, Way::Own);
        let sent: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[0]).collect();
        outlet.push(&sent);
        outlet.flush(&Readiness::default()).unwrap();
        assert!(!outlet.has_room(), "the pipe cannot hold all of it");
        assert!(!is_nonblocking(&writer), "ours alone never waits");
        let mut reader = File::from(reader);
        let mut got = Vec::new();
        let mut buffer = [0; 8192];
        while got.len() < sent.len() {
            let count = reader.read(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..count]);
            outlet.flush(&Readiness::default()).unwrap();
        }
        assert_eq!(got, sent);
        assert!(outlet.has_room());
    }

    #[test]
    fn a_full_socket_holds_nobody_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut outlet = Outlet::new(ours.as_fd()).unwrap();
        assert_eq!(outlet.way, Way::Socket);
        outlet.push(&vec![b'x'; 4 << 20]);
        outlet.flush(&Readiness::default()).unwrap();
        assert!(outlet.waiting() > 0 && !is_nonblocking(&ours));
        drop(theirs);
        assert!(outlet.flush(&Readiness::default()).is_err());
        outlet.push(b"more");
        assert_eq!(outlet.waiting(), 0, "nobody reads any more");
    }

    #[test]
    fn a_shared_file_keeps_its_place() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before ").unwrap();
        let mut outlet = Outlet::new(file.as_fd()).unwrap();
        outlet.push(b"after");
        outlet.flush(&Readiness::default()).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
    }

    #[test]
    fn a_full_disk_behind_it_is_told_once_and_tried_again() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut outlet = Outlet::new(full.as_fd()).unwrap();
        outlet.push(b"one\n");
        assert_eq!(
            outlet.flush(&Readiness::default()),
            Err(rustix::io::Errno::NOSPC)
        );
        outlet.push(b"two\n");
        assert_eq!(outlet.flush(&Readiness::default()), Ok(()));
        outlet.fd = tempfile::tempfile().unwrap().into();
        outlet.push(b"three\n");
        outlet.flush(&Readiness::default()).unwrap();
        let mut file = File::from(outlet.fd);
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "three\n");
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_is_written_a_little_at_a_time() {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut outlet = Outlet::new(writer.as_fd()).unwrap();
        outlet.fd = writer;
        outlet.way = Way::Shared;
        outlet.push(&[b'x'; 200_000]);
        outlet.flush(&Readiness::default()).unwrap();
        assert_eq!(outlet.waiting(), 200_000, "not before poll says so");
        // Until the pipe is full: then poll reports nothing, and nothing is written that would
        // block.
        for _ in 0..400 {
            let mut wants = Interest::default();
            outlet.wants(&mut wants);
            wants.until(std::time::Instant::now());
            let ready = wants.wait().unwrap();
            outlet.flush(&ready).unwrap();
        }
        assert!(outlet.waiting() > 0 && outlet.waiting() < 200_000);
        drop(reader);
    }
}
