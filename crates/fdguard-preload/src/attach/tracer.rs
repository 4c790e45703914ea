//! Whether the tracer is still there. It holds a shared lock on the directory of the trace for as
//! long as it lives: the kernel releases the lock, however the tracer ends. See decision 083.

use core::sync::atomic::{AtomicU64, Ordering};

use super::request;
use crate::sys::{self, DirLock};

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
    let mut path = [0; 4096];
    let Some(length) = request::dir(&mut path).map(<[u8]>::len) else {
        return true;
    };
    // The last byte of the buffer is never filled: a directory has room for a file's name.
    let Some(path) = path
        .get(..=length)
        .and_then(|path| core::ffi::CStr::from_bytes_with_nul(path).ok())
    else {
        return false;
    };
    match sys::dir_lock(path) {
        DirLock::Held | DirLock::Unknown => false,
        DirLock::Free | DirLock::Absent => is_same_root,
    }
}
