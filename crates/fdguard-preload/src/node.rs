//! Node under `--permission` would not start with the agent, because it may not read it. The
//! variable that names the agent is inherited, so the library removes it from a child's options
//! here, before the child's first instruction.

#![expect(unsafe_code, reason = "reads the arguments and changes a variable")]

use core::ffi::{CStr, c_char, c_int};

/// The prefix and the suffix of fdguard's word among Node's options.
const FIRST: &[u8] = b"--require=/";
const LAST: &[u8] = b"/fdguard-node.cjs";

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Removes the agent from the options if this program restricts what it may read.
///
/// # Safety
/// To be called by the loader, before the program's first instruction, with the program's
/// arguments.
pub(crate) unsafe fn leave_locked(count: c_int, arguments: *const *const c_char) {
    // SAFETY: a name that ends with a null; no other code runs yet.
    let options = unsafe { getenv(c"NODE_OPTIONS".as_ptr()) }.cast_mut();
    if options.is_null() {
        return;
    }
    // SAFETY: `getenv` returns a C string, and the process may change it.
    let length = unsafe { CStr::from_ptr(options) }.count_bytes();
    // SAFETY: as many bytes as were counted, which no other code accesses meanwhile.
    let options = unsafe { core::slice::from_raw_parts_mut(options.cast::<u8>(), length) };
    let mut is_locked = words(options).any(is_lock);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        let place = arguments.wrapping_add(index);
        // SAFETY: the loader passes as many arguments as `count` says.
        let argument = unsafe { place.read() };
        if argument.is_null() {
            break;
        }
        // SAFETY: each is a C string.
        is_locked |= is_lock(unsafe { CStr::from_ptr(argument) }.to_bytes());
    }
    if is_locked {
        blank(options);
    }
}

fn words(options: &[u8]) -> impl Iterator<Item = &[u8]> {
    options.split(|byte| *byte == b' ')
}

/// Under any name that the option has had.
fn is_lock(word: &[u8]) -> bool {
    word == b"--permission" || word == b"--experimental-permission"
}

/// Overwrites fdguard's word with spaces, which Node skips.
fn blank(options: &mut [u8]) {
    for word in options.split_mut(|byte| *byte == b' ') {
        if word.starts_with(FIRST) && word.ends_with(LAST) {
            word.fill(b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_word_is_taken_away() {
        let mut options = *b"--inspect --require=/a/fdguard-node.cjs --require=/b.cjs";
        blank(&mut options);
        let expected = *b"--inspect                               --require=/b.cjs";
        assert_eq!(options, expected);
    }

    #[test]
    fn a_lock_has_two_names() {
        let is_locked = |text: &[u8]| words(text).any(is_lock);
        assert!(is_locked(b"--inspect --permission"));
        assert!(is_locked(b"--experimental-permission --x"));
        assert!(!is_locked(b"--permissions --no-permission"));
    }
}
