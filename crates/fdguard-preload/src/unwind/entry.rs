//! Finds the entry (FDE) of an address, and reads it with the part that it shares with others
//! (CIE).

use super::bytes::Bytes;
use crate::modules::Module;

/// The entry for a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The function's first address.
    pub(crate) start: usize,
    /// The rules at its start.
    pub(crate) initial: Bytes,
    /// The changes inside it.
    pub(crate) program: Bytes,
    pub(crate) code_factor: u64,
    pub(crate) data_factor: i64,
    /// Whether it is the frame of a signal handler's return.
    pub(crate) is_signal: bool,
}

/// The entry of the function that contains an address.
pub(crate) fn find(module: &Module, address: usize) -> Option<Entry> {
    let at = search(module, address)?;
    let (entry, end) = read(module, at)?;
    (entry.start..end).contains(&address).then_some(entry)
}

/// The first address of the function that contains an address, and one past its last.
pub(crate) fn extent(module: &Module, address: usize) -> Option<(usize, usize)> {
    let at = search(module, address)?;
    let (entry, end) = read(module, at)?;
    (entry.start..end)
        .contains(&address)
        .then_some((entry.start, end))
}

/// The binary search table of `.eh_frame_hdr`: pairs of a function's first address and its entry.
fn search(module: &Module, address: usize) -> Option<usize> {
    const SORTED_PAIRS: u8 = 0x3b;
    let base = module.eh_frame_header;
    if base < module.start || base >= module.end {
        return None;
    }
    let mut header = Bytes::new(base, module.end);
    let (version, frames) = (header.u8()?, header.u8()?);
    let (count, table) = (header.u8()?, header.u8()?);
    header.pointer(frames, base)?;
    let pairs = header.pointer(count, base)?;
    if version != 1 || table != SORTED_PAIRS || header.left() / 8 < pairs {
        return None;
    }
    let first = header.at;
    let pair = |index: usize| {
        let mut bytes = Bytes::new(first.checked_add(index.checked_mul(8)?)?, module.end);
        let start = base.wrapping_add_signed(bytes.i32()? as isize);
        Some((start, base.wrapping_add_signed(bytes.i32()? as isize)))
    };
    let (mut low, mut high) = (0, pairs);
    while low < high {
        let middle = low.midpoint(high);
        if pair(middle)?.0 <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    pair(low.checked_sub(1)?).map(|(_, entry)| entry)
}

/// The part that entries share.
#[derive(Clone, Copy, Debug)]
struct Shared {
    program: Bytes,
    code_factor: u64,
    data_factor: i64,
    pointers: u8,
    has_augmentation: bool,
    is_signal: bool,
}

/// An entry and where its function ends.
fn read(module: &Module, at: usize) -> Option<(Entry, usize)> {
    let mut bytes = body(module, at)?;
    let place = bytes.at;
    let back = usize::try_from(bytes.u32()?).ok()?;
    // 0 would be a shared part itself.
    let shared = shared(module, place.checked_sub(back).filter(|_| back != 0)?)?;
    let start = bytes.pointer(shared.pointers, 0)?;
    let length = bytes.pointer(shared.pointers & 0x0f, 0)?;
    if shared.has_augmentation {
        let skip = usize::try_from(bytes.uleb()?).ok()?;
        bytes.take(skip)?;
    }
    let entry = Entry {
        start,
        initial: shared.program,
        program: bytes,
        code_factor: shared.code_factor,
        data_factor: shared.data_factor,
        is_signal: shared.is_signal,
    };
    Some((entry, start.checked_add(length)?))
}

fn shared(module: &Module, at: usize) -> Option<Shared> {
    let mut bytes = body(module, at)?;
    if bytes.u32()? != 0 {
        return None;
    }
    let version = bytes.u8()?;
    let mut augmentation = bytes;
    while bytes.u8()? != 0 {}
    let code_factor = bytes.uleb()?;
    let data_factor = bytes.sleb()?;
    // The return address has the same number on all of x86-64.
    if version == 1 {
        bytes.u8()?;
    } else {
        bytes.uleb()?;
    }
    let mut shared = Shared {
        program: bytes,
        code_factor,
        data_factor,
        pointers: 0,
        has_augmentation: false,
        is_signal: false,
    };
    if augmentation.u8()? != b'z' {
        return Some(shared);
    }
    shared.has_augmentation = true;
    let length = usize::try_from(bytes.uleb()?).ok()?;
    let mut values = bytes.take(length)?;
    shared.program = bytes;
    loop {
        match augmentation.u8()? {
            b'R' => shared.pointers = values.u8()?,
            b'P' => {
                let encoding = values.u8()?;
                // Only its length matters, not its location.
                values.pointer(encoding & 0x0f, 0)?;
            }
            b'L' => {
                values.u8()?;
            }
            b'S' => shared.is_signal = true,
            _ => return Some(shared),
        }
    }
}

/// The bytes after a length.
fn body(module: &Module, at: usize) -> Option<Bytes> {
    const LONG: u32 = 0xffff_ffff;
    if at < module.start || at >= module.end {
        return None;
    }
    let mut bytes = Bytes::new(at, module.end);
    let length = bytes.u32()?;
    if length == 0 || length == LONG {
        return None;
    }
    bytes.take(usize::try_from(length).ok()?)
}
