//! Writes a recording while the watch runs.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_core::recording::{RecordingEntry, RecordingHeader};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde::Serialize;

use crate::Error;

/// The most that a crash may lose: a verdict does not depend on the last second.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// A busy host produces this many in far less than a second. Limits the memory even if
/// [`Recorder::flush_due`] is never called.
const FLUSH_ENTRIES: usize = 64;

/// A recording that is being written: JSON Lines, or the same in zstd if its name ends in `.zst`.
///
/// Buffered entries are written after a second ([`Recorder::flush_due`]) or when there are 64,
/// whichever is first. So a process that is killed loses a second. The flush by time also syncs to
/// disk, at most once a second, so a loss of power costs little more. In a compressed recording
/// each flush is a separate zstd frame, hence readable without what would have followed.
///
/// # Errors
///
/// The call that meets a full disk or a closed pipe returns the error, once. Later calls do nothing
/// and succeed, so the caller can report the error and continue the watch. What was written before
/// can be replayed.
#[derive(Debug)]
pub struct Recorder {
    pub(super) out: File,
    path: PathBuf,
    compressed: bool,
    /// Whether it can be synced: a pipe or a terminal cannot.
    durable: bool,
    waiting: Vec<u8>,
    entries: usize,
    flushed_at: Option<Instant>,
    given_up: bool,
}

impl Recorder {
    /// Begins a recording. Writes the first line at once, so that a missing permission shows before
    /// the watch begins.
    pub fn create(path: &Path, header: &RecordingHeader) -> Result<Self, Error> {
        let out = open(path).map_err(|error| Error::file(path.display(), error))?;
        let durable = out.metadata().is_ok_and(|meta| meta.is_file());
        let mut recorder = Self {
            out,
            path: path.to_owned(),
            compressed: path.extension().is_some_and(|extension| extension == "zst"),
            durable,
            waiting: Vec::new(),
            entries: 0,
            flushed_at: None,
            given_up: false,
        };
        recorder.line(header)?;
        recorder.flush()?;
        Ok(recorder)
    }

    /// Writes one entry, within the next second.
    pub fn write(&mut self, entry: &RecordingEntry) -> Result<(), Error> {
        if self.given_up {
            return Ok(());
        }
        self.line(entry)?;
        self.entries += 1;
        if self.entries >= FLUSH_ENTRIES {
            self.flush()?;
        }
        Ok(())
    }

    /// Flushes if a second has passed since the last flush. Call it at every tick.
    pub fn flush_due(&mut self, now: Instant) -> Result<(), Error> {
        let since = *self.flushed_at.get_or_insert(now);
        if self.given_up || now.saturating_duration_since(since) < FLUSH_EVERY {
            return Ok(());
        }
        self.flushed_at = Some(now);
        self.flush()?;
        self.sync()
    }

    /// Writes the rest of the buffer and syncs it.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.given_up {
            return Ok(());
        }
        self.flush()?;
        self.sync()
    }

    /// Serializes an entry completely before buffering it, so that no partial line is ever left.
    fn line(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let line =
            serde_json::to_vec(value).map_err(|error| Error::file(self.path.display(), error))?;
        self.waiting.extend_from_slice(&line);
        self.waiting.push(b'\n');
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.entries = 0;
        let written = if self.compressed {
            let frame = compress_to_vec(waiting.as_slice(), CompressionLevel::Fastest);
            self.out.write_all(&frame)
        } else {
            self.out.write_all(&waiting)
        };
        self.or_give_up(written)
    }

    fn sync(&mut self) -> Result<(), Error> {
        let synced = if self.durable {
            self.out.sync_data()
        } else {
            Ok(())
        };
        self.or_give_up(synced)
    }

    /// After a partial write nothing that follows could be read.
    fn or_give_up(&mut self, result: io::Result<()>) -> Result<(), Error> {
        self.given_up |= result.is_err();
        result.map_err(|error| Error::file(self.path.display(), error))
    }
}

/// Standard output is used as it is: opening it by name would truncate it, and a socket cannot be
/// opened at all.
fn open(path: &Path) -> io::Result<File> {
    let stdout = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    if stdout.iter().any(|name| path == Path::new(name)) {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    File::create(path)
}
