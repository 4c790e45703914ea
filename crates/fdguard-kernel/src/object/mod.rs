//! A compiled program file (`bpf/*.o`): its programs, maps, variables and types. Pure.

mod extension;
mod link;
mod relocation;

use object::read::elf::{ElfFile64, ElfSection64};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use self::extension::Extension;
pub(crate) use self::link::{LinkedProgram, Reference};
use crate::LoadRefusal;
use crate::btf::{Btf, Kind};
use crate::call::{MapShape, ProgramKind};

/// A map or a section of variables in the file.
#[derive(Debug)]
pub(crate) struct MapEntry<'a> {
    pub(crate) name: &'a str,
    pub(crate) shape: MapShape,
    /// Its section, and where in it.
    section: usize,
    offset: u64,
    /// The first values, if it is a section of variables.
    pub(crate) variables: Option<Vec<u8>>,
    /// Whether the values never change.
    pub(crate) is_constant: bool,
}

/// A function of the file, in one of its code sections.
#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    section: usize,
    start: u64,
    end: u64,
}

/// A section with code.
#[derive(Debug)]
struct CodeSection<'a> {
    name: &'a str,
    index: usize,
    code: &'a [u8],
    relocations: Vec<CodeRelocation>,
}

/// An instruction that refers to a symbol.
#[derive(Clone, Copy, Debug)]
struct CodeRelocation {
    at: u64,
    section: usize,
    offset: u64,
}

/// A variable.
#[derive(Debug)]
struct Variable<'a> {
    name: &'a str,
    section: usize,
    offset: u64,
    size: u64,
}

/// A parsed file.
#[derive(Debug)]
pub struct BpfObject<'a> {
    code: Vec<CodeSection<'a>>,
    functions: Vec<Function<'a>>,
    pub(crate) maps: Vec<MapEntry<'a>>,
    variables: Vec<Variable<'a>>,
    types: &'a [u8],
    btf: Btf<'a>,
    extension: Extension<'a>,
}

const DAMAGED: LoadRefusal = LoadRefusal::Damaged;
/// Constants may not be written by programs either.
const READ_ONLY: u32 = 1 << 7;
const ARRAY: u32 = 2;
/// More than this is not a file of ours.
const MOST_VARIABLES: usize = 1 << 20;

impl<'a> BpfObject<'a> {
    /// Reads a file that clang made and `xtask bpf` stripped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LoadRefusal> {
        Self::parse_file(bytes).ok_or(DAMAGED)
    }

    fn parse_file(bytes: &'a [u8]) -> Option<Self> {
        let elf = ElfFile64::<object::Endianness>::parse(bytes).ok()?;
        let types = elf.section_by_name_bytes(b".BTF")?.data().ok()?;
        let btf = Btf::parse(types)?;
        let extension = elf.section_by_name_bytes(b".BTF.ext")?.data().ok()?;
        let extension = Extension::parse(extension, &btf)?;
        let (functions, variables) = symbols(&elf);
        let mut code = Vec::new();
        let mut maps = Vec::new();
        for section in elf.sections() {
            let name = section.name().ok()?;
            match section.kind() {
                object::SectionKind::Text => code.push(code_section(&elf, &section, name)?),
                _ if name == "maps" => maps.extend(map_entries(&section, &variables)?),
                _ if [".bss", ".data", ".rodata"].contains(&name) => {
                    maps.extend(variable_section(&section, name)?);
                }
                _ => {}
            }
        }
        Some(Self {
            code,
            functions,
            maps,
            variables,
            types,
            btf,
            extension,
        })
    }

    /// The names of types that it needs to know of the running kernel.
    #[must_use]
    pub fn wanted(&self) -> Vec<(Kind, String)> {
        let mut wanted = Vec::new();
        for relocation in &self.extension.relocations {
            if let Some(name) = self.btf.name(relocation.of) {
                wanted.push((Kind::Struct, relocation::plain_name(name).to_owned()));
            }
        }
        for section in &self.code {
            wanted.extend(target_name(section.name));
        }
        wanted.sort();
        wanted.dedup();
        wanted
    }

    /// Every program with its name and the section that says what it is for.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let sections = self.code.iter().filter(|section| section.name != ".text");
        sections.filter_map(|section| {
            let mut functions = self.functions.iter();
            let first = functions.find(|it| it.section == section.index && it.start == 0)?;
            Some((first.name, section.name))
        })
    }

    /// The program of a section, with its functions placed and adapted to this kernel.
    pub(crate) fn link(
        &self,
        section: &str,
        kernel: &Btf<'_>,
    ) -> Result<LinkedProgram, LoadRefusal> {
        link::link(self, section, kernel).ok_or(DAMAGED)
    }

    /// Where a variable is: the map of its section, the offset and the size.
    pub(crate) fn variable(&self, name: &str) -> Option<(usize, usize, usize)> {
        let variable = self.variables.iter().find(|it| it.name == name)?;
        let map = self
            .maps
            .iter()
            .position(|map| map.variables.is_some() && map.section == variable.section)?;
        let offset = usize::try_from(variable.offset).ok()?;
        Some((map, offset, usize::try_from(variable.size).ok()?))
    }

    /// The names of all variables and maps.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &'a str> {
        self.variables.iter().map(|variable| variable.name)
    }

    /// The types as the kernel accepts them: variables and their sections become plain types, since
    /// only the linker knows their places. Ids and sizes stay as they are.
    pub(crate) fn loadable_types(&self) -> Vec<u8> {
        self.btf.without_variables(self.types)
    }
}

