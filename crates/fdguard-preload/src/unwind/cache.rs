//! Unwind rules by address, so that a known frame costs a few loads.
//!
//! All threads share it without a lock. The key is stored mixed with the rest of its entry, so an
//! entry that two writers wrote in part matches no key.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Step;
use super::registers::{GONE, KEPT, RETURN, Registers, SAME, from, place};
use super::rule::{Cfa, Place, Rules};
use crate::memory::Memory;

const ENTRIES: usize = 2048;

#[repr(align(32))]
struct Entry {
    key: AtomicU64,
    cfa: AtomicU64,
    kept: AtomicU64,
}

static CACHE: [Entry; ENTRIES] = [const {
    Entry {
        key: AtomicU64::new(0),
        cfa: AtomicU64::new(0),
        kept: AtomicU64::new(0),
    }
}; ENTRIES];

/// Raised when a module is unloaded: what was known of its addresses is no longer valid.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Forgets everything.
pub(crate) fn forget() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

fn entry(address: usize) -> Option<&'static Entry> {
    CACHE.get((address ^ address >> 11) % ENTRIES)
}

fn key(address: usize, cfa: u64, kept: u64) -> u64 {
    let epoch = EPOCH.load(Ordering::Relaxed);
    address as u64 ^ cfa.rotate_left(32) ^ kept.rotate_left(7) ^ epoch.rotate_left(48)
}

/// Steps to the caller by the rules of an address, if they are known.
#[inline]
pub(crate) fn step(address: usize, registers: &mut Registers, memory: &mut Memory) -> Option<Step> {
    let entry = entry(address)?;
    let cfa = entry.cfa.load(Ordering::Relaxed);
    let kept = entry.kept.load(Ordering::Relaxed);
    // Every entry that was written has a bit set in its upper half.
    if cfa >> 32 == 0 || entry.key.load(Ordering::Relaxed) != key(address, cfa, kept) {
        return None;
    }
    Some(apply(cfa, kept, registers, memory).unwrap_or(Step::Lost))
}

#[inline]
fn apply(cfa: u64, kept: u64, registers: &mut Registers, memory: &mut Memory) -> Option<Step> {
    let base = registers.look((cfa >> 32 & 0xff) as u8, memory)?;
    let frame = base.wrapping_add_signed(cfa as u32 as i32 as isize);
    let pc = match place(kept, KEPT.len()) {
        GONE => return Some(Step::Outermost),
        SAME => return None,
        words => memory.word(from(frame, words))?,
    };
    if frame <= registers.sp() {
        return None;
    }
    if pc < 4096 {
        return Some(Step::Outermost);
    }
    registers.note(memory, frame, kept, pc);
    Some(Step::Next { is_signal: false })
}

/// Remembers rules of the common form.
pub(crate) fn store(address: usize, rules: &Rules) {
    if let Some((cfa, kept)) = packed(rules)
        && let Some(entry) = entry(address)
    {
        entry.key.store(0, Ordering::Relaxed);
        entry.cfa.store(cfa, Ordering::Relaxed);
        entry.kept.store(kept, Ordering::Relaxed);
        entry.key.store(key(address, cfa, kept), Ordering::Relaxed);
    }
}

fn packed(rules: &Rules) -> Option<(u64, u64)> {
    if rules.is_signal {
        return None;
    }
    let Cfa::Offset { register, offset } = rules.cfa else {
        return None;
    };
    let offset = u64::from(i32::try_from(offset).ok()?.cast_unsigned());
    let mut kept = [0; 8];
    for (byte, column) in kept.iter_mut().zip(KEPT.into_iter().chain([RETURN])) {
        let place = match rules.place(column) {
            Place::Same => SAME,
            Place::Undefined => GONE,
            Place::At(words) => i8::try_from(words).ok().filter(|words| *words < GONE)?,
            _ => return None,
        };
        *byte = place.to_ne_bytes()[0];
    }
    let cfa = offset | u64::from(register) << 32 | 1 << 63;
    Some((cfa, u64::from_ne_bytes(kept)))
}
