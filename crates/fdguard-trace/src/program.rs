//! Whether a program can load the injected library. This is checked before the start, because some
//! programs would not start with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fdguard_wire::{Bytes, LoaderOutcome, loading};
use object::Endianness;
use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::Error;
use crate::go::is_go;

/// The most script interpreters that are themselves scripts.
const MOST_SCRIPTS: usize = 4;

/// A program that was found.
#[derive(Clone, Debug)]
pub struct TracedProgram {
    /// The file that will run: for a script its interpreter.
    pub path: PathBuf,
    /// Why the library would not see into it.
    pub blind: Option<BlindReason>,
    /// Whether it is written in Go: then only its C part, if any, can be seen.
    pub is_go: bool,
}

/// Why launch tracing cannot see into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlindReason {
    /// It has no loader: statically linked.
    Static,
    /// Statically linked, and written in Go.
    Go,
    /// Its loader is not glibc's.
    OtherLoader,
    /// It contains a sanitizer that must be loaded before every other library.
    Sanitizer,
    /// It cannot read the library.
    Unreachable,
    /// It runs with another user's rights, so the loader ignores the library.
    Privileged,
    /// It is built for another machine than fdguard.
    OtherMachine,
    /// fdguard has no library for this machine.
    NoLibrary,
    /// It became another program, which could have loaded the library and did not.
    NotLoaded,
    /// It was running before the trace and was not named.
    NotFollowed,
    /// It became another program, and the library that fdguard had put into it is gone.
    Replaced,
}

/// Why the descriptors of a Go program have no line.
pub const GO: &str = "Go programs make system calls without libc, which tracing interposes";

impl BlindReason {
    /// The reason, in words.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Static => {
                "it is statically linked: there is no loader that could load fdguard's library"
            }
            Self::Go => GO,
            Self::OtherLoader => {
                "its loader is not glibc's (musl?) and cannot load fdguard's library"
            }
            Self::Sanitizer => {
                "its sanitizer (TSan, HWASan, or ASan without the ASAN_OPTIONS that fdguard sets) accepts no library before itself"
            }
            Self::Unreachable => {
                "it cannot read the injected library: it runs as another user, or with another root or other mounts"
            }
            Self::Privileged => {
                "it is privileged (set-uid, set-gid or file capabilities): the loader ignores injected libraries"
            }
            Self::OtherMachine => "it is built for another architecture",
            Self::NotLoaded => {
                "it executed another program that did not load the injected library (LD_PRELOAD removed from the environment?)"
            }
            Self::Replaced => {
                "it executed another program, which ends the trace of an attached process"
            }
            Self::NotFollowed => "it was running before the trace and was not named",
            Self::NoLibrary => "this build of fdguard has no library for this architecture",
        }
    }

    /// Whether the process executed this program although it was recording.
    #[must_use]
    pub fn is_by_exec(self) -> bool {
        matches!(self, Self::NotLoaded | Self::Replaced)
    }

    /// What can see it instead.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Replaced => "attach to the new program: fdguard trace PID",
            Self::NotFollowed => "name it too, or add --tree",
            Self::OtherMachine => {
                "run fdguard watch PID for class, target and rate (without the line)"
            }
            _ => {
                "trace with --source ebpf (as root, or with CAP_BPF and CAP_PERFMON), or run fdguard watch PID"
            }
        }
    }
}

impl TracedProgram {
    /// Finds the program as `execvp` would, and checks what would be loaded.
    pub fn find(name: &OsStr) -> Result<Self, Error> {
        let mut path = locate(name)?;
        let mut blind = None;
        if !crate::trace_dir::has_library() {
            blind = Some(BlindReason::NoLibrary);
        }
        for _ in 0..MOST_SCRIPTS {
            let head = head(&path).map_err(|source| Error::NotRunnable {
                program: name.display().to_string(),
                source,
            })?;
            let Some(interpreter) = interpreter_of_script(&head) else {
                blind = blind
                    .or_else(|| privileged(&path))
                    .or_else(|| of_elf(&path));
                break;
            };
            path = interpreter;
        }
        let is_go = is_go(&path);
        if is_go && blind == Some(BlindReason::Static) {
            blind = Some(BlindReason::Go);
        }
        Ok(Self { path, blind, is_go })
    }

    /// Whether the file is a Go program, as far as it can be read.
    #[must_use]
    pub fn is_go(path: &Path) -> bool {
        is_go(path)
    }
}

