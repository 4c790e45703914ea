use std::io::Cursor;

use proptest::prelude::*;

use super::{ElfObject, UnreadableElf};

/// A small 64-bit object: sections 1 to 3 are the symbols, their names and the names of the
/// sections.
fn object(symbols: &[(&str, bool)], section_names: &str, segments: &[u32]) -> Vec<u8> {
    let mut names = vec![0];
    let mut table = vec![0; 24];
    for (name, defined) in symbols {
        table.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
        table.extend([0x12, 0]);
        table.extend(u16::from(*defined).to_le_bytes());
        table.extend([0; 16]);
        names.extend(name.bytes().chain([0]));
    }
    let mut body = Vec::new();
    for kind in segments {
        body.extend(kind.to_le_bytes());
        body.extend([0; 52]);
    }
    let mut sections = vec![0; 64];
    for (kind, link, data) in [
        (11u32, 2u32, table.as_slice()),
        (3, 0, &names),
        (3, 0, section_names.as_bytes()),
    ] {
        let at = 64 + body.len() as u64;
        sections.extend([0; 4]);
        sections.extend(kind.to_le_bytes());
        sections.extend([0; 16]);
        sections.extend(at.to_le_bytes());
        sections.extend((data.len() as u64).to_le_bytes());
        sections.extend(link.to_le_bytes());
        sections.extend([0; 20]);
        body.extend(data);
    }
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.extend([0; 9]);
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    file.extend([0; 8]);
    file.extend(64u64.to_le_bytes());
    file.extend((64 + body.len() as u64).to_le_bytes());
    file.extend([0; 4]);
    let count = u16::try_from(segments.len()).unwrap();
    for half in [64, 56, count, 64, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    [file, body, sections].concat()
}

fn read(bytes: &[u8]) -> Result<Option<ElfObject>, UnreadableElf> {
    ElfObject::read(Cursor::new(bytes), &mut 1_000_000)
}

fn found(symbols: &[(&str, bool)]) -> ElfObject {
    let file = object(
        symbols,
        ".text\0",
        &[super::PT_DYNAMIC.0, super::PT_INTERP.0],
    );
    read(&file).unwrap().unwrap()
}

const LINKED: ElfObject = ElfObject {
    interpreted: true,
    imports_select: false,
    imports_set_check: false,
    fortified: false,
    python: false,
    node: false,
    go: false,
};

#[test]
fn an_import_is_told_from_a_definition() {
    let imports = found(&[("printf", false), ("select", false)]);
    let wanted = ElfObject {
        imports_select: true,
        ..LINKED
    };
    assert_eq!(imports, wanted);
    assert_eq!(found(&[("select", true), ("pselect", true)]), LINKED);
    assert_eq!(
        found(&[("selectively", false), ("preselect", false)]),
        LINKED
    );
}

#[test]
fn fortification_shows_in_its_checks() {
    let sleeper = found(&[("pselect", false), ("__printf_chk", false)]);
    assert!(sleeper.imports_select && sleeper.fortified && !sleeper.imports_set_check);
    let setter = found(&[("select", false), ("__fdelt_chk", false)]);
    assert!(setter.imports_select && setter.imports_set_check && !setter.fortified);
    // This one guards the stack, and comes from another compiler option.
    assert!(!found(&[("__stack_chk_fail", false)]).fortified);
}

#[test]
fn runtimes_show_in_what_they_export() {
    assert!(found(&[("Py_Main", true)]).python);
    assert!(
        !found(&[("Py_Main", false)]).python,
        "a program that embeds it"
    );
    assert!(found(&[("napi_create_function", true)]).node);
    let go = object(&[], ".text\0.go.buildinfo\0", &[]);
    let go = read(&go).unwrap().unwrap();
    assert!(go.go && !go.interpreted);
}

#[test]
fn what_is_no_object_is_none() {
    assert_eq!(read(b""), Ok(None));
    assert_eq!(read(b"\x7fEL"), Ok(None));
    assert_eq!(read(b"#!/bin/sh\necho hello, this is a script\n"), Ok(None));
}

#[test]
fn more_than_the_budget_is_not_read() {
    let file = object(&[("select", false)], "\0", &[]);
    let mut budget = 200;
    let answer = ElfObject::read(Cursor::new(&file), &mut budget);
    assert_eq!(answer, Err(UnreadableElf));
    let mut budget = 1_000_000;
    assert!(ElfObject::read(Cursor::new(&file), &mut budget).is_ok());
    assert!((999_000..1_000_000).contains(&budget), "{budget}");
}

#[test]
fn an_object_without_its_list_of_sections_is_not_taken_for_one_without_imports() {
    let mut file = object(&[("select", false)], "\0", &[super::PT_DYNAMIC.0]);
    // e_shoff, e_shnum and e_shstrndx, as a packer leaves them.
    file[40..48].fill(0);
    file[60..64].fill(0);
    assert_eq!(read(&file), Err(UnreadableElf));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>, wide: bool) {
        let _ = read(&bytes);
        let head = [b"\x7fELF".as_slice(), &[1 + u8::from(wide), 1, 1]].concat();
        let _ = read(&[head, bytes].concat());
    }

    #[test]
    fn a_cut_or_damaged_object_is_survived(cut in 0usize..800, at in 0usize..800, value: u8) {
        let symbols = [("select", false), ("Py_Main", true)];
        let mut file = object(&symbols, ".go.buildinfo\0", &[super::PT_DYNAMIC.0]);
        file.truncate(cut.max(1));
        let at = at % file.len();
        file[at] = value;
        let _ = read(&file);
    }
}
