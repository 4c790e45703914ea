//! How a program's loader would treat the library: checked before a program is started, because
//! some loaders crash with it and some runtimes refuse to start. Reads the ELF header as the kernel
//! does, allocates nothing.

/// A file that can be read.
pub trait Bytes {
    /// Reads from an offset; returns how many bytes were read.
    fn read(&self, at: u64, into: &mut [u8]) -> usize;
}

/// What would happen to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderOutcome {
    /// It is loaded or ignored, or the outcome is unknown.
    Harmless,
    /// A script: the line after `#!`, this many bytes of the given buffer.
    Script(usize),
    /// The program or its loader is for another machine.
    OtherMachine,
    /// Its loader is not glibc's.
    OtherLoader,
    /// It contains `AddressSanitizer`, which accepts a library before itself only if
    /// [`accepts_any_order`] its options.
    AddressSanitizer,
    /// It contains another sanitizer, which must be loaded first.
    Sanitizer,
}

/// Why the library was removed from the environment of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Omission {
    /// Its loader is not glibc's.
    OtherLoader = 0,
    /// It is built for another machine.
    OtherMachine,
    /// It contains a sanitizer that must be loaded first.
    Sanitizer,
    /// It cannot read the library: another user, root directory or mount namespace.
    Unreachable,
    /// It gains privileges, so its loader ignores the library; and programs that it starts may be
    /// unable to read it.
    Privileged,
}

impl Omission {
    /// How many kinds there are.
    pub const KINDS: usize = 5;
}

/// What `ASAN_OPTIONS` must contain so that a program starts with a library before its sanitizer.
pub const ANY_ORDER: &str = "verify_asan_link_order=0";

/// Whether a program with `AddressSanitizer` and these `ASAN_OPTIONS` starts with a library before
/// its sanitizer. Of several values the last counts.
#[must_use]
pub fn accepts_any_order(options: &[u8]) -> bool {
    let is_between = |byte: &u8| matches!(byte, b':' | b',' | b' ' | b'\t' | b'\n' | b'\r');
    let values = options.split(is_between);
    let mut values = values.filter_map(|one| one.strip_prefix(b"verify_asan_link_order="));
    matches!(values.next_back(), Some(b"0" | b"no" | b"false"))
}

const ADDRESS_SANITIZERS: &[&[u8]] = &[b"libasan.so", b"libclang_rt.asan"];
/// Other sanitizers that interpose the same functions.
const SANITIZERS: &[&[u8]] = &[
    b"libhwasan.so",
    b"libclang_rt.hwasan",
    b"libtsan.so",
    b"libclang_rt.tsan",
];

const HEAD: usize = 64;
const SEGMENT: usize = 56;
const MOST_SEGMENTS: u64 = 64;
const ENTRY: usize = 16;
const MOST_ENTRIES: u64 = 256;
const MOST_NEEDED: usize = 32;
const NAME: usize = 32;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const X86_64: u64 = 62;

/// How this program's loader would treat it. `script` is a buffer for the first line of a script.
pub fn loading(file: &impl Bytes, script: &mut [u8]) -> LoaderOutcome {
    let mut head = [0; HEAD];
    let read = file.read(0, &mut head);
    if head.starts_with(b"#!") {
        return LoaderOutcome::Script(file.read(2, script));
    }
    if read < HEAD || !head.starts_with(b"\x7fELF") {
        return LoaderOutcome::Harmless;
    }
    let is_64_bit = head.get(4..6) == Some(&[2, 1]);
    if !is_64_bit || number(&head, 18, 2) != X86_64 {
        return LoaderOutcome::OtherMachine;
    }
    let segments = Segments::of(file, &head);
    let Some(interpreter) = segments.first(PT_INTERP) else {
        return LoaderOutcome::Harmless;
    };
    if !is_glibc(file, &interpreter) {
        return LoaderOutcome::OtherLoader;
    }
    let dynamic = segments.first(PT_DYNAMIC);
    let sanitizer = dynamic.and_then(|dynamic| sanitizer(file, &segments, &dynamic));
    sanitizer.unwrap_or(LoaderOutcome::Harmless)
}

/// The interpreter named in the first line of a script.
#[must_use]
pub fn interpreter(line: &[u8]) -> &[u8] {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    words.next().unwrap_or_default()
}

