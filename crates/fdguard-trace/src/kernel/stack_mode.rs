//! How the kernel should take the stacks of a program: by frame pointers for Go, which has them
//! everywhere.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fdguard_kernel::StackMode;

use crate::go::is_go;

/// What is known about programs, by device, inode and size of their files.
#[derive(Debug, Default)]
pub(super) struct StackModes {
    known: HashMap<(u64, u64, u64), Option<StackMode>>,
}

impl StackModes {
    /// The mode for a process; `None` if the usual one is right.
    pub(super) fn mode(&mut self, pid: u32) -> Option<StackMode> {
        let exe = format!("/proc/{pid}/exe");
        let meta = std::fs::metadata(&exe).ok()?;
        let file = (meta.dev(), meta.ino(), meta.size());
        let mode = self.known.entry(file);
        *mode.or_insert_with(|| is_go(Path::new(&exe)).then_some(StackMode::FramePointers))
    }
}
