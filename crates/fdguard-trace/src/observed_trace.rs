//! A running trace of another fdguard, found through one of its processes. Nothing is written.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use fdguard_core::Gap;
use fdguard_core::hazard::Hazard;
use fdguard_proc::cmdline::arguments;
use fdguard_proc::environ;
use fdguard_proc::maps::{mappings, unescaped};
use fdguard_proc::process::{children, name, stat};

use crate::program::TracedProgram;
use crate::symbol::Symbols;
use crate::table::{ProcessTable, ProcessTables};
use crate::{BlindReason, Error, listener, trace_dir};

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

    /// The program that one of its processes without a table is running.
    #[must_use]
    pub fn became(&self, pid: u32) -> UntracedProgram {
        UntracedProgram::from_pid(pid)
    }

    /// What its processes recorded so far. Those that are another program by now have no table.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        let mut tables = ProcessTables::read(&self.dir)?;
        tables.outlive(&outlived(&tables));
        Ok(tables)
    }

    /// The hazards that its processes' latest events prove: as many as their rings still hold. The
    /// fdguard that launched the trace has read all of them; this is for later observers.
    #[must_use]
    pub fn hazards(&self, symbols: &mut Symbols) -> (Vec<Hazard>, Vec<Gap>) {
        listener::recent(&self.dir, symbols)
    }

    /// The running processes of the trace, the one that it is about first. Orphans are included,
    /// unless it is about a child.
    pub fn pids(&self) -> Result<Vec<u32>, Error> {
        let mut pids = vec![self.pid];
        if self.is_whole {
            let tables = ProcessTables::read(&self.dir)?;
            let others: BTreeSet<u32> = tables.iter().map(|table| table.pid).collect();
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
    let environ = read(pid, "environ")?;
    let told = environ::values(&environ, VARIABLE);
    let told = told.map(|value| PathBuf::from(OsString::from_vec(value.to_vec())));
    Ok(mapped.chain(told).find(|path| trace_dir::is_one(path)))
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

/// Tables whose process has become another program since: then fdguard's file is no longer mapped.
pub(crate) fn outlived(tables: &ProcessTables) -> BTreeSet<(u32, u64)> {
    let pids: BTreeSet<u32> = tables.iter().map(|table| table.pid).collect();
    let latest = pids.into_iter().filter_map(|pid| tables.table_of(pid));
    let gone = latest.filter(|table| is_another(table));
    gone.map(|table| (table.pid, table.began)).collect()
}

fn is_another(table: &ProcessTable) -> bool {
    let name = table.name().as_bytes();
    let is_absent = || {
        let maps = std::fs::read(format!("/proc/{}/maps", table.pid)).unwrap_or_default();
        // An ended process has no maps, and if the maps cannot be read, the table is trusted.
        !maps.is_empty() && !maps.windows(name.len()).any(|part| part == name)
    };
    // A process that ends during the read yields a part; the second read yields nothing.
    is_absent() && is_absent()
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

fn program_of(pid: u32) -> Option<TracedProgram> {
    TracedProgram::find(OsStr::new(&format!("/proc/{pid}/exe"))).ok()
}

/// Whether it is running; a zombie is not.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid, |stat| !stat.is_zombie()).unwrap_or(false)
}
