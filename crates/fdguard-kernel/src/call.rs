//! The `bpf` system call, for the commands used here, and what attaches to a user's function.
#![expect(unsafe_code, reason = "no safe wrapper makes these system calls")]

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_RUN: libc::c_int = 10;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
/// How an iterator is attached.
pub const ITERATOR: u32 = 28;
const PERF_EVENT: u32 = 41;
const PERF_CLOEXEC: u64 = 8;
/// Some helpers require a GPL-compatible licence; this is one.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// What a program is for; the number is the id of its function or tracepoint in the kernel's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs for each element that a reader comes to.
    Iterator(u32),
    /// Runs at a tracepoint, with typed arguments.
    Tracepoint(u32),
    /// Runs when it is called by [`run_program`].
    Called,
    /// Runs at an instruction of a program in user space.
    Uprobe,
}

impl ProgramKind {
    /// The type of program, how it is attached, and to what.
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::Iterator(target) => (26, ITERATOR, target),
            Self::Tracepoint(target) => (26, 23, target),
            Self::Called => (17, 0, 0),
            Self::Uprobe => (2, 0, 0),
        }
    }
}

/// A program to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct NewProgram<'a> {
    /// The name that `bpftool` shows; the kernel keeps fifteen bytes.
    pub name: &'a str,
    /// What it is for.
    pub kind: ProgramKind,
    /// The instructions.
    pub code: &'a [u8],
    /// Its types, which programs with more than one function need.
    pub types: Option<BorrowedFd<'a>>,
    /// Pairs of words for each function: the first instruction and the type.
    pub functions: &'a [u8],
}

/// The head of `union bpf_attr` for loading a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach: u32,
    types: u32,
    func_info_size: u32,
    func_info: u64,
    func_infos: u32,
    line_info_size: u32,
    line_info: u64,
    line_infos: u32,
    target: u32,
    target_object: u32,
    /// The kernel could relocate, too. Without this field there would be a gap here.
    relocations: u32,
}

/// The same for a link.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    target: u32,
    attach: u32,
    flags: u32,
    info: u64,
    info_length: u32,
    zero: u32,
}

/// The same for a map.
#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// The same for an entry of a map.
#[repr(C)]
struct Entry {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// The kernel's number of its type.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries, or the bytes of a ring.
    pub entries: u32,
    /// The kernel's flags.
    pub flags: u32,
}

/// Loads a program.
pub fn load_program(program: &NewProgram<'_>) -> Result<OwnedFd, Errno> {
    load_with_log(program, &mut [])
}

/// Loads a program, and writes why it was refused to the log, as text that ends with a zero.
pub fn load_with_log(program: &NewProgram<'_>, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let (kind, attach, target) = program.kind.numbers();
    let mut attributes = Load {
        kind,
        instructions: length(program.code.len() / 8)?,
        code: program.code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        name: object_name(program.name),
        attach,
        target,
        ..Load::default()
    };
    if let Some(types) = program.types {
        attributes.types = number(types)?;
        attributes.func_info_size = 8;
        attributes.func_info = program.functions.as_ptr() as u64;
        attributes.func_infos = length(program.functions.len() / 8)?;
    }
    if !log.is_empty() {
        attributes.log_level = 1;
        attributes.log_size = length(log.len())?;
        attributes.log = log.as_mut_ptr() as u64;
    }
    create(PROG_LOAD, &attributes)
}

/// Loads the types of a program.
pub fn load_types(types: &[u8]) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Types {
        types: u64,
        log: u64,
        length: u32,
        log_size: u32,
        log_level: u32,
        zero: u32,
    }
    let attributes = Types {
        types: types.as_ptr() as u64,
        log: 0,
        length: length(types.len())?,
        log_size: 0,
        log_level: 0,
        zero: 0,
    };
    create(BTF_LOAD, &attributes)
}

/// Creates a map.
pub fn create_map(name: &str, shape: &MapShape) -> Result<OwnedFd, Errno> {
    let attributes = NewMap {
        kind: shape.kind,
        key_size: shape.key_size,
        value_size: shape.value_size,
        entries: shape.entries,
        flags: shape.flags,
        name: object_name(name),
        ..NewMap::default()
    };
    create(MAP_CREATE, &attributes)
}

/// Forbids to change a map from user space, so that the verifier knows its values.
pub fn freeze_map(map: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = number(map)?;
    command(MAP_FREEZE, &attributes).map(drop)
}

