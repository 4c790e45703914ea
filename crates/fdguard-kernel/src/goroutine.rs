//! Goroutines: where each version of Go keeps what the programs read, and the instruction at which
//! a new one is seen.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::call;
use crate::loader::LoadedObject;

/// The most programs that are probed at once (`GO_PROGRAMS` in `bpf/records.h`).
const MOST: usize = 256;
/// Where `struct go_program` has the number of goroutines that were created.
const CREATED: usize = 40;

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

    fn bytes(self, generation: u32, program: u32) -> Vec<u8> {
        let words = [
            generation,
            self.thread,
            self.stopped,
            self.stopped_bp,
            self.id,
            self.created_at,
            self.running,
            program,
        ];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }
}

/// A Go program whose new goroutines are seen, now or at times. Created by
/// [`KernelTracer::probe_go`](crate::KernelTracer::probe_go).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoProbe(u32);

/// The Go programs whose new goroutines are seen.
#[derive(Debug, Default)]
pub(crate) struct GoProbes {
    by_file: HashMap<(u64, u64), GoProbe>,
    programs: Vec<ProbedProgram>,
}

#[derive(Debug)]
struct ProbedProgram {
    /// The path that it was found by may be gone when the probe is attached again.
    file: File,
    offset: u64,
    layout: GoLayout,
    /// Odd while the probe is attached.
    epoch: u32,
    /// It is attached while these are open.
    links: Option<[OwnedFd; 2]>,
}

impl GoProbes {
    /// Sees new goroutines of all followed processes of this program.
    pub(crate) fn add(
        &mut self,
        object: &LoadedObject,
        path: &Path,
        offset: u64,
        layout: GoLayout,
    ) -> io::Result<GoProbe> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let key = (found.dev(), found.ino());
        if let Some(known) = self.by_file.get(&key) {
            return Ok(*known);
        }
        if self.programs.len() >= MOST {
            return Err(io::Error::other("too many Go programs"));
        }
        let probe = GoProbe(u32::try_from(self.programs.len()).map_err(io::Error::other)?);
        let mut program = ProbedProgram {
            file,
            offset,
            layout,
            epoch: 0,
            links: None,
        };
        program.attach(object, probe)?;
        self.programs.push(program);
        self.by_file.insert(key, probe);
        Ok(probe)
    }

    /// Sees new goroutines of a program from now on, or no longer.
    pub(crate) fn set_attached(
        &mut self,
        object: &LoadedObject,
        probe: GoProbe,
        is_attached: bool,
    ) -> io::Result<()> {
        let program = self.programs.get_mut(probe.0 as usize);
        let program = program.ok_or(io::ErrorKind::NotFound)?;
        match (is_attached, program.links.is_some()) {
            (true, false) => program.attach(object, probe),
            (false, true) => program.detach(object, probe),
            _ => Ok(()),
        }
    }

    /// Whether its new goroutines are seen now.
    pub(crate) fn is_attached(&self, probe: GoProbe) -> bool {
        let program = self.programs.get(probe.0 as usize);
        program.is_some_and(|program| program.links.is_some())
    }
}

impl ProbedProgram {
    /// A new epoch begins before the first goroutine is seen: what is known of earlier ones may be
    /// about ended goroutines.
    fn attach(&mut self, object: &LoadedObject, probe: GoProbe) -> io::Result<()> {
        let next = self.epoch + 1;
        self.write(object, probe, next)?;
        let program = object.program("after_go_statement")?;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let path = Path::new(&path);
        let links = call::attach_uprobe(program.as_fd(), path, self.offset, probe.0.into());
        match links {
            Ok(links) => {
                self.epoch = next;
                self.links = Some(links);
                Ok(())
            }
            Err(error) => {
                self.epoch = next + 1;
                self.write(object, probe, next + 1)?;
                Err(error)
            }
        }
    }

    fn detach(&mut self, object: &LoadedObject, probe: GoProbe) -> io::Result<()> {
        // First: a goroutine that is not seen any more may have the memory of one that was.
        self.epoch += 1;
        let written = self.write(object, probe, self.epoch);
        self.links = None;
        written
    }

    fn write(&self, object: &LoadedObject, probe: GoProbe, epoch: u32) -> io::Result<()> {
        let created = created(object, probe).unwrap_or(0);
        let mut value = self.layout.bytes(0, probe.0);
        value.extend(epoch.to_ne_bytes());
        value.extend([0; 4]);
        value.extend(created.to_ne_bytes());
        let programs = object.map("go_programs")?;
        Ok(programs.update(&probe.0.to_ne_bytes(), &value)?)
    }
}

/// How many goroutines of a program were seen to be created.
pub(crate) fn created(object: &LoadedObject, probe: GoProbe) -> io::Result<u64> {
    let value = object.map("go_programs")?.read(&probe.0.to_ne_bytes())?;
    let bytes = value.get(CREATED..).and_then(|bytes| bytes.first_chunk());
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    Ok(u64::from_ne_bytes(*bytes))
}

/// Reads the goroutines of a process from now on.
pub(crate) fn follow(
    object: &LoadedObject,
    pid: u32,
    generation: u32,
    (layout, probe): (GoLayout, Option<GoProbe>),
) -> io::Result<()> {
    let processes = object.map("go_processes")?;
    // Without a probe no creators are known, whatever the program.
    let program = probe.map_or(0, |probe| probe.0);
    Ok(processes.update(&pid.to_ne_bytes(), &layout.bytes(generation, program))?)
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
