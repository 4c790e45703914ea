//! What the compiler says about the code (`.BTF.ext`): the type of each function, and the
//! instructions that depend on the layout of the kernel's structures. Pure.

use crate::btf::Btf;

/// The type of a function, by the place where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionType<'a> {
    pub(super) section: &'a str,
    pub(super) at: u64,
    pub(super) of: u32,
}

/// An instruction with an offset or a fact about a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayoutRelocation<'a> {
    pub(super) section: &'a str,
    pub(super) at: u64,
    /// The structure, as the program declares it.
    pub(super) of: u32,
    /// The way into it: `0:1:2`.
    pub(super) path: &'a str,
    /// What is wanted, by the number that the compiler uses.
    pub(super) kind: u32,
}

/// The parsed section.
#[derive(Debug)]
pub(super) struct Extension<'a> {
    pub(super) functions: Vec<FunctionType<'a>>,
    pub(super) relocations: Vec<LayoutRelocation<'a>>,
}

impl<'a> Extension<'a> {
    pub(super) fn parse(bytes: &'a [u8], btf: &Btf<'a>) -> Option<Self> {
        let header = |index: usize| word(bytes, 4 + index * 4);
        let body = bytes.get(usize::try_from(header(0)?).ok()?..)?;
        let part = |offset: u32, length: u32| {
            let offset = usize::try_from(offset).ok()?;
            body.get(offset..)?.get(..usize::try_from(length).ok()?)
        };
        let mut functions = Vec::new();
        each(
            part(header(1)?, header(2)?)?,
            btf,
            &mut |section, record| {
                functions.push(FunctionType {
                    section,
                    at: u64::from(word(record, 0)?),
                    of: word(record, 4)?,
                });
                Some(())
            },
        )?;
        let mut relocations = Vec::new();
        // Absent if nothing depends on a layout.
        let layouts = if header(0)? >= 32 {
            part(header(5)?, header(6)?)?
        } else {
            &[]
        };
        each(layouts, btf, &mut |section, record| {
            relocations.push(LayoutRelocation {
                section,
                at: u64::from(word(record, 0)?),
                of: word(record, 4)?,
                path: btf.string(word(record, 8)?)?,
                kind: word(record, 12)?,
            });
            Some(())
        })?;
        Some(Self {
            functions,
            relocations,
        })
    }
}

/// Calls `take` with every record: the size of one, then for each section its name, their number,
/// and the records.
fn each<'a>(
    bytes: &'a [u8],
    btf: &Btf<'a>,
    take: &mut dyn FnMut(&'a str, &'a [u8]) -> Option<()>,
) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let size = usize::try_from(word(bytes, 0)?).ok()?;
    let mut rest = bytes.get(4..)?;
    while !rest.is_empty() {
        let section = btf.string(word(rest, 0)?)?;
        let count = usize::try_from(word(rest, 4)?).ok()?;
        let (records, next) = rest.get(8..)?.split_at_checked(size.checked_mul(count)?)?;
        for record in records.chunks_exact(size.max(1)) {
            take(section, record)?;
        }
        rest = next;
    }
    Some(())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
