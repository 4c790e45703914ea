//! The private directory of a trace: the injected library, and the files of the traced processes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;
use rustix::fs::{StatVfsMountFlags, statvfs};
use tempfile::TempDir;

use crate::{node, stale_dirs};

/// The injected library, built and compressed by this crate's build script.
const PACKED: &[u8] = include_bytes!(env!("FDGUARD_PRELOAD"));
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    // What does not unpack is reported like a machine without a library.
    match ZlibDecoder::new(PACKED).read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(_) => Vec::new(),
    }
});
pub(crate) const LIBRARY_NAME: &str = "libfdguard_preload.so";
/// The module that Node loads.
const NODE_AGENT: &[u8] = node::AGENT.as_bytes();
const NODE_AGENT_NAME: &str = "fdguard-node.cjs";

/// The directory; it is removed at the end.
#[derive(Debug)]
pub(crate) struct TraceDir {
    dir: TempDir,
    /// Marks the trace as running.
    _claim: File,
}

/// The injected library's bytes, for inspection; empty if there is none for this machine.
#[must_use]
pub fn library() -> &'static [u8] {
    &LIBRARY
}

/// Whether there is a library for this machine.
pub(crate) fn has_library() -> bool {
    !LIBRARY.is_empty()
}

/// Whether this is an existing trace directory.
pub(crate) fn is_one(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(stale_dirs::PREFIX.as_bytes()) && path.is_absolute() && path.is_dir()
}

impl TraceDir {
    /// Creates it where files are kept in memory, if programs may be run from there, otherwise in
    /// the directory for temporary files.
    pub(crate) fn create() -> io::Result<Self> {
        let shared = PathBuf::from("/dev/shm");
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for parent in [shared, std::env::temp_dir()] {
            if !may_run_from(&parent) {
                continue;
            }
            stale_dirs::sweep(&parent);
            match fill(&parent) {
                Ok(dir) => return Ok(dir),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join(LIBRARY_NAME)
    }

    pub(crate) fn node_agent(&self) -> PathBuf {
        self.dir.path().join(NODE_AGENT_NAME)
    }

    /// Leaves it in place: processes that stay alive would complain about a missing library.
    pub(crate) fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

fn fill(parent: &Path) -> io::Result<TraceDir> {
    let dir = tempfile::Builder::new()
        .prefix(stale_dirs::PREFIX)
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(parent)?;
    for (name, bytes) in [(LIBRARY_NAME, library()), (NODE_AGENT_NAME, NODE_AGENT)] {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o500)
            .open(dir.path().join(name))?;
        file.write_all(bytes)?;
    }
    let claim = stale_dirs::claim(dir.path())?;
    Ok(TraceDir { dir, _claim: claim })
}

/// The loader maps the library as code, which a file system may forbid.
fn may_run_from(dir: &Path) -> bool {
    // The loader treats these characters as the end of a name.
    let is_one_word = !dir
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :".contains(byte));
    is_one_word && statvfs(dir).is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}
