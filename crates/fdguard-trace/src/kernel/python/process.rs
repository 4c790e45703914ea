//! The interpreter of a running process, found through its mappings.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fdguard_kernel::PythonLayout;
use fdguard_proc::link::without_mark;
use fdguard_proc::maps::{MapsRegion, regions, unescaped};
use fdguard_wire::python::PythonRefusal;

use super::code::word;
use super::image::{PythonImage, PythonImages};
use crate::module_files::{ModuleFiles, file_and_name};

/// An interpreter in a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct PythonProcess {
    /// With the addresses of this process.
    pub(super) layout: PythonLayout,
    /// The file that it was loaded from.
    pub(super) image: PythonImage,
    /// The device and the inode number of this file.
    pub(super) file: (u64, u64),
}

impl PythonProcess {
    /// The address of `PyUnicode_Type`.
    pub(super) fn unicode_type(&self) -> u64 {
        self.image.unicode_type.wrapping_add(self.bias())
    }

    /// The address of `PyBytes_Type`.
    pub(super) fn bytes_type(&self) -> u64 {
        self.image.bytes_type.wrapping_add(self.bias())
    }

    /// The address of each type of `PLAIN`; 0 for one that the file does not name.
    pub(super) fn plain_types(&self) -> [u64; super::image::PLAIN.len()] {
        let bias = self.bias();
        let loaded = |address: u64| address.wrapping_add(bias);
        self.image
            .plain
            .map(|one| if one == 0 { 0 } else { loaded(one) })
    }

    /// Whether this is one of its code objects.
    pub(super) fn has_code(&self, object: &[u8]) -> bool {
        word(object, self.image.offsets.object_type) == Some(self.layout.code_type)
    }

    fn bias(&self) -> u64 {
        self.layout.runtime.wrapping_sub(self.image.layout.runtime)
    }
}

/// Recognises the interpreter of a process: in its program, or in a library.
pub(super) fn find(pid: u32, images: &mut PythonImages) -> Result<PythonProcess, PythonRefusal> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let program = std::fs::metadata(format!("/proc/{pid}/exe")).map(|found| found.ino());
    let mut refusal = PythonRefusal::NoPython;
    let mut has_glibc = true;
    let mut found = None;
    for region in regions(&maps).filter(is_code) {
        let name = name_of(&region);
        has_glibc &= !name.starts_with(b"ld-musl");
        let is_program = program.as_ref().is_ok_and(|ino| *ino == region.ino);
        if found.is_some() || !(is_program || name.starts_with(b"libpython")) {
            continue;
        }
        let Some((file, metadata)) = open(pid, &region) else {
            continue;
        };
        match images.read(file) {
            Ok(image) => found = load(image, (metadata.dev(), metadata.ino()), &region),
            Err(PythonRefusal::NoPython) => {}
            Err(reason) => refusal = reason,
        }
    }
    match found {
        Some(_) if !has_glibc => Err(PythonRefusal::OtherLibrary),
        Some(process) => Ok(process),
        None => Err(refusal),
    }
}

fn is_code(region: &MapsRegion<'_>) -> bool {
    region.rights.get(2) == Some(&b'x') && region.ino != 0 && region.path.starts_with(b"/")
}

fn name_of<'a>(region: &MapsRegion<'a>) -> &'a [u8] {
    region
        .path
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default()
}

/// The mapped file, in the root directory of the process.
fn open(pid: u32, region: &MapsRegion<'_>) -> Option<(File, Metadata)> {
    let path = unescaped(region.path);
    let path = without_mark(&path);
    let files = ModuleFiles::new(pid);
    let located = files.locate(Path::new(OsStr::from_bytes(path)));
    let (file, _) = file_and_name(&located);
    let file = File::open(file).ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.ino() == region.ino && metadata.is_file()).then_some((file, metadata))
}

/// The addresses of the interpreter, from where its code is mapped.
fn load(image: PythonImage, file: (u64, u64), region: &MapsRegion<'_>) -> Option<PythonProcess> {
    let layout = image.layout;
    // A loader may map code in pieces; all have the same distance.
    let inside = region.offset.checked_sub(layout.segment_offset)?;
    let address = layout.segment_address.checked_add(inside)?;
    let bias = region.start.wrapping_sub(address);
    Some(PythonProcess {
        layout: layout.loaded(bias),
        image,
        file,
    })
}