fn locate(name: &OsStr) -> Result<PathBuf, Error> {
    let not_found = || Error::NotFound {
        program: name.display().to_string(),
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(_) => Ok(path),
            Err(_) => Err(not_found()),
        };
    }
    let dirs = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let mut candidates = std::env::split_paths(&dirs).map(|dir| dir.join(name));
    candidates
        .find(|path| is_runnable(path))
        .ok_or_else(not_found)
}

fn is_runnable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `#! /usr/bin/env python3` runs what `env` finds.
fn interpreter_of_script(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let path = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    if path.file_name() == Some(OsStr::new("env")) {
        let mut named = words.filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        if let Some(found) = named
            .next()
            .and_then(|name| locate(OsStr::from_bytes(name)).ok())
        {
            return Some(found);
        }
    }
    Some(path)
}

fn privileged(path: &Path) -> Option<BlindReason> {
    const CAPABILITIES: &str = "security.capability";
    let meta = path.metadata().ok()?;
    let is_us = meta.uid() == rustix::process::geteuid().as_raw();
    let takes_user = meta.mode() & 0o4000 != 0 && !is_us;
    let is_our_group = meta.gid() == rustix::process::getegid().as_raw();
    let takes_group = meta.mode() & 0o2010 == 0o2010 && !is_our_group;
    let mut value = [0; 64];
    let has_capabilities =
        rustix::fs::getxattr(path, CAPABILITIES, &mut value).is_ok_and(|size| size > 0);
    let is_root = rustix::process::geteuid().is_root();
    (takes_user || takes_group || (has_capabilities && !is_root)).then_some(BlindReason::Privileged)
}

/// The reason found in the ELF header; `None` if all is well, or if it is not an ELF file, which
/// will not run anyway.
fn of_elf(path: &Path) -> Option<BlindReason> {
    let file = File::open(path).ok()?;
    let cache = object::ReadCache::new(file);
    let Ok(header) = FileHeader64::<Endianness>::parse(&cache) else {
        return Some(BlindReason::OtherMachine);
    };
    let endian = header.endian().ok()?;
    if header.e_machine.get(endian) != EM_X86_64 {
        return Some(BlindReason::OtherMachine);
    }
    if !matches!(header.e_type.get(endian), ET_EXEC | ET_DYN) {
        return None;
    }
    let segments = header.program_headers(endian, &cache).ok()?;
    let mut loaders = segments
        .iter()
        .filter(|one| one.p_type(endian) == PT_INTERP);
    let Some(loader) = loaders.next() else {
        return Some(BlindReason::Static);
    };
    let name = loader.data(endian, &cache).unwrap_or_default();
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    if !last.starts_with(b"ld-linux") {
        return Some(BlindReason::OtherLoader);
    }
    has_sanitizer(path).then_some(BlindReason::Sanitizer)
}

/// Whether a sanitizer in it would refuse to start; the same check that the library makes before it
/// is passed on.
fn has_sanitizer(path: &Path) -> bool {
    struct Whole(File);
    impl Bytes for Whole {
        fn read(&self, at: u64, into: &mut [u8]) -> usize {
            self.0.read_at(into, at).unwrap_or(0)
        }
    }
    let file = File::open(path).map(Whole);
    file.is_ok_and(|file| loading(&file, &mut [0; 256]) == LoaderOutcome::Sanitizer)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::{TracedProgram, interpreter_of_script};
    use crate::Error;

    #[test]
    fn a_script_is_its_interpreter() {
        let path = interpreter_of_script(b"#!/bin/sh -e\nexit 0\n").unwrap();
        assert_eq!(path, Path::new("/bin/sh"));
        let found = interpreter_of_script(b"#! /usr/bin/env -S A=1 sh\n").unwrap();
        assert_eq!(found.file_name(), Some(OsStr::new("sh")));
        assert!(found.is_absolute());
        assert_eq!(interpreter_of_script(b"\x7fELF"), None);
    }

    #[test]
    fn an_ordinary_program_can_be_seen_into_and_an_absent_one_is_not_found() {
        assert_eq!(TracedProgram::find(OsStr::new("sh")).unwrap().blind, None);
        let absent = TracedProgram::find(OsStr::new("fdguard-no-such-program"));
        assert!(matches!(absent, Err(Error::NotFound { .. })));
    }
}
