//! A fake `/proc` in a temporary directory, for states that no live process can be put into.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The tree. Everything is written at once; the directory is removed with this value.
#[derive(Debug)]
pub struct FakeProc {
    root: TempDir,
    denied: Vec<PathBuf>,
}

impl Default for FakeProc {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeProc {
    /// An empty tree that every user may read.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("folder for the tree");
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("permissions");
        Self {
            root,
            denied: Vec::new(),
        }
    }

    /// Its path, for `Probe::at`.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file of the tree, such as `sys/fs/file-nr`, with its parent directories.
    pub fn file(&mut self, path: &str, content: impl AsRef<[u8]>) -> &mut Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("folder of the file")).expect("folder");
        fs::write(path, content).expect("file");
        self
    }

    /// Adds a process: plausible `stat`, `status`, `limits`, `cmdline`, `comm` and empty
    /// directories `fd` and `fdinfo`, all to be changed afterwards.
    pub fn process(&mut self, pid: u32) -> FakeProcess<'_> {
        let dir = self.root.path().join(pid.to_string());
        for directory in ["fd", "fdinfo"] {
            fs::create_dir_all(dir.join(directory)).expect("folder of the process");
        }
        let process = FakeProcess {
            tree: self,
            dir,
            pid,
            comm: b"fake".to_vec(),
            state: 'S',
            parent: 1,
            uid: 1000,
            start_ticks: 4242,
            table_size: 64,
            soft: "1024".to_owned(),
            hard: "524288".to_owned(),
        };
        process.write();
        process.file("cmdline", "fake\0--flag\0")
    }
}

impl Drop for FakeProc {
    fn drop(&mut self) {
        // Otherwise only root could remove the directory.
        for path in &self.denied {
            drop(fs::set_permissions(path, Permissions::from_mode(0o755)));
        }
    }
}

/// One process of the tree. Every method writes at once.
#[derive(Debug)]
pub struct FakeProcess<'tree> {
    tree: &'tree mut FakeProc,
    dir: PathBuf,
    pid: u32,
    comm: Vec<u8>,
    state: char,
    parent: u32,
    uid: u32,
    start_ticks: u64,
    table_size: u32,
    soft: String,
    hard: String,
}

impl FakeProcess<'_> {
    /// Its command name: any bytes, parentheses and spaces too.
    pub fn comm(mut self, comm: impl AsRef<[u8]>) -> Self {
        self.comm = comm.as_ref().to_vec();
        self.written()
    }

    /// Its arguments: any bytes.
    pub fn cmdline(self, args: &[&[u8]]) -> Self {
        let joined: Vec<u8> = args
            .iter()
            .flat_map(|arg| [arg, &b"\0"[..]].concat())
            .collect();
        self.file("cmdline", joined)
    }

    /// Its state letter: `Z` for a zombie.
    pub fn state(mut self, state: char) -> Self {
        self.state = state;
        self.written()
    }

    /// Its parent's number.
    pub fn parent(mut self, pid: u32) -> Self {
        self.parent = pid;
        self.written()
    }

    /// Its user.
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = uid;
        self.written()
    }

    /// When it started, in clock ticks after boot.
    pub fn start_ticks(mut self, ticks: u64) -> Self {
        self.start_ticks = ticks;
        self.written()
    }

    /// `FDSize` of its status.
    pub fn table_size(mut self, size: u32) -> Self {
        self.table_size = size;
        self.written()
    }

    /// Its limits on open files, as the kernel writes them: a number or `unlimited`.
    pub fn limits(mut self, soft: &str, hard: &str) -> Self {
        (self.soft, self.hard) = (soft.to_owned(), hard.to_owned());
        self.written()
    }

    /// A descriptor with its link (any bytes) and its fdinfo text.
    pub fn fd(self, fd: u32, link: impl AsRef<[u8]>, fdinfo: &str) -> Self {
        self.fd_without_info(fd, link)
            .file(&format!("fdinfo/{fd}"), fdinfo)
    }

    /// A descriptor whose fdinfo file is missing.
    pub fn fd_without_info(self, fd: u32, link: impl AsRef<[u8]>) -> Self {
        self.odd_fd(fd.to_string(), link)
    }

    /// An entry of `fd` whose name is not a number, or not text.
    pub fn odd_fd(self, name: impl AsRef<[u8]>, link: impl AsRef<[u8]>) -> Self {
        let name = OsStr::from_bytes(name.as_ref());
        symlink(
            OsStr::from_bytes(link.as_ref()),
            self.dir.join("fd").join(name),
        )
        .expect("link");
        self
    }

    /// Writes any other file of the process, or another text for one of the usual.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.dir.join(name);
        fs::create_dir_all(path.parent().expect("folder of the file")).expect("folder");
        fs::write(path, content).expect("file of the process");
        self
    }

    /// Removes a file or a whole directory of the process.
    pub fn without(self, name: &str) -> Self {
        let path = self.dir.join(name);
        if path.is_dir() {
            fs::remove_dir_all(path).expect("folder of the process");
        } else {
            fs::remove_file(path).expect("file of the process");
        }
        self
    }

    /// Removes all permissions from a file or directory, such as `fd`. Root can still read it: look
    /// as another user, with [`crate::run_as`].
    pub fn denied(self, name: &str) -> Self {
        let path = self.dir.join(name);
        fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("permissions");
        self.tree.denied.push(path);
        self
    }

    fn written(self) -> Self {
        self.write();
        self
    }

    fn write(&self) {
        let write = |name: &str, content: Vec<u8>| {
            fs::write(self.dir.join(name), content).expect("file of the process");
        };
        let line = |comm: &[u8]| [comm, b"\n"].concat();
        write("comm", line(&self.comm));
        write("stat", self.stat());
        write("status", self.status());
        write("limits", self.limits_text().into_bytes());
    }

    fn stat(&self) -> Vec<u8> {
        let Self {
            pid,
            state,
            parent,
            start_ticks,
            ..
        } = self;
        let head = format!("{pid} (");
        let tail = format!(
            ") {state} {parent} {pid} {pid} 0 -1 4194560 100 0 0 0 1 1 0 0 20 0 1 0 {start_ticks} \
             1000000 200 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        [head.as_bytes(), &self.comm, tail.as_bytes()].concat()
    }

    fn status(&self) -> Vec<u8> {
        let Self {
            pid,
            state,
            parent,
            uid,
            table_size,
            ..
        } = self;
        let tail = format!(
            "\nUmask:\t0022\nState:\t{state} (fake)\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\n\
             PPid:\t{parent}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nFDSize:\t{table_size}\nGroups:\t \n\
             NStgid:\t{pid}\nNSpid:\t{pid}\nThreads:\t1\n"
        );
        [b"Name:\t", &self.comm[..], tail.as_bytes()].concat()
    }

    fn limits_text(&self) -> String {
        let mut text = String::new();
        let rows = [
            ("Limit", "Soft Limit", "Hard Limit", "Units"),
            ("Max cpu time", "unlimited", "unlimited", "seconds"),
            ("Max open files", &self.soft, &self.hard, "files"),
            ("Max locked memory", "8388608", "8388608", "bytes"),
        ];
        for (name, soft, hard, unit) in rows {
            writeln!(text, "{name:<25} {soft:<20} {hard:<20} {unit:<10}").expect("a string");
        }
        text
    }
}
