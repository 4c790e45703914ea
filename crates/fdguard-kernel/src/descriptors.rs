//! The program that writes a record for each descriptor of a table.

use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use crate::loader::{self, LoadOptions, LoadedObject};
use crate::{BpfObject, LoadRefusal, call};

/// Compiled from `bpf/descriptors.bpf.c`, which has the layout of a record.
const DESCRIPTORS: &[u8] = include_bytes!("../bpf/descriptors.bpf.o");

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

    /// Loads it.
    pub fn load() -> Result<Self, LoadRefusal> {
        let types = loader::kernel_types()?;
        let object = BpfObject::parse(DESCRIPTORS)?;
        let types = loader::find_types(&types, &[&object])?;
        let object = LoadedObject::load(&object, &types, &LoadOptions::default())?;
        Ok(Self { object })
    }

    /// Sets the numbers for which the next reads return records: at first, all.
    pub fn set_range(&self, range: &Range<u32>) -> Result<(), Errno> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&range.start.to_ne_bytes());
        bytes[4..].copy_from_slice(&range.end.to_ne_bytes());
        self.object
            .map(".data")?
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
