//! What the kernel must know about a Go program to report its goroutines and who created them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdguard_kernel::GoLayout;

use super::{GoLines, is_go};

/// The function of the runtime that is called for each new goroutine, with its saved registers.
const STARTED: &str = "runtime.gostartcallfn";

/// A Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoProgram {
    /// Where its file can be opened.
    pub(crate) file: PathBuf,
    /// `Go 1.24`, or what could be found out.
    pub(crate) version: String,
    /// Where its runtime keeps goroutines, and where in the file new ones are seen.
    pub(crate) probe: Option<(GoLayout, u64)>,
}

impl GoProgram {
    /// Reads a file; `None` if it is not a Go program.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        if !is_go(file) {
            return None;
        }
        let lines = GoLines::open(file);
        let version = lines.as_ref().and_then(GoLines::version);
        let layout = version.and_then(GoLayout::of_version);
        let offset = lines.as_ref().and_then(|lines| lines.file_offset(STARTED));
        Some(Self {
            file: file.to_owned(),
            version: version.map_or("an unknown version of Go".to_owned(), |(major, minor)| {
                format!("Go {major}.{minor}")
            }),
            probe: layout.zip(offset),
        })
    }
}

/// The programs of a trace, by device, inode and size of their files.
#[derive(Debug, Default)]
pub(crate) struct GoPrograms {
    known: HashMap<(u64, u64, u64), Option<Arc<GoProgram>>>,
}

impl GoPrograms {
    /// The program that a process runs; `None` if it is not in Go.
    pub(crate) fn of_process(&mut self, pid: u32) -> Option<Arc<GoProgram>> {
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let meta = exe.metadata().ok()?;
        let known = self.known.entry((meta.dev(), meta.ino(), meta.size()));
        let program = known.or_insert_with(|| GoProgram::read(&exe).map(Arc::new));
        // The process that it was first seen in may have ended.
        let program = program.as_ref()?;
        Some(Arc::new(GoProgram {
            file: exe,
            ..GoProgram::clone(program)
        }))
    }
}
