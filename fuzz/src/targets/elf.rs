//! Programs and libraries: made by anybody, read by us, at most as far as the budget goes.

use std::io::Cursor;

use fdguard_probe::parse::elf::ElfObject;

pub(crate) fn run(bytes: &[u8]) {
    let mut budget = 1 << 20;
    let _ = ElfObject::read(Cursor::new(bytes), &mut budget);
    assert!(budget <= 1 << 20);
}
