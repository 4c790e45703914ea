//! The program that writes a record for each descriptor of a table.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use crate::loader::{self, LoadOptions, LoadedObject};
use crate::{BpfObject, LoadRefusal, call};

/// Compiled from `bpf/descriptors.bpf.c`, which has the layout of a record.
const DESCRIPTORS: &[u8] = include_bytes!("../bpf/descriptors.bpf.o");

/// The map with the variable that says which records are wanted.
const WANTED: &str = ".data";

/// Which records a walk returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedRecords {
    /// Of processes whose pid, in the first namespace, has these low bits: a mask and its result.
    pub part: (u32, u32),
    /// Whether each process has a record before those of its descriptors, and one after them.
    pub processes: bool,
}

/// The program in the kernel; dropping it removes it. It has one buffer: of all its walks, only one
/// may be read at a time.
#[derive(Debug)]
pub struct DescriptorProgram {
    object: LoadedObject,
}

impl DescriptorProgram {
    /// Whether this process has the capabilities to load it.
    #[must_use]
    pub fn is_permitted() -> bool {
        loader::may_load()
    }

    /// Loads it: with what describes processes, or without, which takes less time.
    pub fn load(describes_processes: bool) -> Result<Self, LoadRefusal> {
        let types = loader::kernel_types()?;
        let object = BpfObject::parse(DESCRIPTORS)?;
        let types = loader::find_types(&types, &[&object])?;
        let options = LoadOptions {
            constants: &[("describes_processes", u32::from(describes_processes))],
            ..LoadOptions::default()
        };
        let object = LoadedObject::load(&object, &types, &options)?;
        Ok(Self {
            // fdguard may have to do with few descriptors.
            object: object.keep_map(WANTED),
        })
    }

    /// Sets what the next reads return: at first, a record of every descriptor. What the program
    /// remembers of mounts, it forgets.
    pub fn want(&self, wanted: &WantedRecords) -> Result<(), Errno> {
        let words = [wanted.part.0, wanted.part.1, u32::from(wanted.processes), 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.object
            .map(WANTED)?
            .update(&0_u32.to_ne_bytes(), &bytes)
    }

    /// A walk over the table of one process, as `/proc/PID` shows it, or over every table visible
    /// from fdguard's pid namespace: reading from it returns records. On kernels before 6.1, a walk
    /// is always over all.
    pub fn walk(&self, process: Option<u32>) -> Result<OwnedFd, Errno> {
        let program = self.object.program("write_descriptor")?;
        let link = call::create_link(program.as_fd(), process)?;
        call::create_walk(link.as_fd())
    }
}
