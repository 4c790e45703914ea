//! The copy of a Node program. The program asks for it itself, in a text that its inspector
//! evaluates, and the text goes on in the copy: it finds what owns descriptors, and writes a heap
//! snapshot. See decision 195.
//!
//! Nothing that the copy does can reach the program or its peers: every descriptor is replaced by
//! the null device, the first two by a pipe. Condition variables would wait for threads that only
//! the program has, so the copy's own code of two functions is replaced, too.

#![expect(unsafe_code, reason = "system calls, and the copy's own code")]

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::copy::{become_harmless, end_after, is_orphan, reap_last, remember};
use crate::real::Real;
use crate::{owner, sys};

/// Asks for a copy.
const COPY: &[u8] = b"copy";
/// Asks for a bit of the copy's pid.
const COPIED: &[u8] = b"copied ";
const READ: usize = 0;
const OPEN: usize = 2;
const MPROTECT: usize = 10;
const MADVISE: usize = 28;
const DUP2: usize = 33;
const CLONE: usize = 56;
const PIPE2: usize = 293;
const SETPRIORITY: usize = 141;
const RT_SIGPROCMASK: usize = 14;
const O_RDWR_CLOEXEC: usize = 0o2_000_002;
const DO_FORK: usize = 11;
const DONT_FORK: usize = 10;
const EVERYTHING: usize = 7;
const SET: usize = 2;
const PAGE: usize = 4096;
/// Milliseconds after which the copy ends, whatever happens.
const PATIENCE: u64 = 120_000;
/// A copy takes what is left of the processor.
const NICE: usize = 5;
/// `xor eax, eax; ret`
const RETURN_0: [u8; 3] = [0x31, 0xc0, 0xc3];

type OnCondition = unsafe extern "C" fn(*mut u8) -> c_int;
// SAFETY: the type matches the manual page.
static SIGNAL: Real<OnCondition> = unsafe { Real::new(c"pthread_cond_signal") };
// SAFETY: the type matches the manual page.
static BROADCAST: Real<OnCondition> = unsafe { Real::new(c"pthread_cond_broadcast") };

/// The pid of the last copy; 0 if there is none.
static LAST: AtomicU32 = AtomicU32::new(0);

/// What the answer to a message is: whether a file exists. `None` if it is not for this module.
pub(crate) fn answer(message: &[u8]) -> Option<bool> {
    if message == COPY {
        return Some(owner::is_here() && copy());
    }
    let bit = message.strip_prefix(COPIED)?;
    let mut number = 0_u32;
    for digit in bit {
        number = (number * 10 + u32::from(digit.wrapping_sub(b'0'))) & 31;
    }
    Some(LAST.load(Ordering::Relaxed) >> number & 1 == 1)
}

/// Copies the process. Returns whether this is the copy.
fn copy() -> bool {
    LAST.store(0, Ordering::Relaxed);
    let (Some(signal), Some(broadcast)) = (SIGNAL.get(), BROADCAST.get()) else {
        return false;
    };
    let parent = sys::process();
    reap_last();
    allow_copies();
    let mut before = 0_u64;
    let all = u64::MAX;
    let (new, old) = (&raw const all as usize, &raw mut before as usize);
    // A handler of the program must not run in the copy.
    // SAFETY: the kernel reads one set and writes one.
    let _ = unsafe { sys::call(RT_SIGPROCMASK, [SET, new, old, 8, 0, 0]) };
    // SAFETY: a new process with a copy of this memory and of this stack; both go on from here. It
    // sends no signal at its end, and has its own table of descriptors.
    let pid = unsafe { sys::call(CLONE, [0; 6]) };
    if pid == 0 {
        live(parent, signal as usize, broadcast as usize);
        return true;
    }
    // SAFETY: restores the thread's own set.
    let _ = unsafe { sys::call(RT_SIGPROCMASK, [SET, old, 0, 8, 0, 0]) };
    LAST.store(u32::try_from(pid).unwrap_or(0), Ordering::Relaxed);
    remember(pid);
    false
}

/// What the copy does before it goes on.
fn live(parent: u32, signal: usize, broadcast: usize) {
    become_harmless();
    if is_orphan(parent) {
        sys::exit(0);
    }
    end_after(PATIENCE);
    // SAFETY: takes no memory.
    let _ = unsafe { sys::call(SETPRIORITY, [0, 0, NICE, 0, 0, 0]) };
    if !replace_descriptors() || !replace_code(signal) || !replace_code(broadcast) {
        sys::exit(0);
    }
}

/// Keeps ranges out of copies again, as V8 had asked.
pub(super) fn forbid_copies(ranges: &[u8]) {
    let (ranges, _) = ranges.as_chunks::<16>();
    for range in ranges {
        let (start, bytes) = range.split_at(8);
        let word = |of: &[u8]| of.try_into().map_or(0, usize::from_le_bytes);
        // SAFETY: changes what children get, nothing in this process.
        let _ = unsafe { sys::call(MADVISE, [word(start), word(bytes), DONT_FORK, 0, 0, 0]) };
    }
}

