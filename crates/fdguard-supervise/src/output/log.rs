//! A log file that is rotated between lines.
//!
//! Lines are queued and written as far as the disk accepts them. A full disk must not stop a
//! service: up to 1 MiB is kept in memory, further lines are counted and dropped, and the count is
//! written to the log when there is room again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::OutputEvent;
use super::spec::OutputSpec;

/// How much is kept while the disk accepts nothing.
const RING: usize = 1 << 20;
/// When a full disk, or a failed rotation, is retried.
const AGAIN: Duration = Duration::from_secs(1);
/// How far an unfinished line may take a file beyond its size.
const BEYOND: u64 = 1 << 20;

/// Dropped output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedLines {
    /// Lines.
    pub lines: u64,
    /// Bytes, including those lines' newlines.
    pub bytes: u64,
}

/// The log of one service.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    size: u64,
    keep: u32,
    file: File,
    written: u64,
    /// The queued bytes, complete lines except for pieces of very long ones, and how many of them
    /// were written.
    queue: Vec<u8>,
    sent: usize,
    /// Whether the file ends within a line.
    is_within: bool,
    /// Whether the queue begins at the start of a line.
    began_at_border: bool,
    wants_reopening: bool,
    failing: Option<Instant>,
    not_rotated: Option<Instant>,
    gap: DroppedLines,
    /// Everything dropped so far.
    pub(super) dropped: DroppedLines,
}

impl Log {
    pub(super) fn open(form: &OutputSpec, path: &Path) -> io::Result<Self> {
        let (file, written, is_within) = open(path)?;
        let mut log = Self {
            path: path.to_owned(),
            size: form.log_size,
            keep: form.log_keep,
            file,
            written,
            queue: Vec::new(),
            sent: 0,
            is_within: false,
            began_at_border: true,
            wants_reopening: false,
            failing: None,
            not_rotated: None,
            gap: DroppedLines::default(),
            dropped: DroppedLines::default(),
        };
        if is_within {
            // An earlier writer stopped within a line.
            log.queue.push(b'\n');
        }
        Ok(log)
    }

    /// A line, or a piece of a very long one.
    pub(super) fn push(&mut self, piece: &[u8]) {
        // Once something was dropped, everything is until there is room again: one gap, not many.
        let is_full = self.gap != DroppedLines::default() || self.waiting() + piece.len() > RING;
        if self.failing.is_some() && is_full {
            let lines = u64::from(piece.ends_with(b"\n"));
            let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            for gap in [&mut self.gap, &mut self.dropped] {
                gap.lines += lines;
                gap.bytes += bytes;
            }
            return;
        }
        self.tell_gap();
        self.queue.extend_from_slice(piece);
    }

    /// Writes the count of dropped lines where they would have been.
    fn tell_gap(&mut self) {
        if self.gap == DroppedLines::default() {
            return;
        }
        if self.queue.last().is_some_and(|byte| *byte != b'\n') {
            self.queue.push(b'\n');
        }
        let DroppedLines { lines, bytes } = std::mem::take(&mut self.gap);
        let text = format!("fdguard_event event=log_gap lines={lines} bytes={bytes}\n");
        self.queue.extend_from_slice(text.as_bytes());
    }

    /// Bytes that are not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// When to retry.
    pub(super) fn due(&self) -> Option<Instant> {
        self.failing
    }

    /// Another program moved the file away: continue in a new one, after the current line.
    pub(super) fn reopen(&mut self) {
        self.wants_reopening = true;
    }

    /// Writes the queue.
    pub(super) fn flush(&mut self, now: Instant, happened: &mut Vec<OutputEvent>) {
        if self.failing.is_some_and(|again| now < again) {
            return;
        }
        match self.write(now, happened) {
            Ok(()) if self.failing.is_some() => {
                self.failing = None;
                happened.push(OutputEvent::LogBack {
                    path: self.path.clone(),
                    dropped: self.gap,
                });
                // It may take long until more output comes: the count does not wait for it.
                self.tell_gap();
                self.flush(now, happened);
            }
            Ok(()) => {}
            Err(why) => {
                if self.failing.replace(now + AGAIN).is_none() {
                    happened.push(OutputEvent::LogFailing {
                        path: self.path.clone(),
                        why: why.to_string(),
                    });
                }
            }
        }
    }