/// What a program is for, by the name of its section.
pub(crate) fn program_kind(section: &str, kernel: &Btf<'_>) -> Result<ProgramKind, LoadRefusal> {
    let target = target_name(section).map(|(kind, name)| {
        let ids = kernel.named(kind, &name);
        ids.first().copied()
    });
    match (section.split('/').next(), target) {
        (Some("tp_btf"), Some(Some(id))) => Ok(ProgramKind::Tracepoint(id)),
        (Some("iter"), Some(Some(id))) => Ok(ProgramKind::Iterator(id)),
        (Some("tp_btf" | "iter"), _) => Err(LoadRefusal::Lacks("the tracepoints of system calls")),
        (Some("raw_tp"), _) => Ok(ProgramKind::Called),
        (Some("uprobe"), _) => Ok(ProgramKind::Uprobe),
        _ => Err(DAMAGED),
    }
}

/// The kernel's type that a section's program is attached to.
fn target_name(section: &str) -> Option<(Kind, String)> {
    match section.split_once('/')? {
        ("tp_btf", name) => Some((Kind::Typedef, format!("btf_trace_{name}"))),
        ("iter", name) => Some((Kind::Function, format!("bpf_iter_{name}"))),
        _ => None,
    }
}

type Elf<'a> = ElfFile64<'a>;

fn symbols<'a>(elf: &Elf<'a>) -> (Vec<Function<'a>>, Vec<Variable<'a>>) {
    let mut functions = Vec::new();
    let mut variables = Vec::new();
    for symbol in elf.symbols() {
        let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) else {
            continue;
        };
        let (section, start) = (section.0, symbol.address());
        match symbol.kind() {
            object::SymbolKind::Text if symbol.size() > 0 => functions.push(Function {
                name,
                section,
                start,
                end: start.saturating_add(symbol.size()),
            }),
            object::SymbolKind::Data => variables.push(Variable {
                name,
                section,
                offset: start,
                size: symbol.size(),
            }),
            _ => {}
        }
    }
    (functions, variables)
}

fn code_section<'a>(
    elf: &Elf<'a>,
    section: &ElfSection64<'a, '_>,
    name: &'a str,
) -> Option<CodeSection<'a>> {
    let mut relocations = Vec::new();
    for (at, relocation) in section.relocations() {
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return None;
        };
        let symbol = elf.symbol_by_index(symbol).ok()?;
        relocations.push(CodeRelocation {
            at,
            section: symbol.section_index()?.0,
            offset: symbol.address(),
        });
    }
    Some(CodeSection {
        name,
        index: section.index().0,
        code: section.data().ok()?,
        relocations,
    })
}

/// The maps: five words each, at the places of the variables that have their names.
fn map_entries<'a>(
    section: &ElfSection64<'a, '_>,
    variables: &[Variable<'a>],
) -> Option<Vec<MapEntry<'a>>> {
    let bytes = section.data().ok()?;
    let index = section.index().0;
    let maps = variables.iter().filter(|it| it.section == index);
    let entry = |variable: &Variable<'a>| {
        let word = |at: u64| {
            let at = usize::try_from(variable.offset.checked_add(at * 4)?).ok()?;
            Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        Some(MapEntry {
            name: variable.name,
            shape: MapShape {
                kind: word(0)?,
                key_size: word(1)?,
                value_size: word(2)?,
                entries: word(3)?,
                flags: word(4)?,
            },
            section: index,
            offset: variable.offset,
            variables: None,
            is_constant: false,
        })
    };
    maps.map(entry).collect()
}

fn variable_section<'a>(
    section: &ElfSection64<'a, '_>,
    name: &'a str,
) -> Option<Option<MapEntry<'a>>> {
    let size = usize::try_from(section.size()).ok()?;
    if size > MOST_VARIABLES {
        return None;
    }
    if size == 0 {
        return Some(None);
    }
    let mut bytes = section.data().ok()?.to_vec();
    bytes.resize(size, 0);
    let is_constant = name == ".rodata";
    Some(Some(MapEntry {
        name,
        shape: MapShape {
            kind: ARRAY,
            key_size: 4,
            value_size: u32::try_from(size).ok()?,
            entries: 1,
            flags: if is_constant { READ_ONLY } else { 0 },
        },
        section: section.index().0,
        offset: 0,
        variables: Some(bytes),
        is_constant,
    }))
}

#[cfg(test)]
mod tests;
