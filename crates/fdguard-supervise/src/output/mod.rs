//! A service's standard output and error: passed on, kept in files, and remembered for the crash
//! report.
//!
//! By default a service writes directly to fdguard's output ([`Forwarding::Inherit`]). If its lines
//! are needed, it gets pipes, and a [`ServiceOutput`] reads them: complete lines go to fdguard's
//! output, into a [log](OutputSpec::log) that is rotated between lines, to the checks, and into
//! [`LastLines`]. No line is lost over a rotation, a restart or a reopening. A slow reader of
//! fdguard's output blocks the service, as it would without fdguard; a full disk does not (see
//! [`log`]).

mod forgery;
mod last_lines;
mod line;
pub mod log;
mod outlet;
pub mod spec;

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;

pub use last_lines::LastLines;
pub use log::DroppedLines;
pub use spec::{Forwarding, OutputSpec};

use line::Splitter;
use log::Log;
use outlet::Outlet;

use crate::poll::{Interest, Readiness};

/// The most that is read from one pipe in one poll: a service that writes without pause must not
/// monopolise the loop.
const BITE: usize = 64 << 10;

/// Events for the loop to log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputEvent {
    /// The log cannot be written. Lines are kept in memory while there is room; reported once.
    LogFailing {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It can be written again.
    LogBack {
        /// Which.
        path: PathBuf,
        /// Output dropped meanwhile.
        dropped: DroppedLines,
    },
    /// It cannot be rotated and grows; reported once.
    NotRotated {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// fdguard's own output cannot be written: it has no reader any more, and output is dropped
    /// from now on; or there is no room for it, and output is dropped meanwhile. Reported once.
    NobodyReads {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// Why.
        why: String,
    },
}

/// The output of one service.
#[derive(Debug)]
pub struct ServiceOutput {
    /// The service's name, to prefix lines with.
    prefix: Vec<u8>,
    /// Whether every line is prefixed.
    is_prefixed: bool,
    outlets: [Option<Outlet>; 2],
    log: Option<Log>,
    sources: Vec<Source>,
    last: LastLines,
}

/// One pipe from the service.
#[derive(Debug)]
struct Source {
    fd: OwnedFd,
    /// 0 for its standard output, 1 for its standard error.
    stream: usize,
    splitter: Splitter,
    /// The service is gone: the remaining data is read without waiting.
    is_ending: bool,
    /// Whether the next byte begins a line in the outlet.
    at_start: bool,
}

impl ServiceOutput {
    /// Opens the configured outputs. The two descriptors are fdguard's own output and error.
    pub fn open(spec: &OutputSpec, name: &str, ours: [BorrowedFd<'_>; 2]) -> io::Result<Self> {
        let outlets = match spec.way() {
            Forwarding::Off => [None, None],
            _ => [Some(Outlet::new(ours[0])?), Some(Outlet::new(ours[1])?)],
        };
        let log = spec
            .log
            .as_deref()
            .map(|path| Log::open(spec, path))
            .transpose()?;
        Ok(Self {
            prefix: format!("{name} | ").into_bytes(),
            is_prefixed: spec.way() == Forwarding::Prefix,
            outlets,
            log,
            sources: Vec::new(),
            last: LastLines::default(),
        })
    }

    /// The service is about to start: returns its ends of two new pipes, for its standard output
    /// and error. The caller closes its copies after the start. Pipes of an earlier start are read
    /// to their end.
    pub fn start(&mut self) -> io::Result<[OwnedFd; 2]> {
        let (out, their_out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (err, their_err) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        for (stream, fd) in [out, err].into_iter().enumerate() {
            // Each end of a pipe is a separate open file: the service's end still blocks.
            rustix::io::ioctl_fionbio(&fd, true)?;
            self.sources.push(Source {
                fd,
                stream,
                splitter: Splitter::default(),
                is_ending: false,
                at_start: true,
            });
        }
        self.last.clear();
        Ok([their_out, their_err])
    }

    /// Nothing of the service is left: the remaining data in its pipes is read, and then they are
    /// closed, even if another process has kept the other ends.
    pub fn ended(&mut self) {
        for source in &mut self.sources {
            source.is_ending = true;
        }
    }

    /// Another program moved the log away (SIGUSR1): continue in a new file, after the current
    /// line.
    pub fn reopen(&mut self) {
        if let Some(log) = &mut self.log {
            log.reopen();
        }
    }

    /// The last lines since the last start.
    #[must_use]
    pub fn last(&self) -> &LastLines {
        &self.last
    }

    /// All output dropped because the log could not be written.
    #[must_use]
    pub fn dropped(&self) -> DroppedLines {
        self.log
            .as_ref()
            .map_or_else(DroppedLines::default, |log| log.dropped)
    }

    /// Whether nothing is left to read or write, so that fdguard can exit.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let waiting = self
            .outlets
            .iter()
            .flatten()
            .map(Outlet::waiting)
            .sum::<usize>();
        self.sources.is_empty()
            && waiting == 0
            && self.log.as_ref().is_none_or(|log| log.waiting() == 0)
    }

    /// Whether there are pipes that may still deliver data.
    #[must_use]
    pub fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Registers its descriptors and deadline.
    pub fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        for source in self.sources.iter().filter(|source| self.has_room(source)) {
            wants.read(source.fd.as_fd());
            if source.is_ending {
                wants.until(Instant::now());
            }
        }
        for outlet in self.outlets.iter().flatten() {
            outlet.wants(wants);
        }
        if let Some(due) = self.log.as_ref().and_then(Log::due) {
            wants.until(due);
        }
    }

    fn has_room(&self, source: &Source) -> bool {
        self.outlets[source.stream]
            .as_ref()
            .is_none_or(Outlet::has_room)
    }

    /// Continues without blocking. Passes each line, without its newline, to `heard`.
    pub fn poll(
        &mut self,
        now: Instant,
        ready: &Readiness,
        heard: &mut dyn FnMut(&[u8]),
    ) -> Vec<OutputEvent> {
        let mut happened = Vec::new();
        let mut sources = std::mem::take(&mut self.sources);
        sources.retain_mut(|source| {
            let is_due = source.is_ending || ready.has(&source.fd);
            !is_due || self.read(source, heard)
        });
        self.sources = sources;
        for (outlet, stream) in self.outlets.iter_mut().zip(["stdout", "stderr"]) {
            if let Some(Err(why)) = outlet.as_mut().map(|outlet| outlet.flush(ready)) {
                happened.push(OutputEvent::NobodyReads {
                    stream,
                    why: io::Error::from(why).to_string(),
                });
            }
        }
        if let Some(log) = &mut self.log {
            log.flush(now, &mut happened);
        }
        happened
    }

    /// Reads as much as there is room for; `false` when the pipe is at its end.
    fn read(&mut self, source: &mut Source, heard: &mut dyn FnMut(&[u8])) -> bool {
        let mut buffer = [0; 16 << 10];
        let mut taken = 0;
        while taken < BITE && self.has_room(source) {
            let stop = match rustix::io::read(&source.fd, &mut buffer) {
                Ok(0) => true,
                Ok(count) => {
                    taken += count;
                    let mut splitter = std::mem::take(&mut source.splitter);
                    splitter.feed(&buffer[..count], |piece| {
                        self.push_bytes(source, piece, heard)
                    });
                    source.splitter = splitter;
                    false
                }
                Err(Errno::INTR) => false,
                Err(Errno::AGAIN) if !source.is_ending => return true,
                Err(_) => true,
            };
            if stop {
                let mut splitter = std::mem::take(&mut source.splitter);
                splitter.finish(|piece| self.push_bytes(source, piece, heard));
                return false;
            }
        }
        true
    }

    /// Passes one line, or a piece of a very long one, to all outputs.
    fn push_bytes(&mut self, source: &mut Source, piece: &[u8], heard: &mut dyn FnMut(&[u8])) {
        if let Some(outlet) = &mut self.outlets[source.stream] {
            // fdguard's own events go to the same output: a line that looks like one is never
            // passed on unchanged. The rest of a long line may follow one of them.
            if (source.at_start && self.is_prefixed) || forgery::is_event(piece) {
                outlet.push(&self.prefix);
            }
            outlet.push(piece);
        }
        source.at_start = piece.ends_with(b"\n");
        if let Some(log) = &mut self.log {
            log.push(piece);
        }
        self.last.push(piece);
        heard(piece.strip_suffix(b"\n").unwrap_or(piece));
    }
}

/// Splits any bytes into lines, for the fuzz target: nothing is lost, in whatever pieces they come.
#[cfg(feature = "fuzzing")]
pub fn fuzz_output(bytes: &[u8]) {
    let (mut splitter, mut joined) = (Splitter::default(), Vec::new());
    for piece in bytes.chunks(7) {
        splitter.feed(piece, |line| {
            let _is_forged = forgery::is_event(line);
            joined.extend_from_slice(line);
        });
    }
    splitter.finish(|line| joined.extend_from_slice(line));
    assert_eq!(
        joined.strip_prefix(bytes).map(<[u8]>::len),
        Some(joined.len() - bytes.len())
    );
}