    fn write(&mut self, now: Instant, happened: &mut Vec<OutputEvent>) -> io::Result<()> {
        if self.wants_reopening && !self.is_within {
            self.reopen_now()?;
        }
        while self.waiting() > 0 {
            self.rotate_if_due(now, happened);
            let end = self.sent + self.chunk();
            match self.file.write(&self.queue[self.sent..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    self.written += u64::try_from(count).unwrap_or(0);
                    self.is_within = self.queue[self.sent - 1] != b'\n';
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => {
                    self.take_back();
                    self.compact();
                    return Err(why);
                }
            }
        }
        self.compact();
        Ok(())
    }

    /// Removes the beginning of a line from the file again, so that the file can be read and moved
    /// meanwhile: the complete line follows later. If that is not possible, the rest follows when
    /// there is room.
    fn take_back(&mut self) {
        let sent = &self.queue[..self.sent];
        let border = sent
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map(|at| at + 1);
        let Some(border) = border.or_else(|| self.began_at_border.then_some(0)) else {
            return;
        };
        let count = self.sent - border;
        let length = u64::try_from(count)
            .ok()
            .and_then(|count| self.written.checked_sub(count));
        let Some(length) = length.filter(|_| self.is_within) else {
            return;
        };
        if self.file.set_len(length).is_ok() {
            self.sent -= count;
            self.written = length;
            self.is_within = false;
        }
    }

    fn compact(&mut self) {
        self.queue.drain(..self.sent);
        self.sent = 0;
        self.began_at_border = !self.is_within;
        // After a burst, release its memory.
        if self.queue.capacity() > 2 * RING / 8 && self.queue.is_empty() {
            self.queue = Vec::new();
        }
    }

    /// How much may go into this file: lines as long as they fit, and the first in any case.
    fn chunk(&self) -> usize {
        let waiting = &self.queue[self.sent..];
        let room = usize::try_from(self.size.saturating_sub(self.written)).unwrap_or(usize::MAX);
        if waiting.len() <= room {
            return waiting.len();
        }
        let newline = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n');
        let fitting = newline(&waiting[..room]).map(|at| at + 1);
        let first = || {
            waiting
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + 1)
        };
        fitting.or_else(first).unwrap_or(waiting.len())
    }

    fn rotate_if_due(&mut self, now: Instant, happened: &mut Vec<OutputEvent>) {
        let next = u64::try_from(self.chunk()).unwrap_or(u64::MAX);
        let is_full = self.written > 0 && self.written.saturating_add(next) > self.size;
        let is_border = !self.is_within || self.written > self.size + BEYOND;
        if !is_full || !is_border || self.not_rotated.is_some_and(|again| now < again) {
            return;
        }
        match self.rotate() {
            Ok(()) => self.not_rotated = None,
            // No line is lost: the file grows beyond its size until it can be rotated.
            Err(why) => {
                if self.not_rotated.replace(now + AGAIN).is_none() {
                    happened.push(OutputEvent::NotRotated {
                        path: self.path.clone(),
                        why: why.to_string(),
                    });
                }
            }
        }
    }

    /// `FILE` becomes `FILE.1`, that becomes `FILE.2`, and so on. The new file is created before
    /// anything is moved, so that nothing changes on a machine without room or descriptors.
    fn rotate(&mut self) -> io::Result<()> {
        let next = self.numbered("next");
        // A file left by a crash is empty. Never open a file that another program may have created.
        let _gone = fs::remove_file(&next);
        let new = options().append(true).create_new(true).open(&next)?;
        // Readers of the old file must be able to read the new one.
        new.set_permissions(self.file.metadata()?.permissions())?;
        for number in (1..self.keep).rev() {
            let from = self.numbered(&number.to_string());
            moved(&from, &self.numbered(&(number + 1).to_string()))?;
        }
        if self.keep > 0 {
            moved(&self.path, &self.numbered("1"))?;
        }
        fs::rename(&next, &self.path)?;
        let old = std::mem::replace(&mut self.file, new);
        self.written = 0;
        self.is_within = false;
        // A finished file is on disk before it can be archived. A failed sync is ignored.
        let _synced = old.sync_data();
        Ok(())
    }

    fn reopen_now(&mut self) -> io::Result<()> {
        let (file, written, is_within) = open(&self.path)?;
        self.file = file;
        self.written = written;
        self.wants_reopening = false;
        if is_within {
            self.queue.insert(self.sent, b'\n');
        }
        Ok(())
    }

    fn numbered(&self, end: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(end);
        name.into()
    }
}

/// A missing file need not be moved.
fn moved(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // The standard library makes every descriptor close-on-exec. A pipe without a reader must not
    // block fdguard.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    options
        .read(true)
        .write(true)
        .create(true)
        .mode(0o640)
        .custom_flags(flags);
    options
}

/// The file positioned at its end, its length, and whether it ends within a line.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let file = options().append(true).open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let length = if about.is_file() { about.len() } else { 0 };
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok((file, length, last != *b"\n"))
}
