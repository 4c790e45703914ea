//! Points the references of all modules to the hooks, and back.
//!
//! A call to another module goes through a word of the caller's table that the loader filled. The
//! library writes the hook there if the word has the address of the real function, or leads to the
//! loader because the function was not called yet. Other values are unknown code: they stay, and
//! are counted. Nothing is remembered: to detach is the same walk with the two addresses exchanged,
//! so that an unloaded module does no harm.

#![expect(unsafe_code, reason = "reads and writes tables of loaded modules")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::loaded::{self, LoadedModule, NEXT};
use super::{hooks, scope};
use crate::symbols::{Symbol, Symbols};
use crate::sys;

const PAGE: usize = 4096;

const STRINGS: usize = 5;
const SYMBOLS: usize = 6;
const RELA: usize = 7;
const RELA_BYTES: usize = 8;
const PLT_BYTES: usize = 2;
const PLT_KIND: usize = 20;
const PLT: usize = 23;

const R_64: usize = 1;
const R_GLOB_DAT: usize = 6;
const R_JUMP_SLOT: usize = 7;

/// `Elf64_Rela`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: usize,
    info: usize,
    addend: usize,
}

/// Which way the references are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Attach,
    Detach,
}

/// What a walk found.
#[derive(Clone, Copy, Default)]
pub(super) struct WalkOutcome {
    /// References that lead to unknown code.
    pub(super) unhooked: u64,
    /// References that were changed.
    pub(super) changed: u64,
    /// Whether a module seems to be in the middle of its loading and was left for the next walk.
    pub(super) is_unfinished: bool,
    /// How many modules were ever loaded.
    pub(super) adds: u64,
}

/// Walks over all modules. `settled` is the number of modules that were loaded when the walk before
/// this one, a while ago, found one unfinished.
pub(super) fn walk(direction: Direction, settled: Option<u64>) -> WalkOutcome {
    let mut outcome = WalkOutcome::default();
    let mut program = (0, 0);
    loaded::each(|module| {
        outcome.adds = module.adds;
        if module.index == 0 {
            program = module.range;
        }
        let defined = module.symbols();
        let is_foreign = defined.is_none_or(|symbols| {
            !scope::is_library(&symbols) && !super::is_copy(module, &symbols)
        });
        if is_foreign && let Some(tables) = Tables::of(module) {
            let mut rebinding = Rebinding {
                direction,
                program,
                module,
                tables: &tables,
                defined,
                pages: Pages {
                    relro: module.relro,
                    is_settled: settled == Some(module.adds),
                    is_open: false,
                    last: (0, Access::Never),
                },
                outcome: &mut outcome,
            };
            rebinding.run();
        }
        NEXT
    });
    outcome
}

/// The tables of a module that a walk needs.
struct Tables {
    range: (usize, usize),
    strings: usize,
    symbols: usize,
    /// Address and size of both tables of relocations.
    relocations: [(usize, usize); 2],
}

impl Tables {
    fn of(module: &LoadedModule<'_>) -> Option<Self> {
        let (mut strings, mut symbols, mut has_addends) = (0, 0, false);
        let mut relocations = [(0, 0); 2];
        let [data, calls] = &mut relocations;
        for entry in module.dynamic() {
            match entry.tag {
                STRINGS => strings = entry.value,
                SYMBOLS => symbols = entry.value,
                RELA => data.0 = entry.value,
                RELA_BYTES => data.1 = entry.value,
                PLT => calls.0 = entry.value,
                PLT_BYTES => calls.1 = entry.value,
                PLT_KIND => has_addends = entry.value == RELA,
                _ => {}
            }
        }
        if !has_addends {
            calls.1 = 0;
        }
        // The loader turns these into addresses, except where it may not write.
        let address = |value: usize| {
            let moved = value.wrapping_add(module.bias);
            let both = [value, moved].into_iter();
            both.into_iter().find(|address| module.contains(*address))
        };
        let [data, calls] = relocations;
        let table = |(start, bytes)| (address(start).unwrap_or(0), bytes);
        Some(Self {
            range: module.range,
            strings: address(strings)?,
            symbols: address(symbols)?,
            relocations: [table(data), table(calls)],
        })
    }

    fn read<T: Copy>(&self, table: usize, index: usize) -> Option<T> {
        let place = table.checked_add(index.checked_mul(size_of::<T>())?)?;
        if table == 0 || place < self.range.0 || place.checked_add(size_of::<T>())? > self.range.1 {
            return None;
        }
        // SAFETY: inside a table of the module, which the linker wrote for the loader to follow in
        // the same way. The module stays loaded while the list is walked.
        Some(unsafe { (place as *const T).read_unaligned() })
    }

    fn name(&self, symbol: &Symbol) -> Option<&CStr> {
        let text = self.strings.checked_add(symbol.name as usize)?;
        self.read::<u8>(text, 0)?;
        // SAFETY: a name in the module's string table, where each name ends with a null.
        Some(unsafe { CStr::from_ptr(text as *const c_char) })
    }
}

/// The walk over one module.
struct Rebinding<'a> {
    direction: Direction,
    /// The address range of the program itself.
    program: (usize, usize),
    module: &'a LoadedModule<'a>,
    tables: &'a Tables,
    /// What the module defines.
    defined: Option<Symbols>,
    pages: Pages,
    outcome: &'a mut WalkOutcome,
}

/// What a reference leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The function that is to be replaced.
    Expected,
    /// Code that is left alone, for a known reason.
    Known,
    /// The loader has not filled it.
    Unfinished,
    Unknown,
}

