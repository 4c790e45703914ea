//! Where the parts of the table are: the description that the linker writes for the runtime
//! (`runtime.firstmoduledata`).

use super::image::ProgramImage;
use super::version::GoVersion;

/// The format of the table, by the number that it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Go 1.16 and 1.17: addresses.
    Go116,
    /// Go 1.18 and 1.19: offsets.
    Go118,
    /// Since Go 1.20: with the first line of each function.
    Go120,
}

impl Format {
    fn from_magic(magic: u32) -> Option<Self> {
        match magic {
            0xffff_fffa => Some(Self::Go116),
            0xffff_fff0 => Some(Self::Go118),
            0xffff_fff1 => Some(Self::Go120),
            _ => None,
        }
    }
}

/// A part of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) length: usize,
}

/// The description of a module, as far as lines need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    pub(super) format: Format,
    /// The smallest size of an instruction.
    pub(super) quantum: u64,
    pub(super) function_names: Part,
    /// For each package, the numbers of its files.
    pub(super) units: Part,
    pub(super) file_names: Part,
    /// The values of `values.rs`.
    pub(super) values: Part,
    pub(super) functions: Part,
    /// How many entries the index of functions has; it is at the start of `functions`.
    pub(super) count: usize,
    /// What the entries of functions are relative to.
    pub(super) text: u64,
    pub(super) text_end: u64,
    /// What the trees of inlined calls are relative to; `None` if this version is not known.
    pub(super) trees: Option<u64>,
}

/// The largest part that is believed: 1 GiB.
const MOST: u64 = 1 << 30;

/// Finds it: the section has a name unless it was stripped or the C linker renamed it.
pub(super) fn find(image: &ProgramImage, version: Option<GoVersion>) -> Option<Module> {
    let named = image.section(".gopclntab");
    let by_name = named.and_then(|table| at(image, table, version));
    by_name.or_else(|| {
        let mut tables = image.words(is_header).into_iter();
        tables.find_map(|table| at(image, table, version))
    })
}

/// The first word of a table: its magic, two zeros, the quantum and the size of a pointer.
fn is_header(word: u64) -> bool {
    let [m0, m1, m2, m3, zero, zero_too, quantum, pointer] = word.to_le_bytes();
    let magic = u32::from_le_bytes([m0, m1, m2, m3]);
    let is_machine = matches!(quantum, 1 | 4) && pointer == 8;
    Format::from_magic(magic).is_some() && [zero, zero_too] == [0, 0] && is_machine
}

fn at(image: &ProgramImage, table: u64, version: Option<GoVersion>) -> Option<Module> {
    let header = image.bytes(table, 8)?;
    let word = u64::from_le_bytes(header.try_into().ok()?);
    if !is_header(word) {
        return None;
    }
    let [m0, m1, m2, m3, .., quantum, _] = word.to_le_bytes();
    let format = Format::from_magic(u32::from_le_bytes([m0, m1, m2, m3]))?;
    let descriptions = image.pointers_to(table).into_iter();
    let mut modules = descriptions
        .filter_map(|place| describe(image, place, table, format, u64::from(quantum), version));
    modules.next()
}

/// Reads the description at `place`. Any pointer to the table could be one: its parts must be where
/// the table's own header puts them.
fn describe(
    image: &ProgramImage,
    place: u64,
    table: u64,
    format: Format,
    quantum: u64,
    version: Option<GoVersion>,
) -> Option<Module> {
    let field = |offset: u64| image.pointer(place.checked_add(offset)?);
    let part = |offset: u64, unit: u64| {
        let length = field(offset + 8)?.checked_mul(unit)?;
        (length <= MOST).then_some(Part {
            address: field(offset)?,
            length: usize::try_from(length).ok()?,
        })
    };
    let first_offset = match format {
        Format::Go116 => 24,
        Format::Go118 | Format::Go120 => 32,
    };
    let function_names = part(8, 1)?;
    let expected = image.pointer(table.checked_add(first_offset)?)?;
    let functions = part(104, 1)?;
    let index = part(128, 1)?;
    let is_it = function_names.address == table.checked_add(expected)?
        && index.address == functions.address;
    let text = field(176)?;
    if !is_it || !image.is_code(text) {
        return None;
    }
    Some(Module {
        format,
        quantum,
        function_names,
        units: part(32, 4)?,
        file_names: part(56, 1)?,
        values: part(80, 1)?,
        functions,
        count: index.length,
        text,
        text_end: field(184)?,
        trees: trees_offset(format, version).and_then(field),
    })
}

/// Where the description has the base of the trees (`gofunc`). Before 1.18 they are pointers.
fn trees_offset(format: Format, version: Option<GoVersion>) -> Option<u64> {
    match (format, version?) {
        (Format::Go118, _) => Some(304),
        (Format::Go120, (1, 20..=26)) => Some(320),
        (Format::Go120, (1, 27)) => Some(344),
        _ => None,
    }
}
