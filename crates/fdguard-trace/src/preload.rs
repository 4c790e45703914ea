//! The source of programs that are started with the preloaded library: a private directory in which
//! each process keeps one file with its table and its ring.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fdguard_core::TraceKey;
use fdguard_wire::{ANY_ORDER, accepts_any_order};

use crate::observed_trace::{self, is_alive};
use crate::protection::Protection;
use crate::record_files::{RecordFiles, is_outlived, is_starting};
use crate::source::{EventReader, TraceSource};
use crate::table::ProcessTable;
use crate::trace_dir::TraceDir;
use crate::{BlindReason, Error, TracedProgram};

/// The library and its directory, prepared for one program. Every process that is started with its
/// environment records, consecutively or at the same time.
#[derive(Debug)]
pub struct PreloadSource {
    dir: RecordDir,
    blind: Option<BlindReason>,
    /// The program's arguments, without its name.
    arguments: Vec<OsString>,
    protection: Option<Protection>,
    /// Whether the library records which line used each descriptor last.
    users: bool,
    /// Whether Python programs wait until their heap was walked.
    pauses: bool,
}

/// Where the files are.
#[derive(Debug)]
enum RecordDir {
    /// The library cannot see into the program.
    Absent,
    /// Created for this trace; removed at its end.
    Own(Option<TraceDir>),
    /// Of another fdguard's trace: nothing is written there.
    Foreign(PathBuf),
}

impl PreloadSource {
    /// Prepares everything for the program that is the first word of `command`. If the library
    /// cannot see into it, [`TraceSource::blind`] reports why, and it starts as it would without
    /// fdguard.
    pub fn prepare(command: &[OsString], protection: Option<Protection>) -> Result<Self, Error> {
        let Some((name, arguments)) = command.split_first() else {
            return Err(Error::NotFound {
                program: String::new(),
            });
        };
        let program = TracedProgram::find(name)?;
        let dir = match program.blind {
            None => RecordDir::Own(Some(
                TraceDir::create().map_err(|source| Error::Dir { source })?,
            )),
            Some(_) => RecordDir::Absent,
        };
        Ok(Self {
            dir,
            blind: program.blind,
            arguments: arguments.to_vec(),
            protection,
            users: false,
            pauses: false,
        })
    }

    /// Has the library record which line used each descriptor last.
    #[must_use]
    pub(crate) fn recording_users(mut self, is_wanted: bool) -> Self {
        self.users = is_wanted;
        self
    }

    /// Has Python programs wait at their first descriptors and at their end, until their heap was
    /// walked.
    #[must_use]
    pub(crate) fn pausing(mut self, is_wanted: bool) -> Self {
        self.pauses = is_wanted;
        self
    }

    /// The files of a trace that another fdguard runs.
    pub(crate) fn foreign(dir: &Path) -> Self {
        Self {
            dir: RecordDir::Foreign(dir.to_owned()),
            blind: None,
            arguments: Vec::new(),
            protection: None,
            users: false,
            pauses: false,
        }
    }

    /// Adapts the program's environment for the start with the library.
    pub fn environment(&self, variables: &mut Vec<(OsString, OsString)>) {
        let RecordDir::Own(Some(dir)) = &self.dir else {
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
        if self.users {
            set(variables, "FDGUARD_USERS", "1".into());
        }
        if self.pauses {
            set(variables, "FDGUARD_PAUSES", "1".into());
        }
        if let Some(protection) = &self.protection {
            for (name, value) in protection.variables() {
                set(variables, name, value);
            }
        }
        let options = before(variables, "ASAN_OPTIONS");
        set(variables, "ASAN_OPTIONS", asan_options(options));
        let options = before(variables, "NODE_OPTIONS");
        if let Some(options) = node_options(&options, &self.arguments, &dir.node_agent()) {
            set(variables, "NODE_OPTIONS", options);
        }
    }

    /// Its files; `None` if the library cannot see into the program.
    fn files(&self) -> Option<RecordFiles> {
        match &self.dir {
            RecordDir::Absent => None,
            RecordDir::Own(dir) => dir.as_ref().map(TraceDir::path).map(RecordFiles::new),
            RecordDir::Foreign(path) => Some(RecordFiles::new(path)),
        }
    }

    fn existing_files(&self) -> io::Result<RecordFiles> {
        self.files().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl TraceSource for PreloadSource {
    fn backend(&self) -> &'static str {
        "preload"
    }

    fn blind(&self) -> Option<BlindReason> {
        self.blind
    }

    fn processes(&self) -> Result<Vec<TraceKey>, Error> {
        self.files().map_or(Ok(Vec::new()), |files| files.keys())
    }

    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>> {
        Ok(Box::new(self.existing_files()?.ring(key)?))
    }

    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        self.existing_files()?.table(key)
    }

    fn is_outlived(&self, key: TraceKey) -> bool {
        self.files().is_some() && is_outlived(key, key.pid)
    }

    fn is_starting(&self, pid: u32) -> bool {
        self.files().is_some() && is_starting(pid)
    }

    fn waiting(&self) -> Vec<(TraceKey, SystemTime)> {
        match self.files() {
            Some(files) if self.pauses => files.waiting(),
            _ => Vec::new(),
        }
    }

    fn release(&self, key: TraceKey) {
        if let Some(files) = self.files().filter(|_| self.pauses) {
            files.release(key);
        }
    }

    fn release_all(&self) {
        if let Some(files) = self.files().filter(|_| self.pauses) {
            files.release_all();
        }
    }

    fn remove(&self, key: TraceKey) {
        if let RecordDir::Own(_) = self.dir
            && let Some(files) = self.files()
        {
            files.remove(key);
        }
    }
}

impl Drop for PreloadSource {
    fn drop(&mut self) {
        // A process that stays alive would complain at each exec that its library is gone.
        let keys = self.processes().unwrap_or_default();
        let is_used = keys.into_iter().any(|key| is_alive(key.pid));
        if let RecordDir::Own(dir) = &mut self.dir
            && let Some(dir) = dir.take().filter(|_| is_used)
        {
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

/// The options that were already set, then the one without which programs with `AddressSanitizer`
/// do not start: it requires to be the first library, although only a library that allocates in its
/// place would harm it.
fn asan_options(mut options: OsString) -> OsString {
    if accepts_any_order(options.as_bytes()) {
        return options;
    }
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ANY_ORDER);
    options
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

    use super::{asan_options, node_options};

    #[test]
    fn a_sanitizer_keeps_its_options_and_starts() {
        for (before, after) in [
            ("", "verify_asan_link_order=0"),
            ("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0"),
            (
                "verify_asan_link_order=1",
                "verify_asan_link_order=1:verify_asan_link_order=0",
            ),
            (
                "a=1 verify_asan_link_order=no",
                "a=1 verify_asan_link_order=no",
            ),
        ] {
            assert_eq!(asan_options(before.into()), after, "{before}");
        }
    }

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