/// V8 keeps its heap out of copies, so that children start quickly. Until [`forbid_copies`] it may
/// be copied.
fn allow_copies() {
    let Ok(file) = sys::open_to_read(c"/proc/self/maps") else {
        return;
    };
    let mut buffer = [0_u8; 2048];
    let mut filled = 0;
    loop {
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let (place, length) = (room.as_mut_ptr() as usize, room.len());
        // SAFETY: the kernel writes at most as many bytes as there is room.
        let read = unsafe { sys::call(READ, [file, place, length, 0, 0, 0]) };
        let Some(read) = usize::try_from(read).ok().filter(|read| *read > 0) else {
            break;
        };
        filled += read;
        let mut start = 0;
        while let Some(rest) = buffer.get(start..filled)
            && let Some(length) = rest.iter().position(|byte| *byte == b'\n')
        {
            if let Some((from, to)) = rest.get(..length).and_then(private_memory) {
                let bytes = to.saturating_sub(from);
                // SAFETY: changes what children get, nothing in this process.
                let _ = unsafe { sys::call(MADVISE, [from, bytes, DO_FORK, 0, 0, 0]) };
            }
            start += length + 1;
        }
        // A line that is longer than the room has a long path: it is no private memory.
        let rest = if start == 0 && filled == buffer.len() {
            filled
        } else {
            start
        };
        filled = move_to_front(&mut buffer, rest, filled);
    }
    sys::close(file);
}

/// Moves a part of a buffer to its beginning and returns its length. `copy_within` could panic.
fn move_to_front(buffer: &mut [u8], from: usize, to: usize) -> usize {
    for at in from..to {
        if let Some(byte) = buffer.get(at).copied()
            && let Some(place) = buffer.get_mut(at - from)
        {
            *place = byte;
        }
    }
    to.saturating_sub(from)
}

/// The range of a line of `maps`, if it is private memory without a file.
fn private_memory(line: &[u8]) -> Option<(usize, usize)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut ends = fields.next()?.split(|byte| *byte == b'-');
    let (from, to) = (hexadecimal(ends.next()?)?, hexadecimal(ends.next()?)?);
    let is_private = fields.next()?.get(3) == Some(&b'p');
    let has_no_file = fields.nth(2)? == b"0";
    (is_private && has_no_file).then_some((from, to))
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    let mut number = 0_usize;
    for digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        number = number.checked_mul(16)?.checked_add(usize::from(value))?;
    }
    (!digits.is_empty()).then_some(number)
}

/// Nothing that the program has open is open in the copy: peers would wait for the copy's end, and
/// a collected object would close what is the program's.
fn replace_descriptors() -> bool {
    let path = c"/dev/null".as_ptr() as usize;
    // SAFETY: the path is a C string.
    let null = unsafe { sys::call(OPEN, [path, O_RDWR_CLOEXEC, 0, 0, 0, 0]) };
    let Ok(null) = usize::try_from(null) else {
        return false;
    };
    sys::each_open(|first, bits| {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let fd = (first + bit) as usize;
            if fd != null {
                // SAFETY: the copy's own table.
                let _ = unsafe { sys::call(DUP2, [null, fd, 0, 0, 0, 0]) };
            }
        }
    });
    let mut ends = [0_u32; 2];
    let place = ends.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two numbers.
    if unsafe { sys::call(PIPE2, [place, 0, 0, 0, 0, 0]) } != 0 {
        return false;
    }
    for (at, end) in ends.iter().enumerate() {
        // SAFETY: the copy's own table.
        let _ = unsafe { sys::call(DUP2, [*end as usize, at, 0, 0, 0, 0]) };
        if *end > 2 {
            sys::close(*end as usize);
        }
    }
    true
}

/// Makes a function of the copy return 0 at once.
fn replace_code(function: usize) -> bool {
    let page = function & !(PAGE - 1);
    // SAFETY: the copy's own memory, of which nothing else runs.
    if unsafe { sys::call(MPROTECT, [page, 2 * PAGE, EVERYTHING, 0, 0, 0]) } != 0 {
        return false;
    }
    for (at, byte) in RETURN_0.iter().enumerate() {
        let place = (function + at) as *mut u8;
        // SAFETY: the function's own first bytes, which were made writable above.
        unsafe { place.write_volatile(*byte) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{move_to_front, private_memory};

    #[test]
    fn the_rest_of_a_buffer_is_kept() {
        let mut buffer = *b"a line\nhalf";
        let filled = buffer.len();
        assert_eq!(move_to_front(&mut buffer, 7, filled), 4);
        assert_eq!(buffer.get(..4), Some(&b"half"[..]));
        assert_eq!(move_to_front(&mut buffer, filled, filled), 0);
    }

    #[test]
    fn private_memory_has_no_file() {
        let range = |line: &str| private_memory(line.as_bytes());
        assert_eq!(
            range("18ed01c0000-18ed0202000 rw-p 00000000 00:00 0 "),
            Some((0x18e_d01c_0000, 0x18e_d020_2000))
        );
        let heap = "01a2f000-01b00000 rw-p 00000000 00:00 0                    [heap]";
        assert_eq!(range(heap), Some((0x1a2_f000, 0x1b0_0000)));
        for other in [
            "00400000-00500000 r--p 00000000 08:01 7 /usr/bin/node",
            "7f00-7f10 rw-s 00000000 00:01 0 ",
            "x-y rw-p 0 00:00 0",
            "",
        ] {
            assert_eq!(range(other), None, "{other}");
        }
    }
}
