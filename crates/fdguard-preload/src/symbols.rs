//! The symbols of one loaded module, read from its own tables. The loader would take a lock, and it
//! does not list modules that were loaded privately.

#![expect(unsafe_code, reason = "reads the tables of a loaded module")]

use core::ffi::{CStr, c_char, c_void};

/// An entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dynamic {
    pub(crate) tag: usize,
    pub(crate) value: usize,
}

impl Dynamic {
    /// The entries of a dynamic section.
    ///
    /// # Safety
    /// `dynamic` must be the dynamic section of a module that stays loaded, or 0.
    pub(crate) unsafe fn all(dynamic: usize) -> impl Iterator<Item = Self> {
        let start = dynamic as *const Self;
        let most = if start.is_null() { 0 } else { MOST };
        (0..most).map_while(move |index| {
            let place = start.wrapping_add(index);
            // SAFETY: the section ends with an entry of tag 0, where this stops.
            let entry = unsafe { place.read() };
            (entry.tag != END).then_some(entry)
        })
    }
}

const END: usize = 0;
const STRINGS: usize = 5;
const SYMBOLS: usize = 6;
const GNU_HASH: usize = 0x6fff_fef5;
const VERSIONS: usize = 0x6fff_fff0;
/// An older version of a symbol, for programs that were linked against it.
const HIDDEN: u16 = 0x8000;
/// More entries than any dynamic section has.
const MOST: usize = 256;
/// More symbols than ever share one bucket.
const LONGEST: usize = 4096;

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    pub(crate) name: u32,
    info: u8,
    other: u8,
    /// 0 if the module only refers to it.
    pub(crate) section: u16,
    value: usize,
    size: usize,
}

/// Functions and variables; not indirect functions.
const KINDS: [u8; 3] = [0, 1, 2];

/// The addresses of a module's tables.
#[derive(Clone, Copy)]
pub(crate) struct Symbols {
    bias: usize,
    range: (usize, usize),
    strings: usize,
    symbols: usize,
    hash: usize,
    /// The version of each symbol; 0 if they have none.
    versions: usize,
}

impl Symbols {
    /// The tables that a dynamic section names.
    ///
    /// # Safety
    /// `dynamic` must be the dynamic section of the module that is loaded at `range`, or 0, and the
    /// module must stay loaded.
    pub(crate) unsafe fn of(dynamic: usize, bias: usize, range: (usize, usize)) -> Option<Self> {
        let mut found = Self {
            bias,
            range,
            strings: 0,
            symbols: 0,
            hash: 0,
            versions: 0,
        };
        // SAFETY: guaranteed by the caller.
        for entry in unsafe { Dynamic::all(dynamic) } {
            match entry.tag {
                STRINGS => found.strings = entry.value,
                SYMBOLS => found.symbols = entry.value,
                GNU_HASH => found.hash = entry.value,
                VERSIONS => found.versions = entry.value,
                _ => {}
            }
        }
        // The loader turns these into addresses, except in the kernel's own module.
        let is_within = |table: usize| table >= range.0 && table < range.1;
        let tables = [found.strings, found.symbols, found.hash];
        tables.into_iter().all(is_within).then_some(found)
    }

    fn read<T: Copy>(&self, table: usize, index: usize) -> Option<T> {
        let place = table.checked_add(index.checked_mul(size_of::<T>())?)?;
        if place < self.range.0 || place.checked_add(size_of::<T>())? > self.range.1 {
            return None;
        }
        // SAFETY: inside a table of the module, which the linker wrote for the loader to follow in
        // the same way.
        Some(unsafe { (place as *const T).read_unaligned() })
    }

    /// The address of a symbol that the module defines; null if it does not.
    pub(crate) fn find(&self, name: &CStr) -> *const c_void {
        self.extent(name)
            .map_or(core::ptr::null(), |(address, _)| address as *const c_void)
    }

