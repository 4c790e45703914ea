//! What a walk records, and the callbacks that record it. The JVM's own thread calls them while
//! the program stands still: they write to memory that is mapped already, and call nothing.

#![expect(unsafe_code, reason = "callbacks of the machine")]

use core::ffi::{c_int, c_void};

use fdguard_wire::{JavaEdge, JavaNumber, JavaRoot};

use super::jvm::{Callbacks, Info};
use super::room::Room;
use crate::sys;

const VISIT: c_int = 0x100;
const ABORT: c_int = 0x8000;
const FIELD: c_int = 2;
const ELEMENT: c_int = 3;
const STATIC_FIELD: c_int = 8;
const CONSTANT: c_int = 9;
/// Kinds from here on have no referrer.
const FIRST_ROOT: c_int = 21;
const STACK_LOCAL: c_int = 24;
const JNI_LOCAL: c_int = 25;
/// Tags are written as 32 bits.
const LAST_TAG: i64 = u32::MAX as i64;
const LAST_INDEX: u32 = (1 << JavaEdge::INDEX_BITS) - 1;

/// After so many references the clock is asked.
const CLOCKED: u32 = 1024;
const MONOTONIC: usize = 1;
/// Bytes of roots, and of numbers.
const OTHERS: usize = 16 << 20;

/// A class of values that hold nothing: not recorded.
pub(super) const LEAF: u8 = 1;
/// A class whose objects own descriptors.
pub(super) const OWNER: u8 = 2;

/// The lists of a walk.
pub(super) struct Records {
    /// The class of each object, by tag.
    pub(super) nodes: Room<u32>,
    pub(super) edges: Room<JavaEdge>,
    pub(super) roots: Room<JavaRoot>,
    pub(super) numbers: Room<JavaNumber>,
    pub(super) text: Room<u8>,
    /// [`LEAF`] and [`OWNER`], by the tag of the class.
    pub(super) flags: Room<u8>,
    pub(super) last_tag: i64,
    /// The tag of the library's own thread, whose references do not count.
    pub(super) own_thread: i64,
    pub(super) is_partial: bool,
    /// When the program goes on at the latest, by the monotonic clock.
    pub(super) until: u64,
    /// References that were seen.
    seen: u32,
}

impl Records {
    /// Lists whose objects and references take this many bytes at most: they are what the program
    /// is stopped for. The other lists are short; memory counts only as far as it is used.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let part = bytes / 4;
        Some(Self {
            nodes: Room::new(part)?,
            edges: Room::new(part.saturating_mul(3))?,
            roots: Room::new(OTHERS)?,
            numbers: Room::new(OTHERS)?,
            text: Room::new(OTHERS.saturating_mul(4))?,
            flags: Room::new(1 << 22)?,
            last_tag: 0,
            own_thread: 0,
            is_partial: false,
            until: u64::MAX,
            seen: 0,
        })
    }

    pub(super) fn user(&mut self) -> *mut c_void {
        core::ptr::from_mut(self).cast()
    }

    /// Whether the time is over; the clock is asked once for many references.
    fn is_late(&mut self) -> bool {
        self.seen = self.seen.wrapping_add(1);
        self.seen.is_multiple_of(CLOCKED) && sys::clock(MONOTONIC) >= self.until
    }

    fn is_leaf(&self, class: i64) -> bool {
        let flags = usize::try_from(class)
            .ok()
            .and_then(|at| self.flags.get(at));
        flags.is_some_and(|flags| flags & LEAF != 0)
    }

    /// The tag of an object, a new one if it has none.
    fn tag(&mut self, place: *mut i64) -> Option<u32> {
        // SAFETY: the JVM passes a place for the tag.
        let tag = unsafe { place.read() };
        if tag != 0 {
            return u32::try_from(tag).ok();
        }
        if self.last_tag >= LAST_TAG {
            return None;
        }
        self.last_tag += 1;
        // SAFETY: as above.
        unsafe { place.write(self.last_tag) };
        u32::try_from(self.last_tag).ok()
    }

    fn refer(&mut self, kind: c_int, info: Option<Info>, class: i64, to: u32, from: Option<u32>) {
        let class = u32::try_from(class).unwrap_or(0);
        // A class that was loaded meanwhile has no tag; the object was reached all the same.
        let class = if class == 0 { u32::MAX } else { class };
        let is_kept = self.nodes.set(to as usize, class);
        let kind_word = kind.unsigned_abs();
        let is_recorded = match from {
            Some(from) => {
                let has_index = matches!(kind, FIELD | ELEMENT | STATIC_FIELD | CONSTANT);
                let index = info.filter(|_| has_index).map_or(0, |info| info.first);
                let index = u32::try_from(index & 0xffff_ffff).unwrap_or(0);
                let how = (kind_word << JavaEdge::INDEX_BITS) | index.min(LAST_INDEX);
                self.edges.push(JavaEdge { from, to, how })
            }
            None => self.root(kind, info, to),
        };
        self.is_partial |= !is_kept || !is_recorded;
    }

    fn root(&mut self, kind: c_int, info: Option<Info>, to: u32) -> bool {
        let mut root = JavaRoot {
            to: u64::from(to),
            kind: u64::from(kind.unsigned_abs()),
            ..JavaRoot::default()
        };
        if let Some(info) = info.filter(|_| matches!(kind, STACK_LOCAL | JNI_LOCAL)) {
            if info.first.cast_signed() == self.own_thread {
                return true;
            }
            root.thread = info.first;
            root.method = info.method;
            if kind == STACK_LOCAL {
                root.location = info.location;
                root.slot = u64::from(info.slot.unsigned_abs());
            }
        }
        self.roots.push(root)
    }
}

