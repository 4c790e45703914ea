//! Starts the program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use fdguard_core::Gap;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::hazard::Hazard;
use fdguard_core::origin::Origin;

use crate::injection::Injection;
use crate::lifetimes::{SiteDetail, TracedProcess};
use crate::observed_trace::{UntracedProgram, is_alive, outlived};
use crate::protection::Protection;
use crate::table::ProcessTables;
use crate::{BlindReason, Error, Symbols};

/// How to trace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Keep the tables of processes that ended with descriptors of their own still open.
    pub keep_ended: bool,
    /// Give the program its own process group, no input, and pipes for its output: see
    /// [`TracedCommand::take_output`].
    pub as_server: bool,
    /// Prevent stale descriptors from reaching other files.
    pub protect: Option<Protection>,
}

impl Options {
    /// To check what each process left open when it ended.
    #[must_use]
    pub fn keeping_ended(self) -> Self {
        Self {
            keep_ended: true,
            ..self
        }
    }

    /// To start, drive and end a server.
    #[must_use]
    pub fn as_server(self) -> Self {
        Self {
            as_server: true,
            ..self
        }
    }
}

impl Options {
    /// Also protects the program, if requested.
    #[must_use]
    pub fn protecting(self, protect: Option<Protection>) -> Self {
        Self { protect, ..self }
    }
}

/// A program that was launched under the tracer.
#[derive(Debug)]
pub struct TracedCommand {
    child: Child,
    injection: Injection,
    /// The programs without a table that its processes became.
    became: BTreeMap<u32, UntracedProgram>,
    /// Tables of programs that became others.
    outlived: BTreeSet<(u32, u64)>,
    /// Processes whose table was read, including those that were dropped since.
    with_table: BTreeSet<u32>,
    /// The program that each process without a table was running when it was examined.
    without_table: BTreeMap<u32, PathBuf>,
}

impl TracedCommand {
    /// Starts the program, the first word of `command`. It shares fdguard's input, output and
    /// terminal.
    pub fn launch(command: &[OsString], options: Options) -> Result<Self, Error> {
        let injection = Injection::prepare(command, options)?;
        // `prepare` checked that it exists.
        let (name, arguments) = command.split_first().ok_or_else(|| Error::NotFound {
            program: String::new(),
        })?;
        let mut start = Command::new(name);
        start.args(arguments);
        let before: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let mut after = before.clone();
        injection.environment(&mut after);
        start.envs(after.into_iter().filter(|one| !before.contains(one)));
        if injection.options().as_server {
            start.process_group(0).stdin(Stdio::null());
            start.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let child = start.spawn().map_err(|source| {
            let program = name.display().to_string();
            match source.kind() {
                io::ErrorKind::NotFound => Error::NotFound { program },
                _ => Error::NotRunnable { program, source },
            }
        })?;
        Ok(Self {
            child,
            injection,
            became: BTreeMap::new(),
            outlived: BTreeSet::new(),
            with_table: BTreeSet::new(),
            without_table: BTreeMap::new(),
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why the library does not see into it.
    #[must_use]
    pub fn blind(&self) -> Option<BlindReason> {
        self.injection.blind()
    }

    /// How it is protected; `None` if it is not, or cannot be.
    #[must_use]
    pub fn protection(&self) -> Option<&Protection> {
        self.injection.protection()
    }

    /// The programs that its processes became, as far as they were examined; counts only for those
    /// without a table.
    #[must_use]
    pub fn became(&self) -> BTreeMap<u32, UntracedProgram> {
        let mut became = self.injection.became();
        became.extend(self.became.clone());
        became
    }

    /// What its processes recorded so far.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        let mut tables = self.injection.tables()?;
        tables.outlive(&self.outlived);
        Ok(tables)
    }

    /// The same, and drops processes that are gone, because their files take memory.
    pub fn tables_of_living(&mut self) -> Result<ProcessTables, Error> {
        self.injection.listen();
        let mut tables = self.tables()?;
        let own = self.pid();
        let pids = tables.iter().map(|table| table.pid);
        let with_table: Vec<u32> = pids.filter(|pid| tables.table_of(*pid).is_some()).collect();
        self.with_table.extend(with_table);
        for (pid, began) in outlived(&tables) {
            if self.outlived.insert((pid, began)) {
                self.became.insert(pid, UntracedProgram::from_pid(pid));
            }
        }
        tables.outlive(&self.outlived);
        let keep_ended = self.injection.options().keep_ended;
        tables.tidy(|table| {
            let holds = keep_ended && table.open.values().any(|one| one.forks == 0);
            let is_done = self.injection.is_done_with((table.pid, table.began));
            holds || table.pid == own || is_alive(table.pid) || !is_done
        });
        Ok(tables)
    }

    /// Misuse of descriptors that was found so far, and what could not be checked. With `is_end` no
    /// further events are expected.
    pub fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        self.injection.hazards(symbols, is_end)
    }

    /// What every process opened and closed so far, by line, including processes that are gone.
    /// With `is_end` no further events are expected.
    pub fn processes(
        &self,
        symbols: &mut Symbols,
        (is_end, detail): (bool, SiteDetail),
    ) -> Vec<TracedProcess> {
        let mut processes = self.injection.processes(symbols, (is_end, detail));
        // A process that became a program that the library cannot see into is not what it was.
        processes.retain(|one| !self.outlived.contains(&(one.pid, one.began)));
        processes
    }

    /// The program was asked to end: its end begins now.
    pub fn end_begins(&self) {
        self.injection.end_begins();
    }

    /// It was asked to end, but continues.
    pub fn end_is_off(&self) {
        self.injection.end_is_off();
    }

    /// The lines that repeatedly start children without waiting for them: see
    /// [`Injection::child_piles`].
    pub fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        self.injection.child_piles(symbols, is_end)
    }

    /// Every line that started children, with the start times (monotonic clock) of those that were
    /// not waited for so far.
    pub fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        self.injection.child_lines(symbols)
    }

    /// The line that started one of its processes: see [`Injection::child_origin`].
    pub fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        self.injection.child_origin(pid, symbols)
    }

    /// Examines processes that have no table: a shell may be another program at the next check, and
    /// cannot be examined after it has ended.
    pub fn note_programs_without_table(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            if exe.is_some() && self.without_table.get(&pid) != exe.as_ref() {
                self.became.insert(pid, UntracedProgram::from_pid(pid));
                self.without_table.extend(exe.map(|exe| (pid, exe)));
            }
        }
    }

    /// The processes that ever wrote a table that [`TracedCommand::tables_of_living`] read.
    #[must_use]
    pub fn pids_with_table(&self) -> &BTreeSet<u32> {
        &self.with_table
    }

    /// Its standard output and standard error, if it was started as a server; returned once.
    pub fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.stdout.take().zip(self.child.stderr.take())
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// A descriptor that becomes readable when it ends; `None` on kernels and in sandboxes that
    /// forbid it.
    #[must_use]
    pub fn handle(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }

    /// Passes a signal on to it, unless it has ended.
    pub fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        // Not yet waited for, so the pid is still its own.
        if self.child.try_wait()?.is_none()
            && let Some(pid) = i32::try_from(self.pid())
                .ok()
                .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, signal)?;
        }
        Ok(())
    }
}
