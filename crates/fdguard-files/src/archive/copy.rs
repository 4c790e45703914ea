//! Copies a file to another file system: the copy is written next to its final place, read back,
//! compared with the original, and given its metadata.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rustix::fs::{Advice, Gid, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::digest::{self, Contents, Scanner};
use super::names;
use super::receipt::{ArchiveProblem, ArchiveTrouble};
use crate::dir::Dir;
use crate::lease::{self, LeaseAnswer};

/// The most names that are tried.
const MOST_NAMES: u32 = 1000;

/// Creates the empty copy. A partial copy left by a killed archive is removed: it is the beginning
/// of the original. Any other file is left alone.
pub(super) fn create(to: &Dir, name: &OsStr, original: &File) -> io::Result<(OsString, File)> {
    for number in 0..MOST_NAMES {
        let part = names::numbered(&names::unfinished(name), number);
        match to.create(&part) {
            Ok(copy) => return Ok((part, copy)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if is_left_over(to, &part, original) {
            to.remove(&part)?;
            return Ok((part.clone(), to.create(&part)?));
        }
    }
    Err(Errno::EXIST.into())
}

fn is_left_over(to: &Dir, part: &OsStr, original: &File) -> bool {
    let Ok(file) = to.read(part) else {
        return false;
    };
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    is_file
        && lease::ask(&file) != LeaseAnswer::Writer
        && digest::is_beginning_of(&file, original).unwrap_or(false)
}

/// Fills the copy, syncs it to disk, and reads it back to compare it.
pub(super) fn fill(
    original: &File,
    copy: &File,
    has_json_lines: bool,
    notes: &mut Vec<String>,
) -> Result<Contents, ArchiveProblem> {
    let failed = |error: io::Error| ArchiveProblem::io("cannot copy the file", error);
    let mut scanner = Scanner::default();
    let mut writer = copy;
    digest::pieces(original, |piece| {
        scanner.push_bytes(piece);
        writer.write_all(piece)?;
        Ok(true)
    })
    .map_err(failed)?;
    let contents = scanner.finish(original, has_json_lines).map_err(failed)?;
    dress(original, copy, notes).map_err(failed)?;
    copy.sync_all().map_err(failed)?;
    // So that it is read from disk. Where that is not possible it is read from memory.
    let _ = rustix::fs::fadvise(copy, 0, None, Advice::DontNeed);
    let compared = digest::read_contents(copy, has_json_lines).map_err(failed)?;
    if compared != contents {
        return Err(ArchiveProblem::new(
            ArchiveTrouble::Differs,
            "the copy differs from the original",
            "check the kernel log (dmesg): the archive's disk may be failing",
        ));
    }
    Ok(contents)
}

/// Owner, mode, attributes and times of the original. Anything that cannot be kept is noted: the
/// bytes matter more.
fn dress(original: &File, copy: &File, notes: &mut Vec<String>) -> io::Result<()> {
    let meta = original.metadata()?;
    let now = copy.metadata()?;
    if (now.uid(), now.gid()) != (meta.uid(), meta.gid()) {
        let owner = Some(Uid::from_raw(meta.uid()));
        let group = Some(Gid::from_raw(meta.gid()));
        if let Err(error) = rustix::fs::fchown(copy, owner, group) {
            notes.push(format!("the owner could not be preserved: {error}"));
        }
    }
    copy.set_permissions(std::fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    if let Err(error) = attributes(original, copy) {
        notes.push(format!(
            "some extended attributes could not be preserved: {error}"
        ));
    }
    let time = |seconds, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    Ok(rustix::fs::futimens(copy, &times)?)
}

fn attributes(original: &File, copy: &File) -> io::Result<()> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::flistxattr(original, &mut names[..]) {
        Ok(length) => length,
        // A file system without attributes has none to keep.
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; 1 << 16];
    let all = names[..length].split(|byte| *byte == 0);
    for name in all.filter(|name| !name.is_empty()) {
        let read = rustix::fs::fgetxattr(original, name, &mut value[..])?;
        rustix::fs::fsetxattr(copy, name, &value[..read], XattrFlags::empty())?;
    }
    Ok(())
}
