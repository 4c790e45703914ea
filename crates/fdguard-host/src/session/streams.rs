//! Output of a program, from its terminal or pipes, read without blocking.

use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::io::{Errno, read, write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fd_count::{FdCount, Token};
use super::types::ExecStream;
use crate::{Error, watched_tree};

/// More than a terminal or a pipe holds.
const MOST_HELD: usize = 1 << 20;

/// How many bytes of each stream may be available.
#[derive(Debug)]
pub(super) struct Backlog(Vec<usize>);

/// The host's ends of a program's streams.
#[derive(Debug)]
pub(super) struct Streams {
    sources: Vec<Source>,
    /// Its input; `None` if the host does not feed it.
    input: Option<Source>,
    is_terminal: bool,
    /// Which source is polled first.
    turn: usize,
}

#[derive(Debug)]
struct Source {
    fd: AsyncFd<OwnedFd>,
    stream: ExecStream,
    /// The other end was closed. A terminal may be opened again, so non-blocking reads still try.
    has_ended: bool,
    _token: Token,
}

impl Source {
    fn new(
        fd: OwnedFd,
        stream: ExecStream,
        interest: Interest,
        held: &FdCount,
    ) -> Result<Self, Error> {
        let token = held.token();
        let fd = watched_tree::owned(fd, interest);
        Ok(Self {
            fd: fd.map_err(Error::io("cannot watch the session's output"))?,
            stream,
            has_ended: false,
            _token: token,
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<usize> {
        while !self.has_ended {
            let Poll::Ready(ready) = self.fd.poll_read_ready(cx) else {
                return Poll::Pending;
            };
            let Ok(mut ready) = ready else {
                self.has_ended = true;
                break;
            };
            match read(ready.get_inner(), &mut *room) {
                Ok(length) if length > 0 => return Poll::Ready(length),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                // The end of a pipe; a terminal returns EIO when its last holder is gone.
                _ => self.has_ended = true,
            }
        }
        Poll::Pending
    }

    fn read_now(&self, room: &mut [u8]) -> Option<usize> {
        loop {
            match read(self.fd.get_ref(), &mut *room) {
                Err(Errno::INTR) => {}
                Ok(length) => return Some(length).filter(|length| *length > 0),
                Err(_) => return None,
            }
        }
    }
}

impl Streams {
    /// A terminal's master.
    pub(super) fn terminal(master: OwnedFd, held: &FdCount) -> Result<Self, Error> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        Ok(Self {
            sources: vec![Source::new(master, ExecStream::Stdout, interest, held)?],
            input: None,
            is_terminal: true,
            turn: 0,
        })
    }

    /// The read ends of two pipes, and the write end of another if the program has an input.
    pub(super) fn pipes(
        out: OwnedFd,
        err: OwnedFd,
        input: Option<OwnedFd>,
        held: &FdCount,
    ) -> Result<Self, Error> {
        let readable = Interest::READABLE;
        let input =
            input.map(|input| Source::new(input, ExecStream::Stdout, Interest::WRITABLE, held));
        Ok(Self {
            sources: vec![
                Source::new(out, ExecStream::Stdout, readable, held)?,
                Source::new(err, ExecStream::Stderr, readable, held)?,
            ],
            input: input.transpose()?,
            is_terminal: false,
            turn: 0,
        })
    }

    /// The terminal, if there is one.
    pub(super) fn master(&self) -> Option<&OwnedFd> {
        let master = self.sources.first().filter(|_| self.is_terminal);
        master.map(|master| master.fd.get_ref())
    }

    /// The next piece of output; never returns if there will be none.
    pub(super) async fn read(&mut self, room: &mut [u8]) -> (ExecStream, usize) {
        std::future::poll_fn(|cx| {
            let count = self.sources.len();
            self.turn = self.turn.wrapping_add(1);
            for index in 0..count {
                let index = (self.turn + index) % count;
                if let Some(source) = self.sources.get_mut(index)
                    && let Poll::Ready(length) = source.poll_read(cx, room)
                {
                    return Poll::Ready((source.stream, length));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// A piece of output that is already available. On a terminal the kernel first delivers what
    /// was written to it before.
    pub(super) fn read_now(&self, room: &mut [u8]) -> Option<(ExecStream, usize)> {
        let mut now = |source: &Source| Some((source.stream, source.read_now(room)?));
        self.sources.iter().find_map(&mut now)
    }

    /// What is available now, to be read with [`Streams::read_backlog`].
    pub(super) fn backlog(&self) -> Backlog {
        Backlog(vec![MOST_HELD; self.sources.len()])
    }

    /// The next piece of it; `None` when everything that was available when the backlog was made
    /// has been read. A continuous writer does not extend it.
    pub(super) fn read_backlog(
        &self,
        backlog: &mut Backlog,
        room: &mut [u8],
    ) -> Option<(ExecStream, usize)> {
        for (source, left) in self.sources.iter().zip(&mut backlog.0) {
            if *left == 0 {
                continue;
            }
            if let Some(length) = source.read_now(room) {
                *left = left.saturating_sub(length);
                return Some((source.stream, length));
            }
            *left = 0;
        }
        None
    }

    /// Writes to the program's input, waiting until it is accepted.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> std::io::Result<()> {
        let source = self.input.as_ref();
        let source = source.or(self.sources.first().filter(|_| self.is_terminal));
        let Some(source) = source else {
            return Err(Errno::BADF.into());
        };
        while !bytes.is_empty() {
            let mut ready = source.fd.writable().await?;
            match write(source.fd.get_ref(), bytes) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
