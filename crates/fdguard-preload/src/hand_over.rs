//! The environment passed to a new program: with the library, or without it if its loader cannot
//! load it.
//!
//! Everything is on the caller's stack, because the caller may be a `vfork` child in its parent's
//! memory.

#![expect(
    unsafe_code,
    reason = "reads the environment and the path of a program that is started"
)]

use core::ffi::{CStr, c_char, c_int};

use fdguard_wire::{Bytes, LoaderOutcome, Omission, accepts_any_order, interpreter, loading};

use crate::{start, sys};

/// The name of the library's file, and of the file that Node is made to load.
const LIBRARY: &[u8] = b"/libfdguard_preload.so";
const AGENT: &[u8] = b"/fdguard-node.cjs";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const NODE: &[u8] = b"NODE_OPTIONS=";
const ASAN: &[u8] = b"ASAN_OPTIONS=";
/// The most variables of an environment that is changed; a larger one is passed on unchanged.
const VARIABLES: usize = 1024;
/// The most bytes of a variable that is changed.
const VALUE: usize = 2048;
/// Bytes of a path.
const PATH: usize = 1024;
/// The most script interpreters that are themselves scripts.
const SCRIPTS: usize = 4;

/// A program that is about to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// By its path.
    At(*const c_char),
    /// By its name, searched for as a shell would.
    Named(*const c_char),
    /// By an open file.
    Open(c_int),
}

/// Starts a program with the given environment, or without the library. Space for a changed
/// environment is taken on the stack only if needed, because the caller's stack may be small.
///
/// # Safety
/// `environment` must be null or a list as `execve` takes it, and the program's path a C string.
pub(crate) unsafe fn hand_over(
    program: Program,
    environment: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    match unsafe { needs_change(program, environment) } {
        // SAFETY: guaranteed by the caller.
        Some(why) => unsafe { without_library(why, environment, start) },
        None => start(environment),
    }
}

/// Why the library must be removed; `None` if the environment can stay as it is.
///
/// # Safety
/// As for [`hand_over`].
#[inline(never)]
unsafe fn needs_change(program: Program, environment: *const *const c_char) -> Option<Omission> {
    // A system call that was not checked when the filter was installed may kill the program.
    if environment.is_null() || start::is_filtered() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let library = unsafe { value_of(environment, PRELOAD) }?;
    let library = parts(library, is_between).find(|part| part.ends_with(LIBRARY))?;
    // SAFETY: guaranteed by the caller.
    let options = unsafe { value_of(environment, ASAN) };
    // SAFETY: guaranteed by the caller.
    unsafe { omission(program, library, options.unwrap_or_default()) }
}

/// # Safety
/// As for [`hand_over`].
#[cold]
#[inline(never)]
unsafe fn without_library(
    why: Omission,
    environment: *const *const c_char,
    start: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let mut room = Room::new();
    // SAFETY: guaranteed by the caller.
    let changed = unsafe { room.without(environment) };
    if changed.is_some()
        && let Some(mapping) = start::current()
    {
        mapping.omitted(why);
    }
    start(changed.unwrap_or(environment))
}

/// Space for a changed environment.
struct Room {
    variables: [*const c_char; VARIABLES],
    preload: [u8; VALUE],
    node: [u8; VALUE],
}

impl Room {
    const fn new() -> Self {
        Self {
            variables: [core::ptr::null(); VARIABLES],
            preload: [0; VALUE],
            node: [0; VALUE],
        }
    }

    /// # Safety
    /// As for [`hand_over`].
    unsafe fn without(
        &mut self,
        environment: *const *const c_char,
    ) -> Option<*const *const c_char> {
        let mut used = 0;
        let mut index = 0;
        loop {
            // SAFETY: the list ends with a null, and nothing behind it is read.
            let entry = unsafe { environment.wrapping_add(index).read() };
            if entry.is_null() {
                break;
            }
            // SAFETY: the entries of an environment are C strings.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            let kept = if text.starts_with(PRELOAD) {
                let is_ours = |part: &[u8]| part.ends_with(LIBRARY);
                left(text, PRELOAD, (is_between, is_ours), &mut self.preload)
            } else if text.starts_with(NODE) {
                let is_ours = |part: &[u8]| part.ends_with(AGENT);
                left(text, NODE, (is_blank, is_ours), &mut self.node)
            } else {
                VariableRemainder::All
            };
            let kept = match kept {
                VariableRemainder::All => entry,
                VariableRemainder::Nothing => core::ptr::null(),
                VariableRemainder::Part => {
                    let room = if text.starts_with(NODE) {
                        &self.node
                    } else {
                        &self.preload
                    };
                    room.as_ptr().cast()
                }
                VariableRemainder::TooMuch => return None,
            };
            if !kept.is_null() {
                // The last slot stays null.
                let place = self
                    .variables
                    .get_mut(used)
                    .filter(|_| used + 1 < VARIABLES)?;
                *place = kept;
                used += 1;
            }
            index += 1;
        }
        *self.variables.get_mut(used)? = core::ptr::null();
        Some(self.variables.as_ptr())
    }
}

