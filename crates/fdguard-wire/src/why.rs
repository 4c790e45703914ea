//! What the tracer asks of the walker, and what the walker leaves in the memory of its copy of the
//! process.

use core::ffi::CStr;

use crate::numbered::numbered;
use crate::words::Words;

/// The library's function that copies the process and walks the copy's heap: `int (const void
/// *request, size_t size)`, where the request is a [`WalkRequest`]. It returns the pid of the copy
/// as the process sees it, or a negative `errno`.
pub const WALK: &CStr = c"fdguard_walk";
/// The library's function that removes the entry of a copy that has ended in the process table,
/// with the same arguments, where the request is the copy's pid in four bytes. Ranges may follow,
/// start and length in eight bytes each: further copies do not get them. It returns 0, or `-EAGAIN`
/// for a copy that still runs: it is told to end, and is asked for again.
pub const END_WALK: &CStr = c"fdguard_end_walk";

/// Where the walker puts its [`WalkHead`]: the first of these addresses that is free. They are far
/// from where the kernel puts memory by itself.
pub const WALK_PLACES: [u64; 8] = [
    0x0fd6_0000_0000,
    0x0fd7_0000_0000,
    0x0fd8_0000_0000,
    0x0fd9_0000_0000,
    0x0fda_0000_0000,
    0x1fd6_0000_0000,
    0x2fd6_0000_0000,
    0x3fd6_0000_0000,
];

/// The first word of a [`WalkHead`]: `fdgwalk1`.
pub const WALK_MAGIC: u64 = u64::from_ne_bytes(*b"fdgwalk1");
/// Types that are skipped: they hold nothing and own nothing.
pub const SKIPPED: usize = 6;
/// The lists of the collector: three generations, and what `gc.freeze` has put aside.
pub const LISTS: usize = 4;
/// An edge with this bit is not an address but an integer object with the value in the lower bits.
pub const NUMBER: u64 = 1 << 63;
/// The origin of a node that no list has: an untracked tuple or dict.
pub const UNTRACKED: u64 = LISTS as u64;
/// The lower bits of a node's last word; above them is its origin.
pub const ORIGIN_SHIFT: u32 = 60;

/// What to walk. Addresses are of the process itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WalkRequest {
    /// [`WALK_MAGIC`].
    pub magic: u64,
    /// Returned in the answer, so that an old one is not taken for it.
    pub nonce: u64,
    /// The heads of the collector's lists.
    pub lists: [u64; LISTS],
    /// The `int` that says whether the collector runs.
    pub collecting: u64,
    /// The types `dict`, `tuple` and `int`.
    pub dict: u64,
    /// See `dict`.
    pub tuple: u64,
    /// See `dict`.
    pub long: u64,
    /// The word at +16 of a positive integer object of one digit.
    pub one_digit: u64,
    /// The highest number that may be a descriptor.
    pub most: u64,
    /// The most bytes that the walk may take.
    pub bytes: u64,
    /// Types of leaves.
    pub skipped: [u64; SKIPPED],
    /// Milliseconds that the copy waits to be read, when it is done.
    pub patience: u64,
    /// Milliseconds after which the kernel ends the copy, whatever it does.
    pub life: u64,
    /// For tests: a number of objects after which the walker faults; 0 for never.
    pub fault: u64,
    /// For tests: a number of objects after which the walker hangs; 0 for never.
    pub hang: u64,
}

/// How many words a request has.
const WORDS: usize = size_of::<WalkRequest>() / 8;

impl WalkRequest {
    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [[u8; 8]; WORDS] {
        let head = [self.magic, self.nonce].into_iter();
        let tail = [
            self.collecting,
            self.dict,
            self.tuple,
            self.long,
            self.one_digit,
            self.most,
            self.bytes,
        ];
        let words = head.chain(self.lists).chain(tail).chain(self.skipped);
        let words = words.chain([self.patience, self.life, self.fault, self.hang]);
        let mut bytes = [[0; 8]; WORDS];
        for (place, word) in bytes.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Reads one. `None` if it is something else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.len() == size_of::<Self>();
        let mut words = Words::<8>::of(bytes);
        let mut next = || words.read();
        let request = Self {
            magic: next(),
            nonce: next(),
            lists: [next(), next(), next(), next()],
            collecting: next(),
            dict: next(),
            tuple: next(),
            long: next(),
            one_digit: next(),
            most: next(),
            bytes: next(),
            skipped: [next(), next(), next(), next(), next(), next()],
            patience: next(),
            life: next(),
            fault: next(),
            hang: next(),
        };
        (is_whole && request.magic == WALK_MAGIC).then_some(request)
    }
}

numbered! {
    /// How far a walk is.
    pub enum WalkState: u64 {
        /// It runs.
        Walking = 1,
        /// It is whole.
        Done = 2,
        /// The collector was running: its lists are not whole.
        Collecting = 3,
        /// The kernel refuses memory.
        NoMemory = 4,
        /// A list does not end.
        Endless = 5,
        /// There are more edges than there is room for.
        NoRoom = 6,
    }
}

/// What the walker leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WalkHead {
    /// [`WALK_MAGIC`], written when the rest is.
    pub magic: u64,
    /// The request's.
    pub nonce: u64,
    /// A [`WalkState`].
    pub state: u64,
    /// The address of the [`WalkNode`]s.
    pub nodes: u64,
    /// How many there are.
    pub node_count: u64,
    /// The address of the edges.
    pub edges: u64,
    /// How many there are.
    pub edge_count: u64,
}

impl WalkHead {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<8>::of(bytes);
        let mut next = || words.read();
        Self {
            magic: next(),
            nonce: next(),
            state: next(),
            nodes: next(),
            node_count: next(),
            edges: next(),
            edge_count: next(),
        }
    }
}

/// An object, with the edges up to `end` that no earlier one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WalkNode {
    /// Its address.
    pub address: u64,
    /// The address of its type.
    pub kind: u64,
    /// Its count of references, as it is in memory.
    pub count: u64,
    /// One past its last edge; the origin is above [`ORIGIN_SHIFT`].
    pub end: u64,
}

impl WalkNode {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<8>::of(bytes);
        let mut next = || words.read();
        Self {
            address: next(),
            kind: next(),
            count: next(),
            end: next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WALK_MAGIC, WalkRequest, WalkState};

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = WalkRequest {
            magic: WALK_MAGIC,
            nonce: 7,
            lists: [1, 2, 3, 4],
            most: 99,
            skipped: [5, 6, 7, 8, 9, 10],
            life: 11,
            fault: 12,
            hang: 13,
            ..WalkRequest::default()
        };
        let bytes = request.bytes();
        assert_eq!(WalkRequest::read(bytes.as_flattened()), Some(request));
        assert_eq!(WalkRequest::read(&bytes.as_flattened()[1..]), None);
        let other = WalkRequest {
            magic: 0,
            ..request
        };
        assert_eq!(WalkRequest::read(other.bytes().as_flattened()), None);
    }

    #[test]
    fn states_have_their_numbers() {
        assert_eq!(WalkState::of(2), Some(WalkState::Done));
        assert_eq!(WalkState::of(0), None);
        assert_eq!(WalkState::of(99), None);
    }
}
