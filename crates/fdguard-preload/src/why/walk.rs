//! The walk over the heap, in the copy: every object that the collector knows, and what each holds
//! by its own `tp_traverse`. Nothing of the heap is written to: each page would be copied.

#![expect(unsafe_code, reason = "reads the interpreter's objects")]

use core::ffi::{c_int, c_void};

use fdguard_wire::{
    LISTS, NUMBER, ORIGIN_SHIFT, UNTRACKED, WALK_MAGIC, WALK_PLACES, WalkHead, WalkNode,
    WalkRequest, WalkState,
};

use crate::sys;

const MMAP: usize = 9;
const READ_WRITE: usize = 3;
const PRIVATE_ANONYMOUS: usize = 0x22;
const NO_RESERVE: usize = 0x4000;
const FIXED_NO_REPLACE: usize = 0x10_0000;
const PAGE: usize = 4096;
/// The collector's head is this far in front of an object.
const HEAD: u64 = 16;
const TYPE_FLAGS: u64 = 168;
const TYPE_TRAVERSE: u64 = 184;
const HAS_COLLECTOR: u64 = 1 << 14;
/// Flags in the collector's pointers.
const FLAGS: u64 = 3;
/// How often a walker that hangs for a test wakes up, in nanoseconds.
const HANG: u64 = 20_000_000;
/// More objects than this are not walked.
const MOST_OBJECTS: u64 = 1 << 27;

type Visit = unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int;
type Traverse = unsafe extern "C" fn(*const c_void, Visit, *mut c_void) -> c_int;

/// Memory of the copy alone; `None` if the kernel refuses it.
fn map(address: usize, bytes: usize, flags: usize) -> Option<usize> {
    let flags = PRIVATE_ANONYMOUS | NO_RESERVE | flags;
    // SAFETY: a new mapping that replaces no other.
    let start = unsafe { sys::call(MMAP, [address, bytes, READ_WRITE, flags, usize::MAX, 0]) };
    let start = usize::try_from(start).ok()?;
    (address == 0 || start == address).then_some(start)
}

/// The head, at a place where fdguard looks for it.
pub(super) fn new_head(request: &WalkRequest) -> Option<*mut WalkHead> {
    for place in WALK_PLACES {
        let Ok(place) = usize::try_from(place) else {
            continue;
        };
        if let Some(start) = map(place, PAGE, FIXED_NO_REPLACE) {
            let head = start as *mut WalkHead;
            let empty = WalkHead {
                magic: WALK_MAGIC,
                nonce: request.nonce,
                state: WalkState::Walking as u64,
                ..WalkHead::default()
            };
            // SAFETY: a page that was just mapped.
            unsafe { head.write_volatile(empty) };
            return Some(head);
        }
    }
    None
}

/// Says how it ended.
pub(super) fn finish(head: *mut WalkHead, state: WalkState) {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: takes the address of a field of the copy's own page.
    let place = unsafe { &raw mut (*head).state };
    // SAFETY: as above.
    unsafe { place.write_volatile(state as u64) };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the library is for machines of 64 bits"
)]
fn pointer<T>(address: u64) -> *const T {
    core::ptr::with_exposed_provenance(address as usize)
}

/// The word at an address of the interpreter.
fn word(address: u64) -> u64 {
    let place = pointer::<u64>(address);
    // SAFETY: the interpreter itself would read it; if it cannot be, only the copy ends.
    unsafe { place.read_volatile() }
}

/// A growing list in a mapping of a fixed size.
#[derive(Clone, Copy)]
struct Room<T> {
    start: *mut T,
    count: usize,
    most: usize,
}

impl<T> Room<T> {
    fn new(most: usize) -> Option<Self> {
        let bytes = most.checked_mul(size_of::<T>())?.max(PAGE);
        let start = map(0, bytes, 0)? as *mut T;
        Some(Self {
            start,
            count: 0,
            most,
        })
    }

    fn push(&mut self, item: T) -> bool {
        let is_free = self.count < self.most;
        if is_free {
            // SAFETY: within the mapping.
            let place = unsafe { self.start.add(self.count) };
            // SAFETY: as above.
            unsafe { place.write(item) };
            self.count += 1;
        }
        is_free
    }

    fn get(&self, index: usize) -> Option<T>
    where
        T: Copy,
    {
        if index >= self.count {
            return None;
        }
        // SAFETY: within what was written.
        let place = unsafe { self.start.add(index) };
        // SAFETY: as above.
        Some(unsafe { place.read() })
    }
}

/// What the walk has found.
struct Walk<'a> {
    request: &'a WalkRequest,
    nodes: Room<WalkNode>,
    edges: Room<u64>,
    /// Tuples and dicts that no list has, in the order in which they were met.
    untracked: Room<u64>,
    /// The same as a set: a table with open addresses.
    seen: *mut u64,
    seen_mask: usize,
    is_full: bool,
}

