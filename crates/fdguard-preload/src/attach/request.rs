//! What the tracer asked for at the attach. It takes the place of the environment that a launched
//! program has: variables of an older launch in the program's own environment do not count.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use fdguard_wire::AttachRequest;

/// The most bytes of a request.
const ROOM: usize = 12 * 1024;

/// The request, kept because a forked child needs it, too. Atomics, because a thread that was
/// inside a hook during the last detach may still read.
static BYTES: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Keeps the request; `None` if it cannot be read or is too long.
pub(super) fn keep(bytes: &[u8]) -> Option<()> {
    let request = AttachRequest::read(bytes).filter(|_| bytes.len() <= ROOM)?;
    if !request.dir().starts_with(b"/") {
        return None;
    }
    LENGTH.store(0, Ordering::Release);
    for (place, byte) in BYTES.iter().zip(bytes) {
        place.store(*byte, Ordering::Relaxed);
    }
    LENGTH.store(bytes.len(), Ordering::Release);
    Some(())
}

/// Copies the directory; returns the part of the buffer that was filled.
pub(crate) fn dir(into: &mut [u8]) -> Option<&[u8]> {
    copy(0, into)
}

/// Copies the value of a variable.
pub(crate) fn variable<'b>(name: &CStr, into: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut at = 0;
    while let Some(length) = length_from(at) {
        at += length + 1;
        if let Some(value) = value_at(at, name.to_bytes()) {
            return copy(value, into);
        }
    }
    None
}

/// Where the value of the variable begins, if the word at `at` has this name.
fn value_at(at: usize, name: &[u8]) -> Option<usize> {
    let mut letters = name.iter().chain(b"=").zip(at..);
    let is_it = letters.all(|(letter, place)| byte(place) == Some(*letter));
    is_it.then_some(at + name.len() + 1)
}

fn byte(at: usize) -> Option<u8> {
    let byte = BYTES
        .get(at)
        .filter(|_| at < LENGTH.load(Ordering::Acquire));
    byte.map(|byte| byte.load(Ordering::Relaxed))
}

/// The length of the word that begins here; `None` behind the last one.
fn length_from(at: usize) -> Option<usize> {
    byte(at)?;
    (at..)
        .take(ROOM)
        .position(|place| matches!(byte(place), Some(0) | None))
}

fn copy(from: usize, into: &mut [u8]) -> Option<&[u8]> {
    let length = length_from(from)?;
    for (place, at) in into.get_mut(..length)?.iter_mut().zip(from..) {
        *place = byte(at)?;
    }
    into.get(..length)
}

#[cfg(test)]
mod tests {
    use super::{dir, keep, variable};

    /// One test, because there is one request in a process.
    #[test]
    fn a_request_is_kept_until_the_next() {
        let mut room = [0; 64];
        assert_eq!(dir(&mut room), None);
        keep(b"/a\0FDGUARD_PROTECT=warn-once\0EMPTY=\0FDGUARD=x\0").unwrap();
        assert_eq!(dir(&mut room), Some(&b"/a"[..]));
        assert_eq!(
            variable(c"FDGUARD_PROTECT", &mut room),
            Some(&b"warn-once"[..])
        );
        assert_eq!(variable(c"FDGUARD", &mut room), Some(&b"x"[..]));
        assert_eq!(variable(c"EMPTY", &mut room), Some(&b""[..]));
        assert_eq!(variable(c"FDGUARD_PROTECT", &mut [0; 4]), None, "no room");
        for bad in [&b""[..], b"\0", b"/a", b"relative\0"] {
            assert_eq!(keep(bad), None, "{bad:?}");
        }
        keep(b"/longer\0").unwrap();
        assert_eq!(variable(c"FDGUARD_PROTECT", &mut room), None);
        assert_eq!(dir(&mut room), Some(&b"/longer"[..]));
    }
}
