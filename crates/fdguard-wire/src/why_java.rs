//! What the tracer asks of the walker of a Java heap, and what the walker leaves in the memory of
//! the program until it was read.

use core::ffi::CStr;

use crate::numbered::numbered;
use crate::words::Words;

/// The library's function that starts a walk over the heap of the JVM: `int (const void *request,
/// size_t size)`, where the request is a [`JavaWalkRequest`]. It returns the place of the
/// [`JavaWalkHead`] in [`crate::WALK_PLACES`], or a negative `errno`.
pub const JAVA_WALK: &CStr = c"fdguard_walk_java";
/// The first word of a request and of a head: `fdgjava1`.
pub const JAVA_WALK_MAGIC: u64 = u64::from_ne_bytes(*b"fdgjava1");
/// The offset of [`JavaWalkHead::taken`] in the head.
pub const JAVA_TAKEN: u64 = 24;

/// What to walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaWalkRequest {
    /// [`JAVA_WALK_MAGIC`].
    pub magic: u64,
    /// Returned in the head, so that an old one is not taken for it.
    pub nonce: u64,
    /// Bytes of heap in use above which nothing is walked.
    pub most_heap: u64,
    /// The most bytes that the records may take.
    pub bytes: u64,
    /// Milliseconds that the records wait to be read.
    pub patience: u64,
    /// Nanoseconds for each KiB of heap in use after which the program goes on, whatever was
    /// recorded until then.
    pub stop_per_kib: u64,
    /// The same for a small heap.
    pub least_stop: u64,
}

const REQUEST_WORDS: usize = size_of::<JavaWalkRequest>() / 8;

impl JavaWalkRequest {
    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [[u8; 8]; REQUEST_WORDS] {
        let words = [
            self.magic,
            self.nonce,
            self.most_heap,
            self.bytes,
            self.patience,
            self.stop_per_kib,
            self.least_stop,
        ];
        words.map(u64::to_le_bytes)
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
            most_heap: next(),
            bytes: next(),
            patience: next(),
            stop_per_kib: next(),
            least_stop: next(),
        };
        (is_whole && request.magic == JAVA_WALK_MAGIC).then_some(request)
    }
}

numbered! {
    /// How far a walk of a Java heap is.
    pub enum JavaWalkState: u64 {
        /// It runs.
        Walking = 1,
        /// It has ended; the records can be read.
        Done = 2,
        /// The process has no JVM that can be asked.
        NoMachine = 3,
        /// More of the heap is in use than the request allows.
        TooLarge = 4,
        /// The kernel refuses memory.
        NoMemory = 5,
        /// The JVM refused; its error is in the head.
        Refused = 6,
    }
}

/// A list in the memory of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaList {
    /// Where it begins.
    pub start: u64,
    /// How many records it has.
    pub count: u64,
}

impl JavaList {
    fn next(words: &mut Words<'_, 8>) -> Self {
        Self {
            start: words.read(),
            count: words.read(),
        }
    }
}

/// What the walker leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaWalkHead {
    /// [`JAVA_WALK_MAGIC`].
    pub magic: u64,
    /// The request's.
    pub nonce: u64,
    /// A [`JavaWalkState`].
    pub state: u64,
    /// Not 0 when the records were read: the tracer writes it, and the walker ends.
    pub taken: u64,
    /// Bytes of heap in use.
    pub heap: u64,
    /// Nanoseconds that the program was stopped.
    pub stop: u64,
    /// The JVM's error.
    pub error: u64,
    /// Not 0 if there was no room for everything.
    pub is_partial: u64,
    /// Tags up to this one are classes.
    pub classes: u64,
    /// The class of each object by its tag, 0 if the object was not reached: `u32`.
    pub nodes: JavaList,
    /// References: [`JavaEdge`].
    pub edges: JavaList,
    /// What lives by itself: [`JavaRoot`].
    pub roots: JavaList,
    /// Numbers in objects that own descriptors: [`JavaNumber`].
    pub numbers: JavaList,
    /// Names, in bytes; see `fdguard-why`.
    pub text: JavaList,
}

