//! Starting the program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use fdguard_core::Gap;
use fdguard_core::hazard::Hazard;

use crate::folder::Folder;
use crate::listener::Listener;
use crate::observe::{self, Became, is_alive, outlived};
use crate::table::Tables;
use crate::{Blind, Error, Program, Symbols};

/// How to trace.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Keep the tables of processes that ended with something of their own open.
    pub keep_ended: bool,
    /// Give the program a group of its own, no input, and pipes for its output: see [`Traced::take_output`].
    pub as_server: bool,
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

/// A program that was launched under the tracer.
#[derive(Debug)]
pub struct Traced {
    child: Child,
    /// Ends before its folder goes.
    listener: Option<Listener>,
    folder: Option<Folder>,
    blind: Option<Blind>,
    /// What its processes became that have no table for it.
    became: BTreeMap<u32, Became>,
    /// Tables of programs that became others.
    outlived: BTreeSet<(u32, u64)>,
    /// Processes whose table was read, also those that were forgotten since.
    told: BTreeSet<u32>,
    /// Which program each process without a table was when it was looked at.
    untold: BTreeMap<u32, PathBuf>,
    options: Options,
}

impl Traced {
    /// Starts the program, the first word of `command`. Its input, output and terminal are ours.
    pub fn launch(command: &[OsString], options: Options) -> Result<Self, Error> {
        let Some((name, arguments)) = command.split_first() else {
            return Err(Error::NotFound {
                program: String::new(),
            });
        };
        let program = Program::find(name)?;
        let folder = match program.blind {
            None => Some(Folder::create().map_err(|source| Error::Folder { source })?),
            Some(_) => None,
        };
        let listener = folder.as_ref().map(|folder| Listener::begin(folder.path()));
        let listener = listener
            .transpose()
            .map_err(|source| Error::Folder { source })?;
        let mut start = Command::new(name);
        start.args(arguments);
        if let Some(folder) = &folder {
            start.env(observe::VARIABLE, folder.path());
            start.env("LD_PRELOAD", preloads(&folder.library()));
            if options.keep_ended {
                start.env("FDGUARD_FAREWELL", "1");
            }
            let before = std::env::var_os("NODE_OPTIONS").unwrap_or_default();
            if let Some(options) = node_options(&before, arguments, &folder.node_agent()) {
                start.env("NODE_OPTIONS", options);
            }
        }
        if options.as_server {
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
            listener,
            folder,
            blind: program.blind,
            became: BTreeMap::new(),
            outlived: BTreeSet::new(),
            told: BTreeSet::new(),
            untold: BTreeMap::new(),
            options,
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why the library does not see into it.
    #[must_use]
    pub fn blind(&self) -> Option<Blind> {
        self.blind
    }

    /// What its processes became, as far as somebody looked; counts only for those without a table.
    #[must_use]
    pub fn became(&self) -> &BTreeMap<u32, Became> {
        &self.became
    }

    /// What its processes wrote down until now.
    pub fn tables(&self) -> Result<Tables, Error> {
        let Some(folder) = &self.folder else {
            return Ok(Tables::default());
        };
        let mut tables = Tables::read(folder.path())?;
        tables.outlive(&self.outlived);
        Ok(tables)
    }

    /// The same, and forgets processes that are gone: their files take memory.
    pub fn tables_of_living(&mut self) -> Result<Tables, Error> {
        let mut tables = self.tables()?;
        let own = self.pid();
        let pids = tables.iter().map(|table| table.pid);
        let told: Vec<u32> = pids.filter(|pid| tables.of(*pid).is_some()).collect();
        self.told.extend(told);
        for (pid, began) in outlived(&tables) {
            if self.outlived.insert((pid, began)) {
                self.became.insert(pid, Became::of(pid));
            }
        }
        tables.outlive(&self.outlived);
        let keep_ended = self.options.keep_ended;
        tables.tidy(|table| {
            let holds = keep_ended && table.open.values().any(|one| one.forks == 0);
            holds || table.pid == own || is_alive(table.pid)
        });
        Ok(tables)
    }

    /// Misuse of descriptors that was found until now, and what could not be looked for. With `is_end` nobody is expected
    /// to write any more.
    pub fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.hazards(symbols, is_end))
            .unwrap_or_default()
    }

    /// Looks at processes that have no table: a shell may be another program by the next look, and nobody can ask it after its end.
    pub fn look_at_untold(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            if exe.is_some() && self.untold.get(&pid) != exe.as_ref() {
                self.became.insert(pid, Became::of(pid));
                self.untold.extend(exe.map(|exe| (pid, exe)));
            }
        }
    }

    /// The processes that ever wrote a table which was read by [`Traced::tables_of_living`].
    #[must_use]
    pub fn told(&self) -> &BTreeSet<u32> {
        &self.told
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

impl Drop for Traced {
    fn drop(&mut self) {
        self.listener = None;
        let Some(folder) = self.folder.take() else {
            return;
        };
        // Who lives on would say at each exec that its library is gone.
        let is_used = Tables::read(folder.path())
            .is_ok_and(|tables| tables.iter().any(|table| is_alive(table.pid)));
        if is_used {
            drop(folder.keep());
        }
    }
}

/// Ours first, then those that were asked for already.
fn preloads(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    list
}

/// Those that were set already, then ours. A Node that may not read our file would not start: none then.
fn node_options(before: &OsStr, arguments: &[OsString], agent: &Path) -> Option<OsString> {
    const LOCKED: [&str; 2] = ["--permission", "--experimental-permission"];
    let text = before.to_string_lossy();
    let is_locked = |word: &str| LOCKED.contains(&word);
    let mut arguments = arguments.iter().filter_map(|word| word.to_str());
    if text.split_whitespace().any(is_locked) || arguments.any(is_locked) {
        return None;
    }
    let mut options = before.to_owned();
    if !options.is_empty() {
        options.push(" ");
    }
    options.push("--require=");
    options.push(agent);
    Some(options)
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::path::Path;

    use super::node_options;

    #[test]
    fn node_keeps_its_options_and_starts_where_it_may_read_little() {
        let options = |before: &str, words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            node_options(OsStr::new(before), &words, Path::new("/a.cjs"))
        };
        let text = |options: Option<OsString>| options.unwrap().into_string().unwrap();
        assert_eq!(text(options("", &["x.js"])), "--require=/a.cjs");
        assert_eq!(
            text(options("--inspect", &[])),
            "--inspect --require=/a.cjs"
        );
        assert_eq!(options("", &["--experimental-permission", "x.js"]), None);
        assert_eq!(options("--inspect --permission", &[]), None);
    }
}