impl Rebinding<'_> {
    fn run(&mut self) {
        for (table, bytes) in self.tables.relocations {
            for index in 0..bytes / size_of::<Relocation>() {
                let Some(relocation) = self.tables.read::<Relocation>(table, index) else {
                    break;
                };
                self.one(relocation);
            }
        }
        self.pages.protect();
    }

    /// Handles one reference; `None` if it is not one to an interposed function.
    fn one(&mut self, relocation: Relocation) -> Option<()> {
        let kind = relocation.info & 0xffff_ffff;
        if !matches!(kind, R_64 | R_GLOB_DAT | R_JUMP_SLOT) {
            return None;
        }
        let slot = self.module.bias.wrapping_add(relocation.offset);
        if !self.module.has_word(slot) || relocation.info >> 32 == 0 {
            return None;
        }
        let word = slot as *const AtomicUsize;
        // SAFETY: an aligned word in the module's data, which the loader itself writes as a whole.
        let word = unsafe { &*word };
        let value = word.load(Ordering::Relaxed);
        if self.is_something_else(kind, relocation.info >> 32, value) {
            return None;
        }
        let symbol: Symbol = self
            .tables
            .read(self.tables.symbols, relocation.info >> 32)?;
        let name = self.tables.name(&symbol)?;
        let (hook, real) = hooks::find(name)?;
        let (from, to) = match self.direction {
            Direction::Attach => (real, hook),
            Direction::Detach => (hook, real),
        };
        if value == to || relocation.addend != 0 {
            return None;
        }
        match self.target(value, from, kind == R_JUMP_SLOT && symbol.section == 0) {
            Target::Expected if self.pages.may_write(slot) => {
                word.store(to, Ordering::Release);
                self.outcome.changed += 1;
            }
            Target::Expected if self.pages.is_unfinished(slot) => self.outcome.is_unfinished = true,
            Target::Unfinished => self.outcome.is_unfinished = true,
            Target::Known => {}
            Target::Expected | Target::Unknown => self.outcome.unhooked += 1,
        }
        Some(())
    }

    /// Whether a reference is not one to an interposed function, by what is at hand: names of
    /// symbols are spread over memory, and most references are to a module's own functions.
    fn is_something_else(&self, kind: usize, symbol: usize, value: usize) -> bool {
        let is_own = crate::modules::is_own(value);
        match self.direction {
            Direction::Detach => !is_own,
            // Large tables of data are mostly addresses of other things.
            Direction::Attach if kind == R_64 && !is_own && !scope::contains(value) => true,
            Direction::Attach => {
                let hash = self.defined.and_then(|own| own.defined_hash(symbol));
                hash.is_some_and(|hash| !hooks::may_be_hooked(hash))
            }
        }
    }

    fn target(&self, value: usize, from: usize, is_lazy: bool) -> Target {
        let (start, end) = self.module.range;
        let is_in_module = self.module.contains(value);
        if value == from {
            return Target::Expected;
        }
        if self.direction == Direction::Detach {
            return Target::Known;
        }
        // A function that was not called yet: its entry leads back to the module, and from there to
        // the loader.
        if is_in_module && is_lazy {
            return Target::Expected;
        }
        // The module's own function of this name, or the program's, or the entry of the program's
        // own table.
        if is_in_module || (self.program.0..self.program.1).contains(&value) {
            return Target::Known;
        }
        // Not relocated yet: an address in the file.
        if value < end.wrapping_sub(start) {
            return Target::Unfinished;
        }
        Target::Unknown
    }
}

/// Whether a page can be written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Now,
    /// After it was made writable.
    Protected,
    Never,
}

/// The pages of a module that are written to.
struct Pages {
    relro: (usize, usize),
    /// Whether no module was loaded since the walk before.
    is_settled: bool,
    /// Whether the read-only pages are writable at the moment.
    is_open: bool,
    /// The page that was asked for last.
    last: (usize, Access),
}

impl Pages {
    fn is_read_only(&self, slot: usize) -> bool {
        (self.relro.0..self.relro.1).contains(&slot)
    }

    /// Whether a word can be written, which makes read-only pages writable.
    fn may_write(&mut self, slot: usize) -> bool {
        match self.access(slot) {
            Access::Now => true,
            Access::Never => false,
            Access::Protected => {
                let (start, end) = self.relro;
                self.is_open = self.is_open || sys::make_writable(start, end - start);
                self.is_open
            }
        }
    }

    /// The loader protects these pages after it has written them. If it has not done so yet, it may
    /// do it between our question and our write.
    fn is_unfinished(&self, slot: usize) -> bool {
        self.is_read_only(slot)
            && !self.is_settled
            && self.last == (slot & !(PAGE - 1), Access::Never)
    }

    fn access(&mut self, slot: usize) -> Access {
        let page = slot & !(PAGE - 1);
        if self.last.0 != page {
            let is_read_only = self.is_read_only(slot);
            let access = match sys::is_writable(page) {
                _ if is_read_only && self.is_open => Access::Now,
                Some(true) if is_read_only && !self.is_settled => Access::Never,
                Some(true) => Access::Now,
                Some(false) if is_read_only => Access::Protected,
                Some(false) => Access::Never,
                // The kernel does not say it.
                None if is_read_only => Access::Protected,
                None => Access::Now,
            };
            self.last = (page, access);
        }
        self.last.1
    }

    fn protect(&mut self) {
        if self.is_open {
            sys::make_read_only(self.relro.0, self.relro.1 - self.relro.0);
            self.is_open = false;
        }
    }
}