/// Sets an entry. The lengths must be those of the map, for a map per processor those of all.
pub fn update_entry(
    map: BorrowedFd<'_>,
    shape: &MapShape,
    key: &[u8],
    value: &[u8],
) -> Result<(), Errno> {
    check(key, shape.key_size)?;
    check(value, shape.value_size)?;
    let attributes = Entry {
        map: number(map)?,
        zero: 0,
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    command(MAP_UPDATE, &attributes).map(drop)
}

/// Removes an entry.
pub fn delete_entry(map: BorrowedFd<'_>, shape: &MapShape, key: &[u8]) -> Result<(), Errno> {
    check(key, shape.key_size)?;
    let attributes = Entry {
        map: number(map)?,
        zero: 0,
        key: key.as_ptr() as u64,
        value: 0,
        flags: 0,
    };
    command(MAP_DELETE, &attributes).map(drop)
}

/// Reads an entry of a map that has one value for all processors.
pub fn read_entry(map: BorrowedFd<'_>, shape: &MapShape, key: &[u8]) -> Result<Vec<u8>, Errno> {
    check(key, shape.key_size)?;
    let size = usize::try_from(shape.value_size).or(Err(Errno::INVAL))?;
    let mut value = vec![0; size.next_multiple_of(8)];
    let attributes = Entry {
        map: number(map)?,
        zero: 0,
        key: key.as_ptr() as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    command(MAP_LOOKUP, &attributes)?;
    value.truncate(size);
    Ok(value)
}

/// Attaches a program to its tracepoint; the program runs until the descriptor is closed.
pub fn attach_tracepoint(program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Tracepoint {
        name: u64,
        program: u32,
        zero: u32,
    }
    let attributes = Tracepoint {
        name: 0,
        program: number(program)?,
        zero: 0,
    };
    create(RAW_TRACEPOINT_OPEN, &attributes)
}

/// Runs a [`ProgramKind::Called`] once, as this thread.
pub fn run_program(program: BorrowedFd<'_>) -> Result<(), Errno> {
    #[repr(C)]
    #[derive(Default)]
    struct Run {
        program: u32,
        result: u32,
        sizes: [u32; 2],
        data: [u64; 2],
        repeat: u32,
        duration: u32,
        context_sizes: [u32; 2],
        contexts: [u64; 2],
        flags: u32,
        processor: u32,
        batch: u32,
        zero: u32,
    }
    let attributes = Run {
        program: number(program)?,
        ..Run::default()
    };
    command(PROG_RUN, &attributes).map(drop)
}

/// Attaches a program to what it is for, if that needs nothing more to be named.
pub fn create_link(program: BorrowedFd<'_>, attach: u32) -> Result<OwnedFd, Errno> {
    let attributes = Link {
        program: number(program)?,
        attach,
        ..Link::default()
    };
    create(LINK_CREATE, &attributes)
}

/// Starts one walk of an iterator: reading from it runs the program.
pub fn create_walk(link: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let attributes = [number(link)?, 0];
    create(ITER_CREATE, &attributes)
}

/// Attaches a program to an instruction of a file, for every process that runs it. The program runs
/// until both descriptors are closed.
pub fn attach_uprobe(
    program: BorrowedFd<'_>,
    file: &std::path::Path,
    offset: u64,
    cookie: u64,
) -> std::io::Result<[OwnedFd; 2]> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let kind: u64 = kind.trim().parse().map_err(std::io::Error::other)?;
    let path = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()))?;
    // struct perf_event_attr: type and size, then config1 and config2.
    let mut attributes = [0_u64; 16];
    attributes[0] = kind | 128 << 32;
    attributes[7] = path.as_ptr() as u64;
    attributes[8] = offset;
    // SAFETY: the kernel reads the array, which has the size that it states, and the path, which
    // ends with a zero; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            -1_i64,
            0_i64,
            -1_i64,
            PERF_CLOEXEC,
        )
    };
    let event = owned(result)?;
    let link = Link {
        program: number(program)?,
        target: number(std::os::fd::AsFd::as_fd(&event))?,
        attach: PERF_EVENT,
        // For this kind of link the same place has the cookie.
        info: cookie,
        ..Link::default()
    };
    let link = create(LINK_CREATE, &link)?;
    Ok([link, event])
}

/// The kernel's information about a map or a program: the first bytes of its structure.
pub fn object_info(object: BorrowedFd<'_>) -> Result<[u8; 128], Errno> {
    #[repr(C)]
    struct InfoByFd {
        object: u32,
        length: u32,
        info: u64,
    }
    let mut info = [0_u64; 16];
    let attributes = InfoByFd {
        object: number(object)?,
        length: 128,
        info: info.as_mut_ptr() as u64,
    };
    command(OBJ_GET_INFO_BY_FD, &attributes)?;
    let mut bytes = [0; 128];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(info) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}

/// Only what the kernel accepts in a name.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (slot, byte) in bytes.iter_mut().zip(name.bytes().take(15)) {
        let plain = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        *slot = if plain { byte } else { b'_' };
    }
    bytes
}

fn check(bytes: &[u8], size: u32) -> Result<(), Errno> {
    (length(bytes.len())? == size)
        .then_some(())
        .ok_or(Errno::INVAL)
}

fn length(length: usize) -> Result<u32, Errno> {
    u32::try_from(length).or(Err(Errno::INVAL))
}

fn number(file: BorrowedFd<'_>) -> Result<u32, Errno> {
    u32::try_from(file.as_raw_fd()).or(Err(Errno::BADF))
}

/// Only for commands that return a new close-on-exec descriptor.
fn create<T>(number: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    owned(command(number, attributes)?)
}

fn owned(result: libc::c_long) -> Result<OwnedFd, Errno> {
    match libc::c_int::try_from(result) {
        // SAFETY: the kernel has just created this descriptor, and nothing else uses it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_error()),
    }
}

fn command<T>(number: libc::c_int, attributes: &T) -> Result<libc::c_long, Errno> {
    // The kernel writes to some of the structures; the copy is thrown away.
    let mut bytes = [0_u64; 32];
    let size = size_of::<T>();
    let words = size_of_val(&bytes);
    if size > words {
        return Err(Errno::INVAL);
    }
    // SAFETY: both are as long as `size`, plain integers without gaps, and do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(attributes).cast::<u8>(),
            bytes.as_mut_ptr().cast::<u8>(),
            size,
        );
    }
    // SAFETY: the kernel reads and writes as many bytes as it is told, which outlive the call, and
    // follows the addresses in them to slices that the callers above borrow until it returns.
    let result = unsafe { libc::syscall(libc::SYS_bpf, number, bytes.as_mut_ptr(), size) };
    if result < 0 {
        return Err(last_error());
    }
    Ok(result)
}

fn last_error() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::INVAL, Errno::from_raw_os_error)
}
