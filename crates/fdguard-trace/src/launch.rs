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
    /// Keep the tables of processes that ended with something of their own open.
    pub keep_ended: bool,
    /// Give the program a group of its own, no input, and pipes for its output: see
    /// [`TracedCommand::take_output`].
    pub as_server: bool,
    /// Keep stale descriptors from reaching other files.
    pub protect: Option<Protection>,
}

impl Options {
    /// To judge what each process left open at its end.
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
    /// To protect the program as well, if that is asked for.
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
    /// What its processes became that have no table for it.
    became: BTreeMap<u32, UntracedProgram>,
    /// Tables of programs that became others.
    outlived: BTreeSet<(u32, u64)>,
    /// Processes whose table was read, also those that were forgotten since.
    with_table: BTreeSet<u32>,
    /// Which program each process without a table was when it was looked at.
    without_table: BTreeMap<u32, PathBuf>,
}

impl TracedCommand {
    /// Starts the program, the first word of `command`. Its input, output and terminal are ours.
    pub fn launch(command: &[OsString], options: Options) -> Result<Self, Error> {
        let injection = Injection::prepare(command, options)?;
        // It was looked at in `prepare`, and is there.
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

    /// How it is protected; absent where it is not, or cannot be.
    #[must_use]
    pub fn protection(&self) -> Option<&Protection> {
        self.injection.protection()
    }

    /// What its processes became, as far as somebody looked; counts only for those without a table.
    #[must_use]
    pub fn became(&self) -> BTreeMap<u32, UntracedProgram> {
        let mut became = self.injection.became();
        became.extend(self.became.clone());
        became
    }

    /// What its processes wrote down until now.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        let mut tables = self.injection.tables()?;
        tables.outlive(&self.outlived);
        Ok(tables)
    }

    /// The same, and forgets processes that are gone: their files take memory.
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

    /// Misuse of descriptors that was found until now, and what could not be looked for. With
    /// `is_end` nobody is expected to write any more.
    pub fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        self.injection.hazards(symbols, is_end)
    }

    /// What every process opened and closed until now, by line; also of those that are gone. With
    /// `is_end` nobody is expected to write any more.
    pub fn processes(
        &self,
        symbols: &mut Symbols,
        (is_end, detail): (bool, SiteDetail),
    ) -> Vec<TracedProcess> {
        let mut processes = self.injection.processes(symbols, (is_end, detail));
        // What has become a program that the library does not see into is not what it was.
        processes.retain(|one| !self.outlived.contains(&(one.pid, one.began)));
        processes
    }

    /// The end of the program begins now: it was asked to end.
    pub fn end_begins(&self) {
        self.injection.end_begins();
    }

    /// It was asked to end, and goes on.
    pub fn end_is_off(&self) {
        self.injection.end_is_off();
    }

    /// The lines that start children again and again and do not wait for them: see
    /// [`Injection::child_piles`].
    pub fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        self.injection.child_piles(symbols, is_end)
    }

    /// Every line that started children, with the times by the monotonic clock at which those were
    /// started that nobody waited for until now.
    pub fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        self.injection.child_lines(symbols)
    }

    /// The line that started a process of it: see [`Injection::child_origin`].
    pub fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        self.injection.child_origin(pid, symbols)
    }

    /// Looks at processes that have no table: a shell may be another program by the next look, and
    /// nobody can ask it after its end.
    pub fn note_programs_without_table(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            if exe.is_some() && self.without_table.get(&pid) != exe.as_ref() {
                self.became.insert(pid, UntracedProgram::from_pid(pid));
                self.without_table.extend(exe.map(|exe| (pid, exe)));
            }
        }
    }

    /// The processes that ever wrote a table which was read by [`TracedCommand::tables_of_living`].
    #[must_use]
    pub fn pids_with_table(&self) -> &BTreeSet<u32> {
        &self.with_table
    }

    /// Its standard output and standard error, where it was started as a server; once.
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

    /// What becomes readable at its end; absent on kernels and in sandboxes that forbid it.
    #[must_use]
    pub fn handle(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }

    /// Passes a signal on to it, unless it ended.
    pub fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        // Not yet waited for, so the number is still its own.
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