/// Bytes of a little-endian number.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    let digits = field.iter().rev();
    digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[derive(Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
}

struct Segments<'f, F> {
    file: &'f F,
    at: u64,
    count: u64,
}

impl<'f, F: Bytes> Segments<'f, F> {
    fn of(file: &'f F, head: &[u8]) -> Self {
        let is_usual = number(head, 54, 2) == SEGMENT as u64;
        let count = number(head, 56, 2).min(MOST_SEGMENTS);
        Self {
            file,
            at: number(head, 32, 8),
            count: if is_usual { count } else { 0 },
        }
    }

    fn find(&self, kind: u64, is_it: impl Fn(&Segment) -> bool) -> Option<Segment> {
        for index in 0..self.count {
            let mut bytes = [0; SEGMENT];
            let at = self.at.wrapping_add(index * SEGMENT as u64);
            if self.file.read(at, &mut bytes) < SEGMENT {
                return None;
            }
            let segment = Segment {
                offset: number(&bytes, 8, 8),
                address: number(&bytes, 16, 8),
                size: number(&bytes, 32, 8),
            };
            if number(&bytes, 0, 4) == kind && is_it(&segment) {
                return Some(segment);
            }
        }
        None
    }

    fn first(&self, kind: u64) -> Option<Segment> {
        self.find(kind, |_| true)
    }

    /// The file offset of an address in the loaded program.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let distance = |segment: &Segment| address.wrapping_sub(segment.address);
        let segment = self.find(PT_LOAD, |segment| distance(segment) < segment.size)?;
        Some(segment.offset.wrapping_add(distance(&segment)))
    }
}

/// Whether the interpreter has the name of glibc's.
fn is_glibc(file: &impl Bytes, interpreter: &Segment) -> bool {
    let mut name = [0; 256];
    let length = usize::try_from(interpreter.size).unwrap_or(0);
    let room = length.min(name.len());
    let Some(name) = name.get_mut(..room) else {
        return true;
    };
    let read = file.read(interpreter.offset, name);
    let name = name.get(..read).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    last.starts_with(b"ld-linux")
}

