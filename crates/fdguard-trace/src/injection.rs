//! What a program is started with so that the library is in it, and what is learned of it then.
//! Whoever starts programs by other means than [`crate::TracedCommand`] uses this.

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

/// The library and its folder, made ready for one program. It listens to every process that is
/// started with its environment, one after the other as well as at the same time, until it is
/// dropped.
#[derive(Debug)]
pub struct Injection {
    /// Ends before its folder goes.
    listener: Option<Listener>,
    dir: Option<TraceDir>,
    blind: Option<BlindReason>,
    /// The program's arguments, without its name.
    arguments: Vec<OsString>,
    options: Options,
}

impl Injection {
    /// Makes everything ready for the program that is the first word of `command`. One that the
    /// library cannot see into is told by [`Injection::blind`], and starts as it would without us.
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

    /// Changes the environment that the program would have into the one that it is to be started
    /// with.
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

    /// How the program is protected; absent where it is not, or cannot be.
    #[must_use]
    pub fn protection(&self) -> Option<&Protection> {
        let protection = self.options.protect.as_ref();
        protection.filter(|_| self.dir.is_some())
    }

    /// Misuse of descriptors that was found until now, and what could not be looked for. With
    /// `is_end` nobody is expected to write any more.
    pub fn hazards(&self, symbols: &mut Symbols, is_end: bool) -> (Vec<Hazard>, Vec<Gap>) {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.hazards(symbols, is_end))
            .unwrap_or_default()
    }

    /// What every process opened and closed until now, by line; also of those that are gone. With
    /// `is_end` nobody is expected to write any more.
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

    /// The end of the program begins now: it was asked to end.
    pub fn end_begins(&self) {
        if let Some(listener) = &self.listener {
            listener.end_begins();
        }
    }

    /// It was asked to end, and goes on.
    pub fn end_is_off(&self) {
        if let Some(listener) = &self.listener {
            listener.end_is_off();
        }
    }

    /// Reads what the processes did, before files of those that are gone go.
    pub(crate) fn listen(&self) {
        if let Some(listener) = &self.listener {
            listener.poll();
        }
    }

    /// Whether the file of this table is not needed any more.
    pub(crate) fn is_done_with(&self, key: (u32, u64)) -> bool {
        let listener = self.listener.as_ref();
        listener.is_none_or(|listener| listener.is_done_with(key))
    }

    /// The lines that start children again and again and do not wait for them. With `is_end` nobody
    /// is expected to start or wait any more.
    pub fn child_piles(&self, symbols: &mut Symbols, is_end: bool) -> Vec<ChildPile> {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.child_piles(symbols, is_end))
            .unwrap_or_default()
    }

    /// Every line that started children, with the times by the monotonic clock at which those were
    /// started that nobody waited for until now.
    pub fn child_lines(&self, symbols: &mut Symbols) -> Vec<(ChildPile, Vec<u64>)> {
        let listener = self.listener.as_ref();
        listener
            .map(|listener| listener.child_lines(symbols))
            .unwrap_or_default()
    }

    /// Children that became a program without the library, as far as they ran when the listener
    /// looked.
    pub(crate) fn became(&self) -> BTreeMap<u32, UntracedProgram> {
        let listener = self.listener.as_ref();
        listener.map(Listener::became).unwrap_or_default()
    }

    /// The line that started a process of it: that of its starter, or of the nearest ancestor that
    /// has a line of the program's own. Absent for the first one, and for one whose start nobody
    /// saw.
    pub fn child_origin(&self, pid: u32, symbols: &mut Symbols) -> Option<Origin> {
        self.listener.as_ref()?.child_origin(pid, symbols)
    }

    /// What the processes wrote down until now.
    pub fn tables(&self) -> Result<ProcessTables, Error> {
        match &self.dir {
            Some(dir) => ProcessTables::read(dir.path()),
            None => Ok(ProcessTables::default()),
        }
    }

    /// The same, and which of the processes are another program by now, without the library.
    /// Forgets those that are gone: their files take memory. Who came and went since the last time
    /// is heard before.
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

    /// How many events of its processes were kept from doing harm, as far as they were heard:
    /// cheap, and right at any moment.
    #[must_use]
    pub fn prevented(&self) -> Arc<AtomicU64> {
        let listener = self.listener.as_ref();
        listener.map(Listener::prevented).unwrap_or_default()
    }

    /// Which lines opened what a process holds, the one with the most first; empty for a process
    /// that wrote nothing down.
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
        // Who lives on would say at each exec that its library is gone.
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

/// Ours first, then those that were asked for already.
fn preloads(library: &Path, before: &OsStr) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if !before.is_empty() {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    list
}

/// Those that were set already, then ours. A Node that may not read our file would not start: none
/// then.
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