/// The callbacks that record numbers.
pub(super) fn number_callbacks() -> Callbacks {
    Callbacks::new(None, Some(on_field))
}

/// The callbacks that record references.
pub(super) fn reference_callbacks() -> Callbacks {
    Callbacks::new(Some(on_reference), None)
}

/// The information of a reference; only as much is read as its kind has.
fn read_info(kind: c_int, info: *const Info) -> Option<Info> {
    if info.is_null() {
        return None;
    }
    let mut copy = Info {
        first: 0,
        thread_id: 0,
        depth: 0,
        method: 0,
        location: 0,
        slot: 0,
    };
    match kind {
        FIELD | ELEMENT | STATIC_FIELD | CONSTANT => {
            // SAFETY: these begin with an index of four bytes.
            copy.first = u64::from(unsafe { info.cast::<u32>().read() });
        }
        // SAFETY: the JVM passes a union that has room for the largest of its members.
        STACK_LOCAL | JNI_LOCAL => copy = unsafe { info.read() },
        _ => return None,
    }
    Some(copy)
}

unsafe extern "C" fn on_field(
    kind: c_int,
    info: *const Info,
    class: i64,
    tag: *mut i64,
    value: u64,
    primitive: c_int,
    user: *mut c_void,
) -> c_int {
    const INT: c_int = 'I' as c_int;
    const LONG: c_int = 'J' as c_int;
    const BOOLEAN: c_int = 'Z' as c_int;
    // SAFETY: what was passed with the callbacks, which nothing else uses meanwhile.
    let records = unsafe { &mut *user.cast::<Records>() };
    let value = match primitive {
        INT => value & 0xffff_ffff,
        LONG => value,
        BOOLEAN => value & 0xff,
        _ => return VISIT,
    };
    if kind != FIELD {
        return VISIT;
    }
    let index = read_info(kind, info).map_or(0, |info| info.first);
    let Some(object) = records.tag(tag) else {
        return ABORT;
    };
    let number = JavaNumber {
        object,
        class: u32::try_from(class).unwrap_or(0),
        index,
        value,
    };
    records.is_partial |= !records.numbers.push(number);
    VISIT
}

unsafe extern "C" fn on_reference(
    kind: c_int,
    info: *const Info,
    class: i64,
    _referrer_class: i64,
    _size: i64,
    tag: *mut i64,
    referrer: *mut i64,
    _length: c_int,
    user: *mut c_void,
) -> c_int {
    // SAFETY: what was passed with the callbacks, which nothing else uses meanwhile.
    let records = unsafe { &mut *user.cast::<Records>() };
    if records.is_late() {
        records.is_partial = true;
        return ABORT;
    }
    if records.is_leaf(class) {
        return 0;
    }
    let from = match kind >= FIRST_ROOT || referrer.is_null() {
        true => None,
        false => records.tag(referrer),
    };
    let Some(to) = records.tag(tag) else {
        records.is_partial = true;
        return ABORT;
    };
    records.refer(kind, read_info(kind, info), class, to, from);
    // Without room nothing more can be learned: the program goes on at once.
    if records.is_partial { ABORT } else { VISIT }
}
