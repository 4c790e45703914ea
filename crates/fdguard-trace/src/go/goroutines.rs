//! What the kernel must know about a Go program to report its goroutines and who created them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdguard_kernel::GoLayout;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

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
        let offset = offset.map(|offset| offset + cheap_place(file, offset));
        Some(Self {
            file: file.to_owned(),
            version: version.map_or("an unknown version of Go".to_owned(), |(major, minor)| {
                format!("Go {major}.{minor}")
            }),
            probe: layout.zip(offset),
        })
    }
}

/// How far behind the beginning of a function a probe costs least. The kernel emulates `push`,
/// which follows the check of the stack; the check itself would need a second exception to step
/// over it, and runs again after the stack has grown.
fn cheap_place(file: &Path, offset: u64) -> u64 {
    let mut code = [0; 48];
    let read = File::open(file).and_then(|file| file.read_at(&mut code, offset));
    read.map_or(0, |length| push_after_check(&code[..length]))
}

/// The distance of `push rbp` from the beginning, if only the check is before it; otherwise 0. The
/// registers are as they were at the beginning.
fn push_after_check(code: &[u8]) -> u64 {
    const SEVERAL: usize = 3;
    let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    for instruction in decoder.into_iter().take(SEVERAL) {
        match instruction.mnemonic() {
            Mnemonic::Push if instruction.op0_register() == Register::RBP => {
                return instruction.ip();
            }
            Mnemonic::Cmp | Mnemonic::Jbe => {}
            _ => return 0,
        }
    }
    0
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

#[cfg(test)]
mod tests {
    use super::push_after_check;

    #[test]
    fn a_probe_is_placed_where_the_kernel_emulates() {
        // cmp rsp, [r14+16]; jbe; push rbp; mov rbp, rsp
        let checked = [
            0x49, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x55, 0x48, 0x89, 0xe5, 0x90,
        ];
        assert_eq!(push_after_check(&checked), 6);
        // push rbp; mov rbp, rsp
        assert_eq!(push_after_check(&checked[6..]), 0);
        // mov rax, [rbx]; push rbp: registers may have changed.
        assert_eq!(push_after_check(&[0x48, 0x8b, 0x03, 0x55]), 0);
        assert_eq!(push_after_check(&[]), 0);
    }
}
