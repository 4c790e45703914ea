//! Adapts instructions to the running kernel's layout of a structure. Pure.

use super::extension::LayoutRelocation;
use crate::btf::{Btf, BtfShape, Kind};

/// The call of a function that does not exist: an instruction that needs what this kernel lacks.
/// The verifier accepts it where it cannot be reached.
const IMPOSSIBLE: [u8; 8] = [0x85, 0, 0, 0, 0x10, 0x23, 0xad, 0x0b];

const BYTE_OFFSET: u32 = 0;
const BYTE_SIZE: u32 = 1;
const EXISTS: u32 = 2;
const TYPE_EXISTS: u32 = 8;
const TYPE_SIZE: u32 = 9;

/// A field in the program's own types and in the kernel's.
struct Place {
    offset: u32,
    size: u32,
}

/// Changes the instruction at the start of `code`. `None` if that is not one of those that the
/// compiler marks.
pub(super) fn apply(
    relocation: &LayoutRelocation<'_>,
    program: &Btf<'_>,
    kernel: &Btf<'_>,
    code: &mut [u8],
) -> Option<()> {
    let name = plain_name(program.name(relocation.of)?);
    let roots = kernel.named(Kind::Struct, name);
    let found = roots.iter().find_map(|root| {
        let place = find(relocation, program, kernel, *root)?;
        Some((*root, place))
    });
    match relocation.kind {
        BYTE_OFFSET => match found {
            Some((_, place)) => set(code, place.offset),
            None => poison(code),
        },
        BYTE_SIZE => match found {
            Some((_, place)) => set(code, place.size),
            None => poison(code),
        },
        EXISTS => set(code, u32::from(found.is_some())),
        TYPE_EXISTS => set(code, u32::from(!roots.is_empty())),
        TYPE_SIZE => match roots.first() {
            Some(root) => set(code, kernel.size(*root)?),
            None => poison(code),
        },
        _ => None,
    }
}

/// The name without what distinguishes several declarations of one structure: `file___old`.
pub(super) fn plain_name(name: &str) -> &str {
    name.split_once("___").map_or(name, |(plain, _)| plain)
}

/// Follows the way through the program's structure by place, and through the kernel's by name.
fn find(
    relocation: &LayoutRelocation<'_>,
    program: &Btf<'_>,
    kernel: &Btf<'_>,
    root: u32,
) -> Option<Place> {
    let mut steps = relocation.path.split(':').map(|step| step.parse().ok());
    let first: u32 = steps.next()??;
    let mut ours = relocation.of;
    let mut theirs = root;
    let mut offset = kernel.size(root)?.checked_mul(first)?;
    for step in steps {
        let step: u32 = step?;
        let (id, shape) = program.shape(ours)?;
        match shape {
            BtfShape::Members(_) => {
                let (name, _, of) = program.member_at(id, usize::try_from(step).ok()?)?;
                ours = of;
                // The kernel's structure is searched through what has no name.
                if name.is_empty() {
                    continue;
                }
                let (id, _) = kernel.shape(theirs)?;
                let member = kernel.member(id, name)?;
                offset = offset.checked_add(member.offset)?;
                theirs = member.of;
            }
            BtfShape::Array(of) => {
                let (_, BtfShape::Array(each)) = kernel.shape(theirs)? else {
                    return None;
                };
                ours = of;
                theirs = each;
                offset = offset.checked_add(kernel.size(each)?.checked_mul(step)?)?;
            }
            BtfShape::Other => return None,
        }
    }
    Some(Place {
        offset,
        size: kernel.size(theirs)?,
    })
}

/// Puts a value where this kind of instruction has it: a distance for a load or store, else a
/// number.
fn set(code: &mut [u8], value: u32) -> Option<()> {
    match code.first()? & 7 {
        // LDX, ST, STX.
        1..=3 => {
            let distance = i16::try_from(value).ok()?;
            code.get_mut(2..4)?.copy_from_slice(&distance.to_le_bytes());
        }
        // LD of 64 bits, ALU, ALU64.
        0 | 4 | 7 => code.get_mut(4..8)?.copy_from_slice(&value.to_le_bytes()),
        _ => return None,
    }
    Some(())
}

fn poison(code: &mut [u8]) -> Option<()> {
    code.get_mut(..8)?.copy_from_slice(&IMPOSSIBLE);
    Some(())
}