/// What remains of a variable.
enum VariableRemainder {
    All,
    /// The part that was written to the buffer.
    Part,
    Nothing,
    /// It does not fit.
    TooMuch,
}

/// Where the parts of a value end, and which of them are fdguard's.
type Parts = (fn(u8) -> bool, fn(&[u8]) -> bool);

fn is_between(byte: u8) -> bool {
    byte == b':' || byte == b' '
}

fn is_blank(byte: u8) -> bool {
    byte == b' '
}

fn parts(value: &[u8], is_end: fn(u8) -> bool) -> impl Iterator<Item = &[u8]> {
    let all = value.split(move |byte| is_end(*byte));
    all.filter(|part| !part.is_empty())
}

/// Writes a variable without those of its parts that are fdguard's.
fn left(
    text: &[u8],
    name: &[u8],
    (is_end, is_ours): Parts,
    room: &mut [u8; VALUE],
) -> VariableRemainder {
    let value = text.strip_prefix(name).unwrap_or_default();
    if !parts(value, is_end).any(is_ours) {
        return VariableRemainder::All;
    }
    let others = parts(value, is_end).filter(|part| !is_ours(part));
    let mut used = 0;
    let mut push = |bytes: &[u8]| {
        for byte in bytes {
            let Some(place) = room.get_mut(used) else {
                return false;
            };
            *place = *byte;
            used += 1;
        }
        true
    };
    if !push(name) {
        return VariableRemainder::TooMuch;
    }
    let mut is_first = true;
    for part in others {
        if !(is_first || push(b" ")) || !push(part) {
            return VariableRemainder::TooMuch;
        }
        is_first = false;
    }
    match (is_first, push(b"\0")) {
        (true, _) => VariableRemainder::Nothing,
        (false, true) => VariableRemainder::Part,
        (false, false) => VariableRemainder::TooMuch,
    }
}

/// The value of a variable.
///
/// # Safety
/// The environment must be a list as `execve` takes it.
unsafe fn value_of<'e>(environment: *const *const c_char, name: &[u8]) -> Option<&'e [u8]> {
    let mut index = 0;
    loop {
        // SAFETY: the list ends with a null, and nothing behind it is read.
        let entry = unsafe { environment.wrapping_add(index).read() };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the entries of an environment are C strings, which live as long as the caller's
        // call.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = text.strip_prefix(name) {
            return Some(value);
        }
        index += 1;
    }
}

/// Why the program must not be given the library; `None` if it may. `options` are those of
/// `AddressSanitizer`.
///
/// # Safety
/// The program's path must be a C string.
unsafe fn omission(program: Program, library: &[u8], options: &[u8]) -> Option<Omission> {
    let mut path = [0; PATH];
    let own = terminated(library, &mut path)?;
    match sys::open_to_read(own) {
        Ok(file) => {
            let is_readable = sys::is_owned(file);
            sys::close(file);
            if !is_readable {
                return Some(Omission::Unreachable);
            }
        }
        // A full descriptor table says nothing about the library.
        Err(error) if sys::is_full(error) => return None,
        Err(_) => return Some(Omission::Unreachable),
    }
    // SAFETY: guaranteed by the caller.
    let file = unsafe { open(program, &mut path) }?;
    let mut found = File::of(file, program);
    if found.is_privileged() {
        return Some(Omission::Privileged);
    }
    let mut line = [0; 256];
    for _ in 0..SCRIPTS {
        let length = match loading(&found, &mut line) {
            LoaderOutcome::Harmless => return None,
            LoaderOutcome::OtherLoader => return Some(Omission::OtherLoader),
            LoaderOutcome::OtherMachine => return Some(Omission::OtherMachine),
            LoaderOutcome::AddressSanitizer if accepts_any_order(options) => return None,
            LoaderOutcome::AddressSanitizer | LoaderOutcome::Sanitizer => {
                return Some(Omission::Sanitizer);
            }
            LoaderOutcome::Script(length) => length,
        };
        let name = interpreter(line.get(..length).unwrap_or_default());
        let name = terminated(name, &mut path)?;
        found = File {
            fd: sys::open_to_read(name).ok()?,
            is_ours: true,
        };
    }
    None
}

