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

/// The parts of a GNU hash table.
struct HashTable {
    bucket_count: usize,
    /// The first symbol that the module defines; it only refers to those before.
    first: usize,
    bloom_count: usize,
    shift: u32,
    blooms: usize,
    buckets: usize,
    chains: usize,
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
        let table = self.hash_table()?;
        if !self.has_hash(&table, wanted)? {
            return None;
        }
        let bucket = (wanted as usize).checked_rem(table.bucket_count)?;
        let start = self.read::<u32>(table.buckets, bucket)? as usize;
        for index in (start..).take(LONGEST) {
            let hash: u32 = self.read(table.chains, index.checked_sub(table.first)?)?;
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

    fn hash_table(&self) -> Option<HashTable> {
        let head = |index| self.read::<u32>(self.hash, index).map(|word| word as usize);
        let (bucket_count, first, bloom_count, shift) = (head(0)?, head(1)?, head(2)?, head(3)?);
        let blooms = self.hash.checked_add(16)?;
        let buckets = blooms.checked_add(bloom_count.checked_mul(8)?)?;
        Some(HashTable {
            bucket_count,
            first,
            bloom_count,
            shift: u32::try_from(shift).ok()?,
            blooms,
            buckets,
            chains: buckets.checked_add(bucket_count.checked_mul(4)?)?,
        })
    }

    /// Whether the module's filter has this hash.
    fn has_hash(&self, table: &HashTable, hash: u32) -> Option<bool> {
        let word = (hash as usize / 64).checked_rem(table.bloom_count)?;
        let bloom: u64 = self.read(table.blooms, word)?;
        let other = hash.checked_shr(table.shift)?;
        Some(bloom >> (hash % 64) & bloom >> (other % 64) & 1 != 0)
    }

    /// The hash of a symbol that the module defines, by its index. The table has it without its
    /// lowest bit, which is set here. `None` if the module only refers to the symbol.
    pub(crate) fn defined_hash(&self, index: usize) -> Option<u32> {
        let table = self.hash_table()?;
        let place = index.checked_sub(table.first)?;
        self.read::<u32>(table.chains, place).map(|hash| hash | 1)
    }

    /// Whether the module may define a symbol with this hash, whose lowest bit is not known.
    pub(crate) fn may_define(&self, hash: u32) -> bool {
        let has = |table: &HashTable| {
            let hashes = [hash | 1, hash & !1];
            hashes.map(|hash| self.has_hash(table, hash) != Some(false))
        };
        self.hash_table()
            .is_none_or(|table| has(&table).contains(&true))
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
pub(crate) const fn hash_of(name: &[u8]) -> u32 {
    let mut hash = 5381_u32;
    let mut rest = name;
    while let [byte, after @ ..] = rest {
        hash = hash.wrapping_mul(33).wrapping_add(*byte as u32);
        rest = after;
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
    fn a_symbol_is_recognized_by_its_hash() {
        // SAFETY: RTLD_DEFAULT and a C string.
        let open = unsafe { dlsym(core::ptr::null_mut(), c"opendir".as_ptr()) };
        let library = modules::find(open as usize).unwrap();
        let symbols = library.symbols().unwrap();
        let table = symbols.hash_table().unwrap();
        for index in table.first..table.first + 100 {
            let hash = symbols.defined_hash(index).unwrap();
            assert!(symbols.may_define(hash));
            let symbol: super::Symbol = symbols.read(symbols.symbols, index).unwrap();
            let text = (symbols.strings + symbol.name as usize) as *const core::ffi::c_char;
            // SAFETY: a name in the module's string table.
            let name = unsafe { core::ffi::CStr::from_ptr(text) };
            assert_eq!(super::hash_of(name.to_bytes()) | 1, hash, "{name:?}");
        }
        assert_eq!(symbols.defined_hash(0), None);
        assert!(!symbols.may_define(super::hash_of(b"no_such_symbol")));
    }

    #[test]
    fn every_module_answers() {
        let clock = std::time::Instant::now as *const () as usize;
        let own = modules::find(clock).unwrap();
        let symbols = own.symbols();
        assert!(symbols.is_none_or(|symbols| symbols.find(c"Py_Version").is_null()));
    }
}
