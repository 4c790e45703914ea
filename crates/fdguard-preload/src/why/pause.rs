//! The pauses of a Python program that is launched with `--why`: at its fourth descriptor, and when
//! its interpreter begins to shut down, until fdguard has walked its heap. What a short program
//! does is over before anybody can look at it from outside. See decision 230.
//!
//! A process that pauses creates a file beside its mapping, `PID-BEGAN.waiting`, and goes on when
//! fdguard has removed it, has gone, or does not answer.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use fdguard_wire::{NOBODY_ASKS, TableMapping, WAITING};

use crate::start::{self, GROUND};
use crate::{errno, language, owner, room, sys};

/// The variable that asks for the pauses.
const ASKED: &CStr = c"FDGUARD_PAUSES";
/// This many descriptors of its own are worth a walk.
const ENOUGH: usize = 4;
/// The longest pause, for an fdguard that lives and does not answer.
const LONGEST: u64 = 15_000_000_000;
/// How often to see whether it is over, and after how many times whether fdguard is still there.
const LOOK: u64 = 1_000_000;
const LOOKS: u32 = 100;
const MONOTONIC: usize = 1;

/// The process that has paused at its first descriptors, or will not.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// The process that has paused at its end.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// A descriptor was opened.
#[inline]
pub(crate) fn opened() {
    if OPENED.load(Ordering::Relaxed) == 0 {
        pause_at(&OPENED, ENOUGH);
    }
}

/// The program ends now: its objects are whole for the last time.
pub(crate) fn ending() {
    if ENDED.load(Ordering::Relaxed) == 0 {
        pause_at(&ENDED, 1);
    }
}

/// The interpreter may be shutting down: it resets the handlers of signals before it collects.
pub(crate) fn resets_a_handler() {
    if ENDED.load(Ordering::Relaxed) == 0 && language::is_ending() {
        ending();
    }
}

/// In a forked child.
pub(crate) fn forked() {
    OPENED.store(0, Ordering::Relaxed);
    ENDED.store(0, Ordering::Relaxed);
}

/// Pauses once, if the process has opened this many descriptors that are open.
#[cold]
#[inline(never)]
fn pause_at(done: &AtomicU32, least: usize) {
    // A `vfork` child runs in the memory of its parent.
    if !owner::is_here() {
        return;
    }
    let error = errno::load();
    if !language::is_python() || start::setting(ASKED, &mut [0; 8]).is_none() {
        done.store(1, Ordering::Relaxed);
    } else if let Some(mapping) = start::current()
        && has_opened(mapping, least)
        && done.swap(1, Ordering::Relaxed) == 0
        && !start::is_filtered()
        && room::is_enough()
    {
        let _ = pause(mapping);
    }
    errno::store(error);
}

fn has_opened(mapping: &TableMapping, least: usize) -> bool {
    let open = (0..mapping.numbers()).filter(|fd| {
        let open = mapping.open_record(&GROUND, *fd);
        open.is_some_and(|open| open.forks == 0)
    });
    open.take(least).count() == least
}

fn pause(mapping: &TableMapping) -> Option<()> {
    let began = mapping.header.began.load(Ordering::Relaxed);
    let (mut buffer, mut dir, mut name) = ([0; 4096], [0; 4096], [0; 4096]);
    let path = start::path(&mut buffer, sys::process(), began, WAITING)?;
    let dir = start::dir(&mut dir, b"\0")?;
    let nobody = start::dir(&mut name, NOBODY_ASKS)?;
    if sys::file_at(nobody).is_some() {
        return None;
    }
    sys::close(sys::new_file(path)?);
    let end = sys::clock(MONOTONIC).saturating_add(LONGEST);
    let mut looks = 0;
    while sys::file_at(path).is_some() && sys::file_at(nobody).is_none() {
        let is_alone = looks % LOOKS == 0 && sys::dir_lock(dir) == sys::DirLock::Free;
        if is_alone || sys::clock(MONOTONIC) >= end {
            break;
        }
        looks = looks.wrapping_add(1);
        sys::nap(LOOK);
    }
    sys::unlink(path);
    Some(())
}
