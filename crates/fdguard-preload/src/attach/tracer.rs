//! Whether the tracer is still there. It holds a shared lock on the directory of the trace for as
//! long as it lives: the kernel releases the lock, however the tracer ends. See decision 083.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::request;
use crate::sys::{self, DirLock};

/// What the names of records end with.
const RECORDS: &[u8] = b".fdguard";
/// The file with which the tracer claims the directory.
const NAMESPACE_NAME: &CStr = c"namespace";
const NAMESPACE: &[u8] = NAMESPACE_NAME.to_bytes();

/// Device and inode of the root directory at the attach: elsewhere the same path means another
/// directory.
static ROOT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Remembers where paths start.
pub(super) fn note() {
    for (place, word) in ROOT.iter().zip(root()) {
        place.store(word, Ordering::Relaxed);
    }
}

fn root() -> [u64; 2] {
    sys::file_at(c"/").unwrap_or_default()
}

/// Whether it is certain that there is no tracer. If the directory cannot be opened, nothing is
/// certain, except if it does not exist any more.
pub(super) fn is_gone() -> bool {
    let is_same_root = root()
        .into_iter()
        .eq(ROOT.iter().map(|word| word.load(Ordering::Relaxed)));
    let mut buffer = [0; 4096];
    match dir(&mut buffer).map(sys::dir_lock) {
        None => true,
        Some(DirLock::Held | DirLock::Unknown) => false,
        Some(DirLock::Free | DirLock::Absent) => is_same_root,
    }
}

/// The directory of the trace. The last byte of the buffer is never filled, because a request has
/// room for the name of a file in it.
fn dir(buffer: &mut [u8; 4096]) -> Option<&CStr> {
    let length = request::dir(buffer)?.len();
    CStr::from_bytes_with_nul(buffer.get(..=length)?).ok()
}

/// Removes the directory of a trace whose tracer is gone: nobody reads it any more. Forked children
/// that still have records there keep them in memory. What is not known there stays, and the
/// directory with it.
pub(super) fn remove_dir() {
    let mut buffer = [0; 4096];
    let Some(path) = dir(&mut buffer).filter(|path| is_of_a_trace(path)) else {
        return;
    };
    let Some(dir) = sys::open_dir(path) else {
        return;
    };
    let mut has_others = false;
    sys::each_name(dir, |name| match name.to_bytes() {
        b"." | b".." | NAMESPACE => {}
        known if known.ends_with(RECORDS) => sys::remove_file(dir, name),
        _ => has_others = true,
    });
    if !has_others {
        sys::remove_file(dir, NAMESPACE_NAME);
        sys::remove_dir(path);
    }
    sys::close(dir);
}

/// Whether this is the path of a directory that a tracer has made.
fn is_of_a_trace(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"fdguard-trace-"))
}
