//! The memory of a process: its regions, and the modules (program, libraries) that they belong to.

use fdguard_proc::link;
use fdguard_proc::maps::{self, MapsRegion};

/// A line of `/proc/PID/maps`, of a file or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `r-xp`.
    pub(crate) rights: Vec<u8>,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    /// The name of the file, or `[heap]` and the like, or nothing.
    pub(crate) path: Vec<u8>,
}

/// The regions of one loaded program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) inode: u64,
    pub(crate) path: Vec<u8>,
}

impl Region {
    fn new(line: MapsRegion<'_>) -> Self {
        Self {
            start: line.start,
            end: line.end,
            rights: line.rights.to_vec(),
            offset: line.offset,
            inode: line.ino,
            path: line.path.to_vec(),
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.rights.get(2) == Some(&b'x')
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.rights.get(1) == Some(&b'w')
    }

    fn is_of(&self, module: &Module) -> bool {
        self.inode == module.inode && self.path == module.path
    }

    fn begins_module(&self) -> bool {
        self.offset == 0 && (self.path.starts_with(b"/") || self.path == b"[vdso]")
    }
}

impl Module {
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Its file name without directories.
    pub(crate) fn name(&self) -> &[u8] {
        link::file_name(&self.path)
    }

    pub(crate) fn shown_name(&self) -> String {
        String::from_utf8_lossy(self.name()).into_owned()
    }
}

/// Every region.
pub(crate) fn regions(bytes: &[u8]) -> Vec<Region> {
    maps::regions(bytes).map(Region::new).collect()
}

/// Files that are mapped from their beginning and have code, with all their regions.
pub(crate) fn modules(regions: &[Region]) -> Vec<Module> {
    let mut found: Vec<(Module, bool)> = Vec::new();
    for region in regions {
        match found.last_mut() {
            Some((module, has_code)) if region.is_of(module) && region.offset > 0 => {
                module.end = region.end;
                *has_code |= region.is_executable();
            }
            _ if region.begins_module() => {
                let module = Module {
                    start: region.start,
                    end: region.end,
                    inode: region.inode,
                    path: region.path.clone(),
                };
                found.push((module, region.is_executable()));
            }
            _ => {}
        }
    }
    let with_code = found.into_iter().filter(|(_, has_code)| *has_code);
    with_code.map(|(module, _)| module).collect()
}

#[cfg(test)]
mod tests {
    use super::{modules, regions};

    const TEXT: &[u8] = b"\
55d5c7a00000-55d5c7a02000 r--p 00000000 fe:00 131                        /usr/bin/sleep
55d5c7a02000-55d5c7a06000 r-xp 00002000 fe:00 131                        /usr/bin/sleep
55d5c8e00000-55d5c8e21000 rw-p 00000000 00:00 0                          [heap]
7f1200000000-7f1200021000 rw-p 00000000 00:00 0 
7f1200030000-7f1200031000 r--p 00000000 fe:00 9                          /usr/lib/locale/C.utf8/LC_CTYPE
7f1210000000-7f1210001000 r--p 00000000 00:01 1027                       /memfd:a b (deleted)
7f1210001000-7f1210003000 r-xp 00001000 00:01 1027                       /memfd:a b (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn modules_are_files_with_code() {
        let regions = regions(TEXT);
        assert_eq!(regions.len(), 9);
        assert!(regions[2].is_writable() && regions[2].path == b"[heap]");
        let modules = modules(&regions);
        let names: Vec<_> = modules.iter().map(super::Module::shown_name).collect();
        assert_eq!(names, ["sleep", "memfd:a b", "[vdso]"]);
        assert_eq!(
            (modules[0].start, modules[0].end),
            (0x55d5_c7a0_0000, 0x55d5_c7a0_6000)
        );
    }
}
