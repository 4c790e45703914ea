//! Python frames of processes that the kernel traces: which processes run Python, where their
//! interpreter keeps what the kernel's walk reads, and the file, function and line of a frame.
//!
//! Nothing is guessed: an interpreter is recognised by its symbols, its version and the sizes of
//! its types, and a frame is named only by the very code object that ran in it (decision 101).

mod code;
mod image;
mod library;
mod memory;
mod process;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk_tests;

use std::collections::HashMap;
use std::path::Path;

use fdguard_kernel::{CapturedCode, LanguageFrame, PythonLayout};
use fdguard_wire::RuntimeLanguage;
use fdguard_wire::python::PythonRefusal;

use self::code::PythonCode;
pub(crate) use self::image::PythonFile;
use self::image::PythonImages;
use self::process::PythonProcess;
use crate::table::RawFrame;

/// The function of a frame whose code object is gone.
const GONE: &str = "(unknown Python code)";

/// Identifies a code object: the process, the address, and which object it was.
type CodeKey = (u32, u64, u64);

/// The interpreter of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundPython {
    /// With the addresses of the process.
    pub(crate) layout: PythonLayout,
    /// For the processes that are started later.
    pub(crate) file: PythonFile,
}

/// The interpreter of a program that is about to start.
pub(crate) fn find_in_program(path: &Path) -> Option<PythonFile> {
    PythonImages::default().find_for_program(path)
}

/// Reads any file as an interpreter, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_image(bytes: &[u8]) {
    let _image = image::PythonImage::read(bytes);
}

/// Reads any code object, for the fuzz target: the version, then four parts of equal size.
#[cfg(feature = "fuzzing")]
pub fn fuzz_captured_code(bytes: &[u8]) {
    let Some((version, bytes)) = bytes.split_first() else {
        return;
    };
    let mut parts = bytes.chunks(bytes.len() / 4 + 1).map(<[u8]>::to_vec);
    let mut part = || parts.next().unwrap_or_default();
    let captured = CapturedCode {
        pid: 1,
        minor: 8 + u16::from(*version % 8),
        code: 0,
        identity: 0,
        object: part(),
        file: part(),
        name: part(),
        lines: Some(part()),
    };
    if let Some(code) = PythonCode::decode(&captured) {
        for instruction in [-1, 0, 2, 40, i32::MAX] {
            let _line = code.line(instruction);
        }
        assert!(code.is_whole() && code.file().len() <= 4 * bytes.len());
    }
}

/// Whether a file that was mapped may be Python's library.
pub(crate) fn is_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"libpython"))
}

/// What a walk of the heap must know of an interpreter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PythonHeap {
    pub(crate) minor: u16,
    /// The address of `_PyRuntime`.
    pub(crate) runtime: u64,
    pub(crate) unicode_type: u64,
    pub(crate) bytes_type: u64,
    /// dict, tuple and int; then types of leaves.
    pub(crate) plain: [u64; 7],
}

/// The heap of a running process.
pub(crate) fn find_heap(pid: u32) -> Result<PythonHeap, PythonRefusal> {
    let process = process::find(pid, &mut PythonImages::default())?;
    Ok(PythonHeap {
        minor: process.image.offsets.minor,
        runtime: process.layout.runtime,
        unicode_type: process.unicode_type(),
        bytes_type: process.bytes_type(),
        plain: process.plain_types(),
    })
}

/// Why the Python frames of a process are not known; `None` if it has none.
pub(crate) fn explain(refusal: PythonRefusal) -> Option<&'static str> {
    Some(match refusal {
        PythonRefusal::NoPython => return None,
        PythonRefusal::PyPy => "PyPy keeps its frames in another way than CPython",
        PythonRefusal::TooOld => "the Python is older than 3.9",
        PythonRefusal::TooNew => "the Python is newer than 3.13",
        PythonRefusal::Unreleased => "the Python is an alpha or beta version",
        PythonRefusal::FreeThreaded => "the Python is a free-threaded build",
        PythonRefusal::SymbolMissing => "the Python was built without its symbols",
        PythonRefusal::LayoutDiffers => "the Python was built with unusual options",
        PythonRefusal::Machine => "the Python is built for another machine",
        PythonRefusal::OtherLibrary => "the Python uses another C library than glibc",
    })
}