fn sanitizer<F: Bytes>(
    file: &F,
    segments: &Segments<'_, F>,
    dynamic: &Segment,
) -> Option<LoaderOutcome> {
    let mut needed = [0_u64; MOST_NEEDED];
    let mut used = 0;
    let mut names = None;
    let entries = (dynamic.size / ENTRY as u64).min(MOST_ENTRIES);
    for index in 0..entries {
        let mut entry = [0; ENTRY];
        let at = dynamic.offset.wrapping_add(index * ENTRY as u64);
        if file.read(at, &mut entry) < ENTRY {
            break;
        }
        let value = number(&entry, 8, 8);
        match number(&entry, 0, 8) {
            0 => break,
            DT_NEEDED => {
                if let Some(place) = needed.get_mut(used) {
                    *place = value;
                    used += 1;
                }
            }
            DT_STRTAB => names = segments.offset_of(value),
            _ => {}
        }
    }
    let names = names?;
    needed.iter().take(used).find_map(|offset| {
        let mut name = [0; NAME];
        file.read(names.wrapping_add(*offset), &mut name);
        let is_one_of = |all: &[&[u8]]| all.iter().any(|one| name.starts_with(one));
        let is_address = is_one_of(ADDRESS_SANITIZERS);
        let is_other = is_one_of(SANITIZERS);
        (is_address.then_some(LoaderOutcome::AddressSanitizer))
            .or(is_other.then_some(LoaderOutcome::Sanitizer))
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{ANY_ORDER, Bytes, LoaderOutcome, accepts_any_order, interpreter, loading};

    impl Bytes for Vec<u8> {
        fn read(&self, at: u64, into: &mut [u8]) -> usize {
            let from = usize::try_from(at).unwrap_or(usize::MAX);
            let rest = self.get(from..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        if file.len() < at + bytes.len() {
            file.resize(at + bytes.len(), 0);
        }
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(file: &mut Vec<u8>, at: usize, number: u64) {
        put(file, at, &number.to_le_bytes());
    }

    /// A program with this loader that needs these libraries.
    fn program(loader: &str, needed: &[&str]) -> Vec<u8> {
        let mut file = Vec::new();
        put(&mut file, 0, b"\x7fELF\x02\x01");
        put(&mut file, 18, &[62, 0]);
        word(&mut file, 32, 64);
        put(&mut file, 54, &[56, 0, 3, 0]);
        // Loaded at 0x1000 from the beginning; the loader's name; the dynamic section.
        let size = (needed.len() as u64 + 2) * 16;
        let segments = [
            (1, 0, 0x1000, 0x2000),
            (3, 0x200, 0x1200, loader.len() as u64 + 1),
            (2, 0x400, 0x1400, size),
        ];
        for (index, (kind, offset, address, size)) in segments.into_iter().enumerate() {
            let at = 64 + index * 56;
            put(&mut file, at, &[kind]);
            word(&mut file, at + 8, offset);
            word(&mut file, at + 16, address);
            word(&mut file, at + 32, size);
        }
        put(&mut file, 0x200, loader.as_bytes());
        put(&mut file, 0x800, &[0; 64]);
        let mut name = 0x800;
        for (index, library) in needed.iter().enumerate() {
            word(&mut file, 0x400 + index * 16, 1);
            word(&mut file, 0x408 + index * 16, name as u64 - 0x800);
            put(&mut file, name, library.as_bytes());
            name += library.len() + 1;
        }
        word(&mut file, 0x400 + needed.len() * 16, 5);
        word(&mut file, 0x408 + needed.len() * 16, 0x1800);
        put(&mut file, name, &[0; 64]);
        file
    }

    fn of(file: &Vec<u8>) -> LoaderOutcome {
        loading(file, &mut [0; 256])
    }

    #[test]
    fn what_a_loader_makes_of_the_library() {
        const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
        assert_eq!(of(&program(GLIBC, &["libc.so.6"])), LoaderOutcome::Harmless);
        let musl = program("/lib/ld-musl-x86_64.so.1", &["libc.so"]);
        assert_eq!(of(&musl), LoaderOutcome::OtherLoader);
        for (sanitizer, outcome) in [
            ("libasan.so.8", LoaderOutcome::AddressSanitizer),
            (
                "libclang_rt.asan-x86_64.so",
                LoaderOutcome::AddressSanitizer,
            ),
            ("libhwasan.so.0", LoaderOutcome::Sanitizer),
            ("libtsan.so.2", LoaderOutcome::Sanitizer),
        ] {
            let file = program(GLIBC, &["libm.so.6", sanitizer, "libc.so.6"]);
            assert_eq!(of(&file), outcome, "{sanitizer}");
        }
        let mut other = program(GLIBC, &[]);
        other[18] = 183;
        assert_eq!(of(&other), LoaderOutcome::OtherMachine);
        let mut narrow = program(GLIBC, &[]);
        narrow[4] = 1;
        assert_eq!(of(&narrow), LoaderOutcome::OtherMachine);
    }

    #[test]
    fn a_script_says_what_runs_it() {
        let mut line = [0; 64];
        let file = b"#! /bin/sh -e\nexit\n".to_vec();
        let LoaderOutcome::Script(length) = loading(&file, &mut line) else {
            panic!("a script");
        };
        assert_eq!(interpreter(&line[..length]), b"/bin/sh");
    }

    #[test]
    fn the_last_of_several_options_counts() {
        for (options, accepts) in [
            ("", false),
            (ANY_ORDER, true),
            ("detect_leaks=0:verify_asan_link_order=0", true),
            ("verify_asan_link_order=0,verify_asan_link_order=1", false),
            (
                "verify_asan_link_order=1 verify_asan_link_order=false",
                true,
            ),
            ("xverify_asan_link_order=0", false),
        ] {
            assert_eq!(accepts_any_order(options.as_bytes()), accepts, "{options}");
        }
    }

    #[test]
    fn nonsense_is_left_alone() {
        for length in 0..900 {
            let mut file = program("/lib64/ld-linux-x86-64.so.2", &["libasan.so.8"]);
            file.truncate(length);
            let _ = of(&file);
            let broken: Vec<u8> = file.iter().map(|byte| byte.wrapping_mul(251)).collect();
            let _ = of(&broken);
        }
        assert_eq!(of(&Vec::new()), LoaderOutcome::Harmless);
    }
}