/// A program's file while it is examined.
struct File {
    fd: usize,
    is_ours: bool,
}

impl File {
    fn of(fd: usize, program: Program) -> Self {
        let is_ours = !matches!(program, Program::Open(_));
        Self { fd, is_ours }
    }

    fn is_privileged(&self) -> bool {
        sys::is_privileged(self.fd)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_ours {
            sys::close(self.fd);
        }
    }
}

impl Bytes for File {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        sys::read_at(self.fd, at, into)
    }
}

/// # Safety
/// The program's path must be a C string.
unsafe fn open(program: Program, path: &mut [u8; PATH]) -> Option<usize> {
    let name = match program {
        Program::Open(fd) => return usize::try_from(fd).ok(),
        Program::At(name) | Program::Named(name) => name,
    };
    if name.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    let is_searched = matches!(program, Program::Named(_)) && !name.to_bytes().contains(&b'/');
    if !is_searched {
        return sys::open_to_read(name).ok();
    }
    let dirs = start::variable(c"PATH").unwrap_or(b"/bin:/usr/bin");
    for dir in dirs.split(|byte| *byte == b':') {
        let dir = if dir.is_empty() { b"." } else { dir };
        let all = [dir, b"/", name.to_bytes()];
        if let Some(candidate) = joined(&all, path)
            && let Ok(file) = sys::open_to_read(candidate)
        {
            return Some(file);
        }
    }
    None
}

fn terminated<'p>(name: &[u8], room: &'p mut [u8; PATH]) -> Option<&'p CStr> {
    joined(&[name], room)
}

fn joined<'p>(all: &[&[u8]], room: &'p mut [u8; PATH]) -> Option<&'p CStr> {
    let mut used = 0;
    for byte in all.iter().flat_map(|part| part.iter()).chain(b"\0") {
        *room.get_mut(used)? = *byte;
        used += 1;
    }
    CStr::from_bytes_with_nul(room.get(..used)?).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString, c_char};
    use std::vec::Vec;

    use super::{LIBRARY, PRELOAD, Room, VARIABLES, parts};

    fn changed(variables: &[&str]) -> Option<Vec<String>> {
        let texts = variables.iter().map(|text| CString::new(*text).unwrap());
        let texts: Vec<CString> = texts.collect();
        let mut list: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(std::ptr::null());
        let mut room = Room::new();
        // SAFETY: a list of C strings that ends with a null.
        let mut next = unsafe { room.without(list.as_ptr()) }?;
        let mut all = Vec::new();
        loop {
            // SAFETY: it ends with a null as well.
            let entry = unsafe { next.read() };
            if entry.is_null() {
                return Some(all);
            }
            // SAFETY: its entries are C strings.
            all.push(
                unsafe { CStr::from_ptr(entry) }
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            next = next.wrapping_add(1);
        }
    }

    #[test]
    fn only_what_is_ours_goes() {
        let own = "LD_PRELOAD=/dev/shm/fdguard-1/libfdguard_preload.so";
        assert_eq!(changed(&["A=1", own, "B=2"]).unwrap(), ["A=1", "B=2"]);
        let both = format!("{own}:/usr/lib/libjemalloc.so.2 libmine.so");
        let left = "LD_PRELOAD=/usr/lib/libjemalloc.so.2 libmine.so";
        assert_eq!(changed(&[&both]).unwrap(), [left]);
        let node = "NODE_OPTIONS=--inspect --require=/dev/shm/fdguard-1/fdguard-node.cjs";
        assert_eq!(changed(&[own, node]).unwrap(), ["NODE_OPTIONS=--inspect"]);
        assert_eq!(
            changed(&["NODE_OPTIONS=--x", "LD_PRELOAD=a"])
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn what_does_not_fit_is_handed_on_as_it_is() {
        let many = vec!["A=1"; VARIABLES];
        assert_eq!(changed(&many), None);
        assert_eq!(
            changed(&many[..VARIABLES - 1]).unwrap().len(),
            VARIABLES - 1
        );
        let long = format!("LD_PRELOAD=/x/libfdguard_preload.so:{}", "a".repeat(4096));
        assert_eq!(changed(&[&long]), None);
    }

    #[test]
    fn the_library_is_found_among_others() {
        let value = b"/lib/a.so:/dev/shm/x/libfdguard_preload.so";
        let found = parts(value, super::is_between).find(|part| part.ends_with(LIBRARY));
        assert_eq!(found, Some(b"/dev/shm/x/libfdguard_preload.so".as_slice()));
        assert!(PRELOAD.ends_with(b"="));
    }
}
