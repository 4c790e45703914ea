//! The pipe through which `fdguard` hands the document of a trial to the host. An inherited
//! descriptor would also reach the program, so it opens the pipe by a path.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use fdguard_process::random;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, dumpable_behavior, geteuid};

use crate::session::scratch_dirs;

/// Both ends, and the path.
#[derive(Debug)]
pub(super) struct ReportPipe {
    pub(super) ours: OwnedFd,
    pub(super) theirs: OwnedFd,
    pub(super) name: PipeName,
}

/// The path of the end for writing; a file that was made for it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PipeName {
    path: PathBuf,
    is_file: bool,
}

impl ReportPipe {
    /// Through the host's table of descriptors if processes of its user may read that. They may
    /// not when the host hides its memory: then it is a file with a random name.
    pub(super) fn new() -> io::Result<Self> {
        let is_hidden = dumpable_behavior()? != DumpableBehavior::Dumpable;
        if is_hidden && !geteuid().is_root() {
            let dirs = scratch_dirs();
            let made = dirs.iter().find_map(|dir| Self::in_dir(dir).ok());
            return made.ok_or_else(|| {
                let reason = "no directory for temporary files can be written";
                io::Error::new(io::ErrorKind::PermissionDenied, reason)
            });
        }
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), theirs.as_raw_fd()).into();
        let name = PipeName {
            path,
            is_file: false,
        };
        Ok(Self { ours, theirs, name })
    }

    fn in_dir(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("fdguard-{}", random::nonce()?));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // From here on it is removed on every path.
        let name = PipeName {
            path,
            is_file: true,
        };
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let ours = open(&name.path, flags | OFlags::RDONLY, Mode::empty())?;
        let theirs = open(&name.path, flags | OFlags::WRONLY, Mode::empty())?;
        Ok(Self { ours, theirs, name })
    }
}

impl PipeName {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PipeName {
    fn drop(&mut self) {
        if self.is_file {
            // It was removed by another process, or the directory is gone: fine either way.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::ReportPipe;

    #[test]
    fn a_hidden_host_reads_what_is_written_to_a_file_that_is_then_gone() {
        let dir = tempfile::tempdir().unwrap();
        let ReportPipe { ours, theirs, name } = ReportPipe::in_dir(dir.path()).unwrap();
        std::fs::write(name.path(), "{}").unwrap();
        drop(theirs);
        let mut text = String::new();
        std::fs::File::from(ours).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{}");
        drop(name);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
