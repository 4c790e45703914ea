//! Goroutines: where each version of Go keeps what the programs read, and the instruction at which
//! a new one is seen.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::call;
use crate::loader::LoadedObject;

/// The most programs that are probed at once (`GO_PROGRAMS` in `bpf/records.h`).
const MOST: usize = 256;

/// Where a version of Go keeps what belongs to a goroutine, in bytes (`struct go_layout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoLayout {
    /// `g.m`
    thread: u32,
    /// `g.sched`
    stopped: u32,
    /// `g.sched.bp`
    stopped_bp: u32,
    /// `g.goid`
    id: u32,
    /// `g.gopc`
    created_at: u32,
    /// `m.curg`
    running: u32,
}

impl GoLayout {
    /// The layout of a version, as its own debug information describes it: 1.24 is `(1, 24)`.
    /// `None` for a version that is not known.
    #[must_use]
    pub fn of_version(version: (u32, u32)) -> Option<Self> {
        let (stopped_bp, id, created_at, running) = match version {
            (1, 19) => (104, 152, 296, 192),
            (1, 21 | 22) => (104, 152, 280, 192),
            (1, 23 | 24) => (104, 160, 288, 192),
            (1, 25) => (96, 152, 280, 184),
            (1, 26 | 27) => (96, 152, 288, 184),
            _ => return None,
        };
        Some(Self {
            thread: 48,
            stopped: 56,
            stopped_bp,
            id,
            created_at,
            running,
        })
    }

    fn bytes(self, generation: u32) -> Vec<u8> {
        let words = [
            generation,
            self.thread,
            self.stopped,
            self.stopped_bp,
            self.id,
            self.created_at,
            self.running,
            0,
        ];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }
}

/// The Go programs whose new goroutines are seen.
#[derive(Debug, Default)]
pub(crate) struct GoProbes {
    /// By device and inode; the links hold while they are open.
    programs: HashMap<(u64, u64), [OwnedFd; 2]>,
}

impl GoProbes {
    /// Sees new goroutines of all followed processes of this program.
    pub(crate) fn add(
        &mut self,
        object: &LoadedObject,
        file: &Path,
        offset: u64,
        layout: GoLayout,
    ) -> io::Result<()> {
        let found = file.metadata()?;
        let key = (found.dev(), found.ino());
        if self.programs.contains_key(&key) {
            return Ok(());
        }
        if self.programs.len() >= MOST {
            return Err(io::Error::other("too many Go programs"));
        }
        let number = u32::try_from(self.programs.len()).map_err(io::Error::other)?;
        let layouts = object.map("go_programs")?;
        layouts.update(&number.to_ne_bytes(), &layout.bytes(0))?;
        let program = object.program("after_go_statement")?;
        let links = call::attach_uprobe(program.as_fd(), file, offset, number.into())?;
        self.programs.insert(key, links);
        Ok(())
    }
}

/// Reads the goroutines of a process from now on.
pub(crate) fn follow(
    object: &LoadedObject,
    pid: u32,
    generation: u32,
    layout: GoLayout,
) -> io::Result<()> {
    let processes = object.map("go_processes")?;
    Ok(processes.update(&pid.to_ne_bytes(), &layout.bytes(generation))?)
}

#[cfg(test)]
mod tests {
    use super::GoLayout;

    #[test]
    fn an_unknown_version_has_no_layout() {
        assert!(GoLayout::of_version((1, 19)).is_some());
        assert!(GoLayout::of_version((1, 27)).is_some());
        for unknown in [(1, 15), (1, 18), (1, 99), (2, 21)] {
            assert_eq!(GoLayout::of_version(unknown), None);
        }
    }
}