    /// The address and the size of a symbol that the module defines.
    pub(crate) fn extent(&self, name: &CStr) -> Option<(usize, usize)> {
        let symbol = self.symbol(name)?;
        Some((self.bias.wrapping_add(symbol.value), symbol.size))
    }

    fn symbol(&self, name: &CStr) -> Option<Symbol> {
        let wanted = hash_of(name.to_bytes());
        let head = |index| self.read::<u32>(self.hash, index).map(|word| word as usize);
        let (buckets, first, blooms, shift) = (head(0)?, head(1)?, head(2)?, head(3)?);
        let bloom_table = self.hash.checked_add(16)?;
        let word = (wanted as usize / 64).checked_rem(blooms)?;
        let bloom: u64 = self.read(bloom_table, word)?;
        let other = wanted.checked_shr(u32::try_from(shift).ok()?)?;
        if bloom >> (wanted % 64) & bloom >> (other % 64) & 1 == 0 {
            return None;
        }
        let bucket_table = bloom_table.checked_add(blooms.checked_mul(8)?)?;
        let chain_table = bucket_table.checked_add(buckets.checked_mul(4)?)?;
        let bucket = (wanted as usize).checked_rem(buckets)?;
        let start = self.read::<u32>(bucket_table, bucket)? as usize;
        for index in (start..).take(LONGEST) {
            let hash: u32 = self.read(chain_table, index.checked_sub(first)?)?;
            if hash | 1 == wanted | 1
                && let Some(symbol) = self.defined(index, name)
            {
                return Some(symbol);
            }
            if hash & 1 != 0 {
                break;
            }
        }
        None
    }

    fn defined(&self, index: usize, name: &CStr) -> Option<Symbol> {
        let symbol: Symbol = self.read(self.symbols, index)?;
        let text = self.strings.checked_add(symbol.name as usize)?;
        self.read::<u8>(text, 0)?;
        // SAFETY: a name in the module's string table, where each name ends with a null.
        let is_it = unsafe { CStr::from_ptr(text as *const c_char) } == name;
        let is_defined = symbol.section != 0 && KINDS.contains(&(symbol.info & 15));
        let is_usual = self.versions == 0
            || self
                .read::<u16>(self.versions, index)
                .is_none_or(|version| version & HIDDEN == 0);
        (is_it && is_defined && is_usual).then_some(symbol)
    }

    /// Whether an address is in the module.
    pub(crate) fn contains(&self, address: usize) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }
}

/// The hash of the GNU table.
fn hash_of(name: &[u8]) -> u32 {
    let mut hash = 5381_u32;
    for byte in name {
        hash = hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    }
    hash
}

#[cfg(test)]
mod tests {
    use crate::modules;

    unsafe extern "C" {
        fn dlsym(
            handle: *mut core::ffi::c_void,
            name: *const core::ffi::c_char,
        ) -> *mut core::ffi::c_void;
    }

    #[test]
    fn the_c_library_has_what_the_loader_says_it_has() {
        // SAFETY: RTLD_DEFAULT and a C string.
        let open = unsafe { dlsym(core::ptr::null_mut(), c"opendir".as_ptr()) };
        let library = modules::find(open as usize).unwrap();
        let symbols = library.symbols().unwrap();
        for name in [
            c"opendir",
            c"fopencookie",
            c"environ",
            c"qsort_r",
            c"mktime",
        ] {
            // SAFETY: as above.
            let expected = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
            assert!(!expected.is_null());
            let found = symbols.find(name);
            // The program has its own copy of a variable that it uses.
            assert!(found == expected || name == c"environ", "{name:?}");
            assert!(!found.is_null(), "{name:?}");
        }
        for name in [c"Py_Version", c"", c"opendi", c"no_such_symbol"] {
            assert!(symbols.find(name).is_null(), "{name:?}");
        }
    }

    #[test]
    fn every_module_answers() {
        let clock = std::time::Instant::now as *const () as usize;
        let own = modules::find(clock).unwrap();
        let symbols = own.symbols();
        assert!(symbols.is_none_or(|symbols| symbols.find(c"Py_Version").is_null()));
    }
}
