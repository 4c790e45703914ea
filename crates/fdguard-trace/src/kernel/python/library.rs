//! The libpython that a program is linked with: where the loader will find it. If it is found
//! elsewhere in the end, the kernel does not recognise it by itself, and fdguard finds it in the
//! running process a moment later.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH};
use object::read::ReadCache;
use object::read::elf::ElfFile64;

/// Where libraries are without a path in the program.
const DIRS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib",
];

/// The library's file, if the program needs one.
pub(super) fn linked(program: &File, path: &Path) -> Option<PathBuf> {
    let cache = ReadCache::new(program);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let table = elf.elf_dynamic_table().ok()?;
    let mut library = None;
    let mut dirs = Vec::new();
    for entry in &table {
        let Ok(text) = table.string(entry) else {
            continue;
        };
        match entry.tag {
            DT_NEEDED if text.starts_with(b"libpython") => library = Some(text),
            DT_RPATH | DT_RUNPATH => dirs.extend(search_dirs(text, path)),
            _ => {}
        }
    }
    let library = Path::new(OsStr::from_bytes(library?));
    dirs.extend(DIRS.map(PathBuf::from));
    let mut found = dirs.iter().map(|dir| dir.join(library));
    found.find(|path| path.is_file())
}

/// The directories of a search path; `$ORIGIN` is the program's own.
fn search_dirs(text: &[u8], program: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/"));
    let dirs = text.split(|byte| *byte == b':').map(|dir| {
        let rest = dir
            .strip_prefix(b"$ORIGIN")
            .or_else(|| dir.strip_prefix(b"${ORIGIN}"));
        match rest {
            Some(rest) => {
                let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                origin.join(OsStr::from_bytes(rest))
            }
            None => PathBuf::from(OsStr::from_bytes(dir)),
        }
    });
    dirs.collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::search_dirs;

    #[test]
    fn the_origin_is_the_directory_of_the_program() {
        let dirs = search_dirs(b"$ORIGIN/../lib:/opt/lib:${ORIGIN}", Path::new("/no/bin/x"));
        let expected = ["/no/bin/../lib", "/opt/lib", "/no/bin/"].map(PathBuf::from);
        assert_eq!(dirs, expected);
    }
}
