//! The files of an attached process's modules, where fdguard cannot open them by their own names:
//! the process has another root, or a file was replaced since it was loaded.
//!
//! Each mapping is decided by itself. The files stay open, because `/proc/PID` is gone when the
//! process has ended and its lines are looked up.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fdguard_proc::link::without_mark;
use fdguard_proc::maps::{mappings, unescaped};

/// Where open files are found by number.
const OPEN_FILES: &str = "/proc/self/fd/";

/// The modules of one process.
#[derive(Debug)]
pub(crate) struct ModuleFiles {
    pid: u32,
    known: Mutex<HashMap<PathBuf, ModuleFile>>,
}

/// How fdguard can read a module.
#[derive(Debug)]
enum ModuleFile {
    /// By its own name.
    Named,
    /// Through an open file.
    Open(File),
    /// Not at all.
    Unreadable,
}

impl ModuleFiles {
    pub(crate) fn new(pid: u32) -> Self {
        Self {
            pid,
            known: Mutex::default(),
        }
    }

    /// The name under which [`Symbols`](crate::Symbols) can open a module.
    pub(crate) fn locate(&self, module: &Path) -> PathBuf {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(module.to_owned());
        match found.or_insert_with(|| find(self.pid, module)) {
            ModuleFile::Named => module.to_owned(),
            ModuleFile::Open(file) => opened_name(&file.as_raw_fd().to_string(), module),
            // Without a number it names no file: another one with the same name has other lines.
            ModuleFile::Unreadable => opened_name("", module),
        }
    }

    /// The modules whose lines cannot be looked up.
    pub(crate) fn unreadable(&self) -> BTreeSet<PathBuf> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let all = known.iter();
        let unreadable = all.filter(|(_, file)| matches!(file, ModuleFile::Unreadable));
        unreadable.map(|(path, _)| path.clone()).collect()
    }
}

/// Finds the file that is mapped, not one that has its name by now.
fn find(pid: u32, module: &Path) -> ModuleFile {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Some(mapping) = mappings(&maps).find(|one| is_named(one.path, module)) else {
        // It is gone, with its process or by dlclose: what has its name is all there is.
        let root = format!("/proc/{pid}/root{}", module.display());
        return match File::open(root) {
            Ok(file) if !module.exists() => ModuleFile::Open(file),
            _ => ModuleFile::Named,
        };
    };
    let is_mapped = |found: &std::fs::Metadata| found.ino() == mapping.ino;
    if module.metadata().is_ok_and(|found| is_mapped(&found)) {
        return ModuleFile::Named;
    }
    let (start, end) = (mapping.start, mapping.end);
    let ways = [
        format!("/proc/{pid}/map_files/{start:x}-{end:x}"),
        format!("/proc/{pid}/root{}", module.display()),
        format!("/proc/{pid}/exe"),
    ];
    let opened = ways.iter().find_map(|way| {
        let file = File::open(way).ok()?;
        file.metadata()
            .is_ok_and(|found| is_mapped(&found))
            .then_some(file)
    });
    opened.map_or(ModuleFile::Unreadable, ModuleFile::Open)
}

/// Whether a mapping is of this module, even if its file was deleted.
fn is_named(mapped: &[u8], module: &Path) -> bool {
    let mapped = unescaped(mapped);
    let module = module.as_os_str().as_bytes();
    mapped == module || without_mark(&mapped) == module
}

/// `/proc/self/fd/17//usr/bin/nginx`: the open file and the module's own name in one.
fn opened_name(fd: &str, module: &Path) -> PathBuf {
    let mut name = OsString::from(format!("{OPEN_FILES}{fd}/"));
    name.push(module);
    name.into()
}

/// The file to open for a module, and its own name.
pub(crate) fn file_and_name(module: &Path) -> (PathBuf, PathBuf) {
    let bytes = module.as_os_str().as_bytes();
    let split = bytes.strip_prefix(OPEN_FILES.as_bytes()).and_then(|rest| {
        let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
        let name = rest.get(digits..)?.strip_prefix(b"/")?;
        let file = bytes.get(..OPEN_FILES.len() + digits)?;
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        Some((path(file), path(name)))
    });
    split.unwrap_or_else(|| (module.to_owned(), module.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{ModuleFiles, file_and_name, is_named, opened_name};

    #[test]
    fn an_open_file_keeps_the_name_of_its_module() {
        let name = opened_name("17", Path::new("/usr/bin/nginx"));
        assert_eq!(name, Path::new("/proc/self/fd/17//usr/bin/nginx"));
        let parts = (
            PathBuf::from("/proc/self/fd/17"),
            PathBuf::from("/usr/bin/nginx"),
        );
        assert_eq!(file_and_name(&name), parts);
        let (file, name) = file_and_name(&opened_name("", Path::new("/usr/bin/nginx")));
        assert!(file.is_dir() && name == Path::new("/usr/bin/nginx"));
        for plain in ["/usr/bin/nginx", "/proc/self/fd/17", ""] {
            let path = PathBuf::from(plain);
            assert_eq!(file_and_name(&path), (path.clone(), path));
        }
    }

    #[test]
    fn a_deleted_file_is_known_by_its_name() {
        assert!(is_named(b"/srv/a (deleted)", Path::new("/srv/a")));
        assert!(is_named(b"/srv/a", Path::new("/srv/a")));
        assert!(!is_named(b"/srv/ab", Path::new("/srv/a")));
    }

    #[test]
    fn a_program_that_was_replaced_is_read_as_it_was_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("cat");
        std::fs::copy("/bin/cat", &program).unwrap();
        let mut child = std::process::Command::new(&program)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The link is there before the file is mapped.
        let maps = format!("/proc/{}/maps", child.id());
        let name = program.display().to_string();
        while std::fs::read_to_string(&maps).is_ok_and(|maps| !maps.contains(&name)) {
            std::thread::yield_now();
        }
        let files = ModuleFiles::new(child.id());
        assert_eq!(files.locate(&program), program);
        std::fs::remove_file(&program).unwrap();
        std::fs::write(&program, "another program").unwrap();
        let files = ModuleFiles::new(child.id());
        let (file, name) = file_and_name(&files.locate(&program));
        assert_eq!(name, program);
        let read = std::fs::read(file).unwrap();
        assert_eq!(read, std::fs::read("/bin/cat").unwrap());
        assert!(files.unreadable().is_empty());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
