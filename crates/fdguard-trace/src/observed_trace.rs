//! A running trace of another fdguard, found through one of its processes. Nothing is written.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use fdguard_proc::cmdline::arguments;
use fdguard_proc::environ;
use fdguard_proc::maps::{mappings, unescaped};
use fdguard_proc::process::{children, name, stat};

use crate::preload::PreloadSource;
use crate::program::TracedProgram;
use crate::session::TraceSession;
use crate::source::TraceSource as _;
use crate::{BlindReason, Error, stale_dirs, trace_dir};

/// The variable with the directory that the library writes to.
pub(crate) const VARIABLE: &str = "FDGUARD_TRACE_DIR";

/// A trace that another fdguard runs.
#[derive(Clone, Debug)]
pub struct ObservedTrace {
    dir: PathBuf,
    pid: u32,
    is_whole: bool,
}

impl ObservedTrace {
    /// Finds the trace of a process: of a traced program, of a child of one, or of the tracer
    /// itself.
    pub fn find(pid: u32) -> Result<Self, Error> {
        if let Some(dir) = dir_of(pid)? {
            let parent = parent_of(pid).and_then(|parent| dir_of(parent).ok().flatten());
            let is_whole = parent.as_ref() != Some(&dir);
            return Ok(Self { dir, pid, is_whole });
        }
        let children = children_of_tracer(pid);
        let launched = children.iter().find_map(|child| {
            let dir = dir_of(*child).ok().flatten()?;
            Some(Self {
                dir,
                pid: *child,
                is_whole: true,
            })
        });
        // A tracer that cannot see into its program has no directory.
        let mut programs = std::iter::once(pid).chain(children);
        launched.ok_or_else(|| Error::Untraced {
            pid,
            blind: programs.find_map(|pid| program_of(pid)?.blind),
        })
    }

    /// The process that it is about: the given one, or the one that the given tracer launched.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads what its processes recorded, without disturbing it.
    #[must_use]
    pub fn session(&self) -> TraceSession {
        TraceSession::observe(PreloadSource::foreign(&self.dir), self.pid)
    }

    /// The running processes of the trace, the one that it is about first. Orphans are included,
    /// unless it is about a child.
    pub fn pids(&self) -> Result<Vec<u32>, Error> {
        let mut pids = vec![self.pid];
        if self.is_whole {
            let keys = PreloadSource::foreign(&self.dir).processes()?;
            let others: BTreeSet<u32> = keys.into_iter().map(|key| key.pid).collect();
            let running = others.into_iter().filter(|pid| is_alive(*pid));
            // A pid may belong to another process by now.
            let ours = |pid: &u32| dir_of(*pid).ok().flatten().as_ref() == Some(&self.dir);
            pids.extend(running.filter(|pid| *pid != self.pid).filter(ours));
        }
        Ok(pids)
    }
}

/// The directory that a process writes to: where fdguard's files are mapped, otherwise the one in
/// its environment.
fn dir_of(pid: u32) -> Result<Option<PathBuf>, Error> {
    let maps = read(pid, "maps")?;
    let mapped = mappings(&maps).filter_map(|mapping| {
        let path = PathBuf::from(OsString::from_vec(unescaped(mapping.path)));
        path.parent().map(Path::to_owned)
    });
    // A file of an attached process stays mapped if the fdguard that attached was killed.
    let mut mapped = mapped.filter(|path| trace_dir::is_one(path));
    let environ = read(pid, "environ")?;
    let told = environ::values(&environ, VARIABLE);
    let told = told.map(|value| PathBuf::from(OsString::from_vec(value.to_vec())));
    let told: Vec<PathBuf> = told.filter(|path| trace_dir::is_one(path)).collect();
    let is_live = |path: &PathBuf| told.contains(path) || stale_dirs::is_claimed(path);
    let mapped = mapped.find(is_live);
    Ok(mapped.or_else(|| told.first().cloned()))
}

fn read(pid: u32, name: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let whole = std::fs::File::open(format!("/proc/{pid}/{name}"))
        .and_then(|mut file| file.read_to_end(&mut bytes));
    match whole {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::Denied { pid }),
        Err(_) => Err(Error::NoProcess { pid }),
    }
}

/// The children of a process whose command line has the word `trace`; otherwise none, because
/// orphans of a trace may have any parent.
fn children_of_tracer(pid: u32) -> Vec<u32> {
    let words = read(pid, "cmdline").unwrap_or_default();
    if !arguments(&words).skip(1).any(|word| word == b"trace") {
        return Vec::new();
    }
    children(pid)
}

fn parent_of(pid: u32) -> Option<u32> {
    stat(pid, |stat| stat.ppid).ok()
}

/// A program that runs without the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntracedProgram {
    /// Its current name.
    pub comm: String,
    /// Why it did not load the library.
    pub blind: BlindReason,
}

impl UntracedProgram {
    /// The program as it runs now.
    pub(crate) fn from_pid(pid: u32) -> Self {
        let blind = program_of(pid).and_then(|program| program.blind);
        Self {
            comm: name(pid).unwrap_or_default(),
            blind: blind.unwrap_or(BlindReason::NotLoaded),
        }
    }
}

impl UntracedProgram {
    /// The same, with this reason if nothing in the program itself is one.
    pub(crate) fn or_because(self, blind: BlindReason) -> Self {
        match self.blind {
            BlindReason::NotLoaded => Self { blind, ..self },
            _ => self,
        }
    }
}

/// The program that a process runs.
pub(crate) fn program_of(pid: u32) -> Option<TracedProgram> {
    TracedProgram::find(OsStr::new(&format!("/proc/{pid}/exe"))).ok()
}

/// Whether it is running; a zombie is not.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid, |stat| !stat.is_zombie()).unwrap_or(false)
}
