//! What the tracer asks of a library that it puts into a running process.

use core::ffi::CStr;

use crate::numbered::numbered;

/// The library's function that begins to record: `int (const void *request, size_t size)`, where
/// the request is an [`AttachRequest`]. It returns an [`AttachAnswer`].
pub const ATTACH: &CStr = c"fdguard_attach";
/// The library's function that ends the recording and restores what it changed, with the same
/// arguments, which it ignores.
pub const DETACH: &CStr = c"fdguard_detach";
/// The library's function that wakes Node's inspector, with the same arguments, where the request
/// is an [`InspectorRequest`]. It returns an [`InspectorAnswer`].
pub const WAKE_INSPECTOR: &CStr = c"fdguard_wake_inspector";

/// The request, as bytes: words that end with a null byte. The first is the directory for the
/// mappings as the target sees it; the others are `NAME=VALUE` and stand for the variables that a
/// launched program has in its environment (`FDGUARD_PROTECT` and the like).
#[derive(Clone, Copy, Debug)]
pub struct AttachRequest<'a> {
    words: &'a [u8],
}

impl<'a> AttachRequest<'a> {
    /// Reads a request. `None` if its last word does not end or there is no directory.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let is_complete = bytes.last() == Some(&0) && bytes.first() != Some(&0);
        is_complete.then_some(Self { words: bytes })
    }

    /// The directory for the mappings.
    #[must_use]
    pub fn dir(&self) -> &'a [u8] {
        self.all().next().unwrap_or_default()
    }

    /// The value of a variable.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut rest = self.all().skip(1);
        rest.find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
    }

    fn all(&self) -> impl Iterator<Item = &'a [u8]> {
        self.words.split(|byte| *byte == 0)
    }
}

numbered! {
    /// What the library's functions return.
    pub enum AttachAnswer: i32 {
        /// It records, or has stopped recording.
        Done = 0,
        /// The request could not be read.
        BadRequest = 1,
        /// Another fdguard records already.
        Taken = 2,
        /// The file for the records could not be created in the directory.
        NoTable = 3,
        /// The hooks did not return what the real functions return; nothing was changed.
        Untrusted = 4,
    }
}

/// Where the code of Node is: only a signal handler in it may be Node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectorRequest {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

impl InspectorRequest {
    /// The request as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let both = (u128::from(self.end) << 64) | u128::from(self.start);
        both.to_le_bytes()
    }

    /// Reads a request.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (start, end) = bytes.split_at_checked(8)?;
        let start = u64::from_le_bytes(start.try_into().ok()?);
        let end = u64::from_le_bytes(end.try_into().ok()?);
        (start < end).then_some(Self { start, end })
    }
}

numbered! {
    /// Whether Node's inspector was woken.
    pub enum InspectorAnswer: i32 {
        /// Node starts its inspector.
        Woken = 0,
        /// The request could not be read.
        BadRequest = 1,
        /// SIGUSR1 has no handler: Node does not listen for it.
        Unhandled = 2,
        /// The program handles SIGUSR1 itself.
        Handled = 3,
    }
}

#[cfg(test)]
mod tests {
    use super::{AttachAnswer, AttachRequest, InspectorAnswer, InspectorRequest};

    #[test]
    fn the_place_of_node_is_read_back() {
        let request = InspectorRequest {
            start: 0x40_0000,
            end: u64::MAX,
        };
        assert_eq!(InspectorRequest::read(&request.to_bytes()), Some(request));
        for bad in [&[][..], &[1; 15], &[1; 16], &[1; 17]] {
            assert_eq!(InspectorRequest::read(bad), None, "{bad:?}");
        }
        assert_eq!(InspectorAnswer::of(3), Some(InspectorAnswer::Handled));
        assert_eq!(InspectorAnswer::of(4), None);
    }

    #[test]
    fn a_request_has_a_directory_and_variables() {
        let request = AttachRequest::read(b"/dev/shm/x\0FDGUARD_PROTECT=warn\0A=\0").unwrap();
        assert_eq!(request.dir(), b"/dev/shm/x");
        assert_eq!(request.variable(b"FDGUARD_PROTECT"), Some(&b"warn"[..]));
        assert_eq!(request.variable(b"A"), Some(&b""[..]));
        assert_eq!(request.variable(b"FDGUARD"), None);
        for bad in [&b""[..], b"\0", b"/dev/shm/x"] {
            assert!(AttachRequest::read(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn every_answer_is_found_by_its_number() {
        assert_eq!(AttachAnswer::of(3), Some(AttachAnswer::NoTable));
        assert_eq!(AttachAnswer::of(-1), None);
    }
}