/// What is known of the interpreters of all traced processes.
#[derive(Debug, Default)]
pub(crate) struct PythonProcesses {
    images: PythonImages,
    processes: HashMap<u32, PythonProcess>,
    codes: HashMap<CodeKey, PythonCode>,
    /// Frames that could not be named.
    gone: u64,
}

impl PythonProcesses {
    /// Recognises the interpreter of a process, for the kernel's walk. To be called when a process
    /// is followed, after an exec, and when it has mapped a library.
    pub(crate) fn find(&mut self, pid: u32) -> Result<FoundPython, PythonRefusal> {
        let process = process::find(pid, &mut self.images)?;
        self.processes.insert(pid, process);
        let (device, inode) = process.file;
        Ok(FoundPython {
            layout: process.layout,
            file: PythonFile {
                device,
                inode,
                layout: process.image.layout,
            },
        })
    }

    /// Takes a code object that the kernel copied.
    pub(crate) fn add_code(&mut self, captured: &CapturedCode) {
        let key = (captured.pid, captured.code, captured.identity);
        if let Some(code) = PythonCode::decode(captured).filter(PythonCode::is_whole) {
            self.codes.insert(key, code);
        }
    }

    /// The frames of a stack with their text, innermost first.
    pub(crate) fn name(&mut self, pid: u32, frames: &[LanguageFrame]) -> Vec<RawFrame> {
        frames.iter().map(|one| self.name_frame(pid, one)).collect()
    }

    /// How many frames could not be named, because their code was gone before it was read.
    pub(crate) const fn gone(&self) -> u64 {
        self.gone
    }

    /// A child begins with its parent's memory.
    pub(crate) fn fork(&mut self, parent: u32, child: u32) {
        if let Some(process) = self.processes.get(&parent).copied() {
            self.processes.insert(child, process);
        }
    }

    /// Forgets a program that has ended, or has executed another one. Code of that one may already
    /// be here.
    pub(crate) fn forget(&mut self, pid: u32) {
        let is_over = !Path::new(&format!("/proc/{pid}")).exists();
        if self.processes.remove(&pid).is_some() && is_over {
            self.codes.retain(|(owner, ..), _| *owner != pid);
        }
    }

    fn name_frame(&mut self, pid: u32, frame: &LanguageFrame) -> RawFrame {
        let key = (pid, frame.code, frame.identity);
        if !self.codes.contains_key(&key)
            && let Some(code) = self.fetch(pid, frame)
        {
            self.codes.insert(key, code);
        }
        let known = self.codes.get(&key);
        let (file, function, line) = match known {
            Some(code) => (code.file(), code.function(), code.line(frame.instruction)),
            None => {
                self.gone = self.gone.saturating_add(1);
                ("", GONE, None)
            }
        };
        RawFrame::Language {
            tongue: RuntimeLanguage::Python,
            file: file.to_owned(),
            function: function.to_owned(),
            line: line.unwrap_or(0),
            library: None,
        }
    }

    /// Reads a code object that the kernel did not copy, or not completely, from the process.
    fn fetch(&mut self, pid: u32, frame: &LanguageFrame) -> Option<PythonCode> {
        let process = self.process(pid)?;
        let captured = memory::capture(pid, frame.code, &process)?;
        if captured.identity != frame.identity {
            return None;
        }
        PythonCode::decode(&captured)
    }

    /// The interpreter; found now if the kernel recognised it by itself.
    fn process(&mut self, pid: u32) -> Option<PythonProcess> {
        if let Some(process) = self.processes.get(&pid) {
            return Some(*process);
        }
        let process = process::find(pid, &mut self.images).ok()?;
        self.processes.insert(pid, process);
        Some(process)
    }
}
