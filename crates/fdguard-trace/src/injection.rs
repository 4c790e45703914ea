//! The environment that injects the library into a program, and what is learned from it. Code that
//! starts programs other than through [`crate::TracedCommand`] uses this.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fdguard_core::Gap;
use fdguard_core::children::finding::ChildPile;
use fdguard_core::hazard::Hazard;
use fdguard_core::origin::Origin;

use crate::launch::Options;
use crate::lifetimes::{SiteDetail, TracedProcess};
use crate::listener::Listener;
use crate::observed_trace::{self, UntracedProgram, is_alive, outlived};
use crate::protection::Protection;
use crate::table::ProcessTables;
use crate::trace_dir::TraceDir;
use crate::{BlindReason, Error, Site, Symbols, TracedProgram};

/// The library and its directory, prepared for one program. It listens to every process that is
/// started with its environment, consecutively or at the same time, until it is dropped.
#[derive(Debug)]
pub struct Injection {
    /// Stops before its directory is removed.
    listener: Option<Listener>,
    dir: Option<TraceDir>,
    blind: Option<BlindReason>,
    /// The program's arguments, without its name.
    arguments: Vec<OsString>,
    options: Options,
}

impl Injection {
    /// Prepares everything for the program that is the first word of `command`. If the library
    /// cannot see into it, [`Injection::blind`] reports why, and it starts as it would without
    /// fdguard.
    pub fn prepare(command: &[OsString], options: Options) -> Result<Self, Error> {
        let Some((name, arguments)) = command.split_first() else {
            return Err(Error::NotFound {
                program: String::new(),
            });
        };
        let program = TracedProgram::find(name)?;
        let dir = match program.blind {
            None => Some(TraceDir::create().map_err(|source| Error::Dir { source })?),
            Some(_) => None,
        };
        let listener = dir.as_ref().map(|dir| Listener::start(dir.path()));
        let listener = listener
            .transpose()
            .map_err(|source| Error::Dir { source })?;
        Ok(Self {
            listener,
            dir,
            blind: program.blind,
            arguments: arguments.to_vec(),
            options,
        })
    }

    /// Why the library does not see into it.
    #[must_use]
    pub fn blind(&self) -> Option<BlindReason> {
        self.blind
    }

