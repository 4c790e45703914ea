//! The source of programs that are started with the preloaded library: a private directory in which
//! each process keeps one file with its table and its ring.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::observed_trace::{self, is_alive};
use crate::protection::Protection;
use crate::ring::Ring;
use crate::source::{EventReader, TraceSource};
use crate::table::ProcessTable;
use crate::trace_dir::{LIBRARY_NAME, TraceDir};
use crate::{BlindReason, Error, TracedProgram};
use fdguard_core::TraceKey;
use fdguard_proc::stat::ProcStat;

/// How the name of a process's file ends.
const SUFFIX: &str = ".fdguard";

/// The library and its directory, prepared for one program. Every process that is started with its
/// environment records, consecutively or at the same time.
#[derive(Debug)]
pub struct PreloadSource {
    dir: RecordDir,
    blind: Option<BlindReason>,
    /// The program's arguments, without its name.
    arguments: Vec<OsString>,
    protection: Option<Protection>,
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
        })
    }

    /// The files of a trace that another fdguard runs.
    pub(crate) fn foreign(dir: &Path) -> Self {
        Self {
            dir: RecordDir::Foreign(dir.to_owned()),
            blind: None,
            arguments: Vec::new(),
            protection: None,
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
        if let Some(protection) = &self.protection {
            for (name, value) in protection.variables() {
                set(variables, name, value);
            }
        }
        let options = before(variables, "NODE_OPTIONS");
        if let Some(options) = node_options(&options, &self.arguments, &dir.node_agent()) {
            set(variables, "NODE_OPTIONS", options);
        }
    }

    /// The directory of the files.
    fn path(&self) -> Option<&Path> {
        match &self.dir {
            RecordDir::Absent => None,
            RecordDir::Own(dir) => dir.as_ref().map(TraceDir::path),
            RecordDir::Foreign(path) => Some(path),
        }
    }

    fn file(&self, TraceKey { pid, began }: TraceKey) -> io::Result<PathBuf> {
        let dir = self.path().ok_or(io::ErrorKind::NotFound)?;
        Ok(dir.join(format!("{pid}-{began}{SUFFIX}")))
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
        let Some(dir) = self.path() else {
            return Ok(Vec::new());
        };
        let failed = |source| Error::Read {
            path: dir.to_owned(),
            source,
        };
        let mut keys = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Reading another user's directory must not block on a pipe in it.
            if let Some(key) = key_of(&entry.file_name())
                && entry.file_type().is_ok_and(|kind| kind.is_file())
            {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn events(&self, key: TraceKey) -> io::Result<Box<dyn EventReader>> {
        Ok(Box::new(Ring::open(&self.file(key)?)?))
    }

    fn table(&self, key: TraceKey) -> io::Result<Option<ProcessTable>> {
        ProcessTable::read(&self.file(key)?)
    }

    /// The file of a program that was replaced is no longer mapped.
    fn is_outlived(&self, key: TraceKey) -> bool {
        let Some(dir) = self.path().and_then(Path::file_name) else {
            return false;
        };
        // A newer table of this process counts too: it is in none of the tables read so far.
        let tables = [dir.as_bytes(), format!("/{}-", key.pid).as_bytes()].concat();
        let is_absent = || {
            let maps = std::fs::read(format!("/proc/{}/maps", key.pid)).unwrap_or_default();
            match program_after(&maps, &tables) {
                Successor::None => false,
                Successor::Loading => is_sleeping(key.pid),
                Successor::Other => true,
            }
        };
        // A process that ends during the read yields a part; the second read yields nothing.
        is_absent() && is_absent()
    }

    fn remove(&self, key: TraceKey) {
        if let RecordDir::Own(_) = self.dir
            && let Ok(file) = self.file(key)
        {
            // It only takes memory; the directory is removed at the end.
            drop(std::fs::remove_file(&file));
            drop(std::fs::remove_file(file.with_extension("left")));
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

/// What a process runs instead of the program with a known table.
#[derive(Debug, PartialEq, Eq)]
enum Successor {
    /// It has ended, or records still or again.
    None,
    /// One whose libraries are being loaded: ours may be among them, or did not begin to record.
    Loading,
    /// One without our library.
    Other,
}

/// By what is mapped: `tables` is how the paths of the process's tables begin.
fn program_after(maps: &[u8], tables: &[u8]) -> Successor {
    let is_mapped = |name: &[u8]| maps.windows(name.len()).any(|part| part == name);
    // An ended process has no maps, and if the maps cannot be read, the table is trusted.
    if maps.is_empty() || is_mapped(tables) {
        return Successor::None;
    }
    let has_libc = is_mapped(b"/libc.so") || is_mapped(b"/libc-");
    if is_mapped(LIBRARY_NAME.as_bytes()) || (is_mapped(b"/ld-linux") && !has_libc) {
        return Successor::Loading;
    }
    Successor::Other
}

/// The loader never waits, except for the disk, so a process that sleeps runs its program.
fn is_sleeping(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    ProcStat::parse(&stat).is_some_and(|stat| stat.state == b'S')
}

/// `PID-BEGAN.fdguard`.
fn key_of(name: &OsStr) -> Option<TraceKey> {
    let (pid, began) = name.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?;
    Some(TraceKey {
        pid: pid.parse().ok()?,
        began: began.parse().ok()?,
    })
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

    use fdguard_core::TraceKey;

    use super::{Successor, key_of, node_options, program_after};

    #[test]
    fn only_the_files_of_processes_have_a_key() {
        let key = TraceKey {
            pid: 12,
            began: 345,
        };
        assert_eq!(key_of(OsStr::new("12-345.fdguard")), Some(key));
        for other in [
            "12-345.left",
            "libfdguard_preload.so",
            "12.fdguard",
            "a-1.fdguard",
        ] {
            assert_eq!(key_of(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_program_whose_libraries_are_being_loaded_may_still_record() {
        let after = |names: &[&str]| {
            let line = |name: &&str| format!("7f0000000000-7f0000001000 r--p 0 fd:00 7 {name}\n");
            let maps: String = names.iter().map(line).collect();
            program_after(maps.as_bytes(), b"fdguard-trace-a/12-")
        };
        let (loader, libc) = ("/lib64/ld-linux-x86-64.so.2", "/lib/libc.so.6");
        let ours = "/dev/shm/fdguard-trace-a/libfdguard_preload.so";
        let table = "/dev/shm/fdguard-trace-a/12-345.fdguard";
        let newer = "/dev/shm/fdguard-trace-a/12-678.fdguard";
        assert_eq!(after(&[]), Successor::None);
        assert_eq!(after(&["/bin/a", libc, ours, table]), Successor::None);
        assert_eq!(after(&["/bin/b", loader]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, ours]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, ours, libc]), Successor::Loading);
        assert_eq!(after(&["/bin/b", loader, libc]), Successor::Other);
        assert_eq!(after(&["/bin/b", "/lib/libc-2.31.so"]), Successor::Other);
        assert_eq!(after(&["/bin/static"]), Successor::Other);
        assert_eq!(after(&[loader, ours, libc, newer]), Successor::None);
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
