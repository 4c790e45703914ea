//! Makes one program of a section and the functions that it calls. Pure.

use super::{BpfObject, CodeSection, relocation};
use crate::btf::Btf;

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;
/// Loads 64 bits: the instruction is two long.
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
/// Meanings of the source register in these two.
const LOCAL_CALL: u8 = 1;
const FUNCTION_ADDRESS: u8 = 4;

/// What an instruction refers to that only exists once it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A map.
    Map(usize),
    /// A variable in a map, at this offset.
    Variable(usize, u32),
}

/// A program that is complete but for the descriptors of its maps.
#[derive(Debug, Default)]
pub(crate) struct LinkedProgram {
    pub(crate) code: Vec<u8>,
    /// Where in the code it refers to what.
    pub(crate) references: Vec<(usize, Reference)>,
    /// The first instruction and the type of each function.
    pub(crate) functions: Vec<u8>,
}

/// A function at its place in the program.
struct Piece<'o, 'a> {
    section: &'o CodeSection<'a>,
    start: u64,
    end: u64,
    /// The first byte in the program.
    at: usize,
}

pub(super) fn link(
    object: &BpfObject<'_>,
    section: &str,
    kernel: &Btf<'_>,
) -> Option<LinkedProgram> {
    let section = object.code.iter().find(|it| it.name == section)?;
    let mut pieces = vec![Piece {
        section,
        start: 0,
        end: u64::try_from(section.code.len()).ok()?,
        at: 0,
    }];
    let mut program = LinkedProgram::default();
    let mut next = 0;
    while let Some(piece) = pieces.get(next) {
        let range = usize::try_from(piece.start).ok()?..usize::try_from(piece.end).ok()?;
        let (section, start, at) = (piece.section, piece.start, piece.at);
        let mut code = section.code.get(range)?.to_vec();
        adapt(object, section, start, kernel, &mut code)?;
        let mut offset = 0;
        while offset < code.len() {
            let place = start + u64::try_from(offset).ok()?;
            let instruction = code.get_mut(offset..)?;
            let wide = *instruction.first()? == LOAD_64;
            let target = target(section, place, instruction)?;
            if let Some((to, to_offset)) = target {
                resolve(
                    object,
                    &mut pieces,
                    (to, to_offset),
                    at + offset,
                    instruction,
                )?
                .into_iter()
                .for_each(|it| program.references.push((at + offset, it)));
            }
            offset += if wide { 2 * INSTRUCTION } else { INSTRUCTION };
        }
        let of = object.extension.functions.iter();
        let of = of
            .clone()
            .find(|it| it.section == section.name && it.at == start)?;
        let first = u32::try_from(at / INSTRUCTION).ok()?;
        for word in [first, of.of] {
            program.functions.extend(word.to_ne_bytes());
        }
        program.code.extend(code);
        next += 1;
    }
    Some(program)
}

/// Puts the kernel's offsets into a function's instructions.
fn adapt(
    object: &BpfObject<'_>,
    section: &CodeSection<'_>,
    start: u64,
    kernel: &Btf<'_>,
    code: &mut [u8],
) -> Option<()> {
    for layout in &object.extension.relocations {
        let Some(offset) = layout.at.checked_sub(start) else {
            continue;
        };
        let offset = usize::try_from(offset).ok()?;
        if layout.section == section.name
            && let Some(instruction) = code.get_mut(offset..).filter(|rest| !rest.is_empty())
        {
            relocation::apply(layout, &object.btf, kernel, instruction)?;
        }
    }
    Some(())
}

/// The section and offset that an instruction refers to, if any.
fn target(
    section: &CodeSection<'_>,
    place: u64,
    instruction: &[u8],
) -> Option<Option<(usize, u64)>> {
    let number = i64::from(i32::from_le_bytes(*instruction.get(4..)?.first_chunk()?));
    let code = *instruction.first()?;
    let is_local = code == CALL && instruction.get(1)? >> 4 == LOCAL_CALL;
    let found = section.relocations.iter().find(|it| it.at == place);
    let (base, target) = match found {
        Some(symbol) => (i64::try_from(symbol.offset).ok()?, symbol.section),
        // A call within the section, which the assembler has resolved.
        None if is_local => (i64::try_from(place).ok()?.checked_add(8)?, section.index),
        None => return Some(None),
    };
    let offset = match (code, found) {
        (LOAD_64, _) => base.checked_add(number)?,
        (CALL, Some(_)) => base.checked_add(number.checked_add(1)?.checked_mul(8)?)?,
        (CALL, None) => base.checked_add(number.checked_mul(8)?)?,
        _ => return None,
    };
    Some(Some((target, u64::try_from(offset).ok()?)))
}

/// Completes an instruction that refers to a function, which is placed after the others if it is
/// new; answers what else it refers to.
fn resolve<'o, 'a>(
    object: &'o BpfObject<'a>,
    pieces: &mut Vec<Piece<'o, 'a>>,
    (section, offset): (usize, u64),
    at: usize,
    instruction: &mut [u8],
) -> Option<Option<Reference>> {
    let variables = object.maps.iter().position(|map| {
        map.section == section && (map.variables.is_some() || map.offset == offset)
    });
    if let Some(map) = variables {
        let is_map = object.maps.get(map)?.variables.is_none();
        let offset = u32::try_from(offset).ok()?;
        return Some(Some(if is_map {
            Reference::Map(map)
        } else {
            Reference::Variable(map, offset)
        }));
    }
    let place = place(object, pieces, section, offset)?;
    let distance = i64::try_from(place).ok()? - i64::try_from(at).ok()? - 8;
    let distance = i32::try_from(distance / 8).ok()?;
    let meaning = if *instruction.first()? == CALL {
        LOCAL_CALL
    } else {
        FUNCTION_ADDRESS
    };
    let registers = instruction.get_mut(1)?;
    *registers = *registers & 0xf | meaning << 4;
    instruction
        .get_mut(4..8)?
        .copy_from_slice(&distance.to_le_bytes());
    Some(None)
}

/// Where the function at this place of the file is in the program.
fn place<'o, 'a>(
    object: &'o BpfObject<'a>,
    pieces: &mut Vec<Piece<'o, 'a>>,
    section: usize,
    start: u64,
) -> Option<usize> {
    let known = pieces
        .iter()
        .find(|it| it.section.index == section && it.start == start);
    if let Some(known) = known {
        return Some(known.at);
    }
    let mut functions = object.functions.iter();
    let function = functions.find(|it| it.section == section && it.start == start)?;
    let section = object.code.iter().find(|it| it.index == section)?;
    let last = pieces.last()?;
    let at = last.at + usize::try_from(last.end - last.start).ok()?;
    pieces.push(Piece {
        section,
        start,
        end: function.end,
        at,
    });
    Some(at)
}