/// Walks; what it has found is in the head.
pub(super) fn walk(request: &WalkRequest, head: *mut WalkHead) -> WalkState {
    if word(request.collecting) & 0xffff_ffff != 0 {
        return WalkState::Collecting;
    }
    let Some(objects) = count(request) else {
        return WalkState::Endless;
    };
    let Some(mut walk) = Walk::new(request, objects) else {
        return WalkState::NoMemory;
    };
    walk.lists();
    walk.rest();
    if walk.is_full {
        return WalkState::NoRoom;
    }
    // SAFETY: the copy's own page.
    let head = unsafe { &mut *head };
    head.nodes = walk.nodes.start as u64;
    head.node_count = walk.nodes.count as u64;
    head.edges = walk.edges.start as u64;
    head.edge_count = walk.edges.count as u64;
    WalkState::Done
}

/// How many objects the lists have.
fn count(request: &WalkRequest) -> Option<usize> {
    let mut objects = 0;
    for list in request.lists {
        let mut at = word(list) & !FLAGS;
        while at != list {
            objects += 1;
            if objects > MOST_OBJECTS || at == 0 {
                return None;
            }
            at = word(at) & !FLAGS;
        }
    }
    usize::try_from(objects).ok()
}

impl<'a> Walk<'a> {
    fn new(request: &'a WalkRequest, objects: usize) -> Option<Self> {
        let untracked = objects.checked_mul(2)?.checked_add(1 << 16)?;
        let places = untracked.checked_mul(2)?.checked_next_power_of_two()?;
        let nodes = objects.checked_add(untracked)?;
        // What is reserved costs nothing; what is used is limited.
        let bytes = usize::try_from(request.bytes).unwrap_or(usize::MAX);
        let edges = objects.checked_mul(64)?.checked_add(1 << 22)?;
        Some(Self {
            request,
            nodes: Room::new(nodes)?,
            edges: Room::new(edges.min(bytes / 8))?,
            untracked: Room::new(untracked)?,
            seen: map(0, places.checked_mul(8)?, 0)? as *mut u64,
            seen_mask: places - 1,
            is_full: false,
        })
    }

    /// Everything in the collector's lists.
    fn lists(&mut self) {
        let lists: [u64; LISTS] = self.request.lists;
        for (origin, list) in (0_u64..).zip(lists) {
            let mut at = word(list) & !FLAGS;
            while at != list && !self.is_full {
                self.add(at + HEAD, origin);
                at = word(at) & !FLAGS;
            }
        }
    }

    /// The tuples and dicts that only those hold.
    fn rest(&mut self) {
        let mut next = 0;
        while let Some(object) = self.untracked.get(next) {
            if self.is_full {
                return;
            }
            self.add(object, UNTRACKED);
            next += 1;
        }
    }

    fn add(&mut self, object: u64, origin: u64) {
        let kind = word(object + 8);
        let traverse = word(kind + TYPE_TRAVERSE);
        if traverse != 0 {
            let address = pointer::<c_void>(traverse);
            // SAFETY: the function that the collector calls for this object.
            let traverse = unsafe { core::mem::transmute::<*const c_void, Traverse>(address) };
            let argument = core::ptr::from_mut(self).cast();
            let object = pointer::<c_void>(object);
            // SAFETY: it passes each object that this one holds to `visit`, and changes nothing.
            let _ = unsafe { traverse(object, visit, argument) };
        }
        let node = WalkNode {
            address: object,
            kind,
            count: word(object),
            end: self.edges.count as u64 | (origin << ORIGIN_SHIFT),
        };
        self.is_full |= !self.nodes.push(node);
        if self.request.fault != 0 && self.nodes.count as u64 >= self.request.fault {
            let _ = word(0);
        }
        if self.request.hang != 0 && self.nodes.count as u64 >= self.request.hang {
            loop {
                sys::nap(HANG);
            }
        }
    }

    /// An object is held.
    fn hold(&mut self, object: u64) {
        let kind = word(object + 8);
        if self.request.skipped.contains(&kind) {
            return;
        }
        let edge = if kind == self.request.long {
            let value = word(object + 24) & 0x3fff_ffff;
            let is_small = word(object + 16) == self.request.one_digit;
            if !is_small || value > self.request.most {
                return;
            }
            NUMBER | value
        } else {
            let is_plain = kind == self.request.dict || kind == self.request.tuple;
            let has_head = word(kind + TYPE_FLAGS) & HAS_COLLECTOR != 0;
            // An object that no list has has no successor.
            if is_plain && has_head && word(object - HEAD) == 0 {
                self.meet(object);
            }
            object
        };
        self.is_full |= !self.edges.push(edge);
    }

    /// Remembers a tuple or dict that no list has.
    fn meet(&mut self, object: u64) {
        let mut place = hash(object);
        loop {
            place &= self.seen_mask;
            // SAFETY: within the table, by the mask.
            let entry = unsafe { self.seen.add(place) };
            // SAFETY: as above.
            let known = unsafe { entry.read() };
            if known == object {
                return;
            }
            if known == 0 {
                self.is_full |= !self.untracked.push(object);
                // SAFETY: as above.
                unsafe { entry.write(object) };
                return;
            }
            place += 1;
        }
    }
}

const fn hash(object: u64) -> usize {
    (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize
}

/// The collector's functions call it for each object that one holds.
unsafe extern "C" fn visit(object: *const c_void, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is what `add` passed, which nothing else uses meanwhile.
    let walk = unsafe { &mut *argument.cast::<Walk<'_>>() };
    if !object.is_null() {
        walk.hold(object.expose_provenance() as u64);
    }
    c_int::from(walk.is_full)
}