    /// Adapts the program's environment for the start with the library.
    pub fn environment(&self, variables: &mut Vec<(OsString, OsString)>) {
        let Some(dir) = &self.dir else {
            return;
        };
        let before = |variables: &[(OsString, OsString)], name: &str| {
            let mut all = variables.iter();
            let found = all.find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        set(variables, observed_trace::VARIABLE, dir.path().into());
        let others = before(variables, "LD_PRELOAD");
        set(variables, "LD_PRELOAD", preloads(&dir.library(), &others));
        set(variables, "FDGUARD_FAREWELL", "1".into());
        if let Some(protection) = &self.options.protect {
            for (name, value) in protection.variables() {
                set(variables, name, value);
            }
        }
        let options = before(variables, "NODE_OPTIONS");
        if let Some(options) = node_options(&options, &self.arguments, &dir.node_agent()) {
            set(variables, "NODE_OPTIONS", options);
        }
    }

    /// How the program is protected; `None` if it is not, or cannot be.
    #[must_use]
    pub fn protection(&self) -> Option<&Protection> {
        let protection = self.options.protect.as_ref();
        protection.filter(|_| self.dir.is_some())
    }

    /// Misuse of descriptors that was found so far, and what could not be checked. With `is_end` no
    /// further events are expected.
    pub fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.hazards(symbols, is_end))
            .unwrap_or_default()
    }

    /// What every process opened and closed so far, by line, including processes that are gone.
    /// With `is_end` no further events are expected.
    pub fn processes(
        &self,
        symbols: &mut Symbols,
        wanted: (bool, SiteDetail),
    ) -> Vec<TracedProcess> {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.processes(symbols, wanted))
            .unwrap_or_default()
    }

    /// The program was asked to end: its end begins now.
    pub fn end_begins(&self) {
        if let Some(listener) = &self.listener {
            listener.end_begins();
        }
    }

    /// It was asked to end, but continues.
    pub fn end_is_off(&self) {
        if let Some(listener) = &self.listener {
            listener.end_is_off();
        }
    }

    /// Reads what the processes did, before the files of ended processes are removed.
    pub(crate) fn listen(&self) {
        if let Some(listener) = &self.listener {
            listener.poll();
        }
    }

    /// Whether the file of this table is no longer needed.
    pub(crate) fn is_done_with(&self, key: (u32, u64)) -> bool {
        let listener = self.listener.as_ref();
        listener.is_none_or(|listener| listener.is_done_with(key))
    }

    /// The lines that repeatedly start children without waiting for them. With `is_end` no further
    /// starts or waits are expected.
    pub fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.child_piles(symbols, is_end))
            .unwrap_or_default()
    }

    /// Every line that started children, with the start times (monotonic clock) of those that were
    /// not waited for so far.
    pub fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.child_lines(symbols))
            .unwrap_or_default()
    }

    /// Children that became a program without the library, as far as they were running when the
    /// listener checked.
    pub(crate) fn became(&self) -> BTreeMap<u32, UntracedProgram> {
        let listener = self.listener.as_ref();
        listener.map(Listener::became).unwrap_or_default()
    }

    /// The line that started one of its processes: that of its starter, or of the nearest ancestor
    /// with a line in the program's own code. `None` for the first one, and for one whose start was
    /// not seen.
    pub fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        self.listener.as_ref()?.child_origin(pid, symbols)
    }

    /// What the processes recorded so far.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        match &self.dir {
            Some(dir) => ProcessTables::read(dir.path()),
            None => Ok(ProcessTables::default()),
        }
    }

    /// The same, and which of the processes are another program by now, without the library. Drops
    /// those that are gone, because their files take memory. Events of processes that came and went
    /// since the last call are read before.
    pub fn sweep(&self) -> Result<(ProcessTables, BTreeMap<u32, UntracedProgram>), Error> {
        self.listen();
        let whole = self.tables()?;
        let gone = outlived(&whole);
        let became = gone
            .iter()
            .map(|(pid, _)| (*pid, UntracedProgram::from_pid(*pid)));
        let became = became.collect();
        whole
            .clone()
            .tidy(|table| is_alive(table.pid) || !self.is_done_with((table.pid, table.began)));
        Ok((whole, became))
    }

    /// How many events of its processes were prevented from doing harm, as far as they were read:
    /// cheap, and correct at any moment.
    #[must_use]
    pub fn prevented(&self) -> Arc<AtomicU64> {
        let listener = self.listener.as_ref();
        listener.map(Listener::prevented).unwrap_or_default()
    }

    /// The lines that opened what a process holds, the one with the most first; empty for a process
    /// that recorded nothing.
    pub fn sites(&self, pid: u32, symbols: &mut Symbols) -> Result<Vec<Site>, Error> {
        let tables = self.tables()?;
        let Some(table) = tables.table_of(pid) else {
            return Ok(Vec::new());
        };
        let open: Vec<u32> = table.open.keys().copied().collect();
        Ok(Site::rank(&tables, table, open, symbols))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.listener = None;
        let Some(dir) = self.dir.take() else {
            return;
        };
        // A process that stays alive would complain at each exec that its library is gone.
        let is_used = ProcessTables::read(dir.path())
            .is_ok_and(|tables| tables.iter().any(|table| is_alive(table.pid)));
        if is_used {
            drop(dir.keep());
        }
    }
}

fn set(variables: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    match variables.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => variables.push((name.into(), value)),
    }
}

/// fdguard's library first, then those that were already set.
fn preloads(library: &Path, before: &OsStr) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if !before.is_empty() {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    list
}

/// The options that were already set, then fdguard's. `None` for a Node that may not read the
/// agent's file, because it would not start.
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