impl JavaWalkHead {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<8>::of(bytes);
        Self {
            magic: words.read(),
            nonce: words.read(),
            state: words.read(),
            taken: words.read(),
            heap: words.read(),
            stop: words.read(),
            error: words.read(),
            is_partial: words.read(),
            classes: words.read(),
            nodes: JavaList::next(&mut words),
            edges: JavaList::next(&mut words),
            roots: JavaList::next(&mut words),
            numbers: JavaList::next(&mut words),
            text: JavaList::next(&mut words),
        }
    }
}

/// A reference from one object to another, by their tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaEdge {
    /// The holder.
    pub from: u32,
    /// What it holds.
    pub to: u32,
    /// The kind in the upper five bits, the index of the field or element below.
    pub how: u32,
}

impl JavaEdge {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();
    /// The bits of the index.
    pub const INDEX_BITS: u32 = 27;

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<4>::of(bytes);
        let mut next = || words.read();
        Self {
            from: next(),
            to: next(),
            how: next(),
        }
    }

    /// JVMTI's kind of the reference.
    #[must_use]
    pub const fn kind(self) -> u32 {
        self.how >> Self::INDEX_BITS
    }

    /// The index of the field or element.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.how & ((1 << Self::INDEX_BITS) - 1)
    }
}

/// An object that lives by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaRoot {
    /// The object's tag.
    pub to: u64,
    /// JVMTI's kind of the reference.
    pub kind: u64,
    /// The thread's tag; 0 if there is none.
    pub thread: u64,
    /// The method; 0 if there is none.
    pub method: u64,
    /// The place in the method.
    pub location: u64,
    /// The slot of the local variable.
    pub slot: u64,
}

impl JavaRoot {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<8>::of(bytes);
        let mut next = || words.read();
        Self {
            to: next(),
            kind: next(),
            thread: next(),
            method: next(),
            location: next(),
            slot: next(),
        }
    }
}

/// A number in an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JavaNumber {
    /// The object's tag.
    pub object: u32,
    /// The tag of its class.
    pub class: u32,
    /// The index of the field.
    pub index: u64,
    /// The value.
    pub value: u64,
}

impl JavaNumber {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Self>();

    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = Words::<4>::of(bytes);
        let mut next = || words.read();
        let (object, class) = (next(), next());
        let mut long = || u64::from(next()) | (u64::from(next()) << 32);
        Self {
            object,
            class,
            index: long(),
            value: long(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JAVA_WALK_MAGIC, JavaEdge, JavaNumber, JavaWalkRequest, JavaWalkState};

    #[test]
    fn a_java_request_is_read_as_it_was_written() {
        let request = JavaWalkRequest {
            magic: JAVA_WALK_MAGIC,
            nonce: 3,
            most_heap: 4,
            bytes: 5,
            patience: 6,
            stop_per_kib: 6,
            least_stop: 7,
        };
        let bytes = request.bytes();
        assert_eq!(JavaWalkRequest::read(bytes.as_flattened()), Some(request));
        assert_eq!(JavaWalkRequest::read(&bytes.as_flattened()[1..]), None);
    }

    #[test]
    fn records_have_their_layout() {
        assert_eq!(std::mem::offset_of!(super::JavaWalkHead, taken), 24);
        let edge = JavaEdge {
            how: (8 << 27) | 5,
            ..JavaEdge::default()
        };
        assert_eq!((edge.kind(), edge.index()), (8, 5));
        let mut bytes = [0; JavaNumber::SIZE];
        bytes[16] = 9;
        assert_eq!(JavaNumber::read(&bytes).value, 9);
        assert_eq!(JavaWalkState::of(2), Some(JavaWalkState::Done));
        assert_eq!(JavaWalkState::of(7), None);
    }
}
