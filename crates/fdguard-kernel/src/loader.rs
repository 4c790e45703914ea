//! Loads a file of programs: creates its maps, sets its constants, loads and attaches its programs.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use crate::LoadRefusal;
use crate::btf::{Btf, Kind};
use crate::call::{self, NewProgram, ProgramKind};
use crate::map::BpfMap;
use crate::object::{self, BpfObject, LinkedProgram, Reference};
use crate::types::KernelTypes;

/// The programs that report opens and closes.
pub(crate) const EVENTS: &[u8] = include_bytes!("../bpf/events.bpf.o");
/// The program that finds fdguard's pid namespace.
pub(crate) const PLACE: &[u8] = include_bytes!("../bpf/place.bpf.o");

/// How much of the verifier's words is kept.
const LOG: usize = 1 << 20;
/// An instruction that loads 64 bits refers to a map, or to a value in one.
const MAP_DESCRIPTOR: u8 = 1;
const MAP_VALUE: u8 = 2;

/// What is set before the programs are loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Constants by name.
    pub constants: &'a [(&'a str, u32)],
    /// Sizes of maps that differ from the file's.
    pub entries: &'a [(&'a str, u32)],
}

/// A program in the kernel.
#[derive(Debug)]
struct LoadedProgram {
    name: String,
    program: OwnedFd,
}

/// Maps and programs in the kernel; dropping it removes them.
#[derive(Debug)]
pub struct LoadedObject {
    maps: Vec<(String, BpfMap)>,
    programs: Vec<LoadedProgram>,
    /// Variables: the name, the map, the offset and the size.
    variables: Vec<(String, usize, usize, usize)>,
}

/// The kernel's type information. Most users may not load programs, and it is long.
pub fn kernel_types() -> Result<KernelTypes, LoadRefusal> {
    if !cfg!(all(target_pointer_width = "64", target_endian = "little")) {
        return Err(LoadRefusal::Lacks(
            "the 64 bits and the byte order that the programs are for",
        ));
    }
    if !may_load() {
        return Err(LoadRefusal::NotPermitted);
    }
    KernelTypes::read().map_err(|_error| LoadRefusal::NoTypes)
}

/// Whether the processor has the registers that programs at system calls read.
pub(crate) fn check_registers() -> Result<(), LoadRefusal> {
    cfg!(target_arch = "x86_64")
        .then_some(())
        .ok_or(LoadRefusal::Lacks(
            "the x86-64 processor that the programs are for",
        ))
}

/// Finds the types that these files need.
pub fn find_types<'a>(bytes: &'a [u8], objects: &[&BpfObject<'_>]) -> Result<Btf<'a>, LoadRefusal> {
    let wanted: Vec<_> = objects.iter().flat_map(|object| object.wanted()).collect();
    let mut wanted: Vec<(Kind, &str)> =
        wanted.iter().map(|(kind, name)| (*kind, &**name)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    Btf::parse_for(bytes, &wanted).ok_or(LoadRefusal::NoTypes)
}

/// Whether it is worth trying.
pub(crate) fn may_load() -> bool {
    use rustix::thread::CapabilitySet as Set;
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        let may = |wanted: Set| sets.effective.contains(wanted);
        may(Set::SYS_ADMIN) || may(Set::BPF | Set::PERFMON)
    })
}

impl LoadedObject {
    /// Creates the maps and loads the programs; none runs yet.
    pub fn load(
        object: &BpfObject<'_>,
        kernel: &Btf<'_>,
        options: &LoadOptions<'_>,
    ) -> Result<Self, LoadRefusal> {
        let maps = create_maps(object, options)?;
        let types = call::load_types(&object.loadable_types()).map_err(refusal_of("types"))?;
        let mut programs = Vec::new();
        for (name, section) in object.programs() {
            let mut linked = object.link(section, kernel)?;
            refer(&mut linked, &maps)?;
            let new = NewProgram {
                name,
                kind: object::program_kind(section, kernel)?,
                code: &linked.code,
                types: Some(types.as_fd()),
                functions: &linked.functions,
            };
            let program = match call::load_program(&new) {
                Ok(program) => program,
                // It is used for a few programs only: where it is missed, that is reported.
                Err(_) if new.kind == ProgramKind::Uprobe => continue,
                Err(error) => return Err(explain(&new, error)),
            };
            programs.push(LoadedProgram {
                name: name.to_owned(),
                program,
            });
        }
        let variables = object.variables().map(|name| {
            let (map, offset, size) = object.variable(name)?;
            Some((name.to_owned(), map, offset, size))
        });
        Ok(Self {
            maps,
            programs,
            variables: variables.flatten().collect(),
        })
    }

    /// Closes the descriptors of all maps but one, and forgets the variables in them. The programs
    /// keep the maps.
    #[must_use]
    pub fn keep_map(mut self, name: &str) -> Self {
        self.maps.retain(|(known, _)| known == name);
        self.variables.clear();
        self
    }

    /// A map of the file.
    pub fn map(&self, name: &str) -> Result<&BpfMap, Errno> {
        let found = self.maps.iter().find(|(known, _)| known == name);
        found.map(|(_, map)| map).ok_or(Errno::NOENT)
    }

    /// A program of the file.
    pub fn program(&self, name: &str) -> Result<&OwnedFd, Errno> {
        let found = self.programs.iter().find(|it| it.name == name);
        found.map(|it| &it.program).ok_or(Errno::NOENT)
    }

    /// The value of a variable that programs change.
    pub fn variable(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let mut variables = self.variables.iter();
        let (_, map, offset, size) = variables
            .find(|(known, ..)| known == name)
            .ok_or(Errno::NOENT)?;
        let (_, map) = self.maps.get(*map).ok_or(Errno::NOENT)?;
        let bytes = map.read(&0_u32.to_ne_bytes())?;
        let bytes = bytes.get(*offset..).and_then(|rest| rest.get(..*size));
        Ok(bytes.ok_or(Errno::NOENT)?.to_vec())
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> Result<u64, Errno> {
        let bytes = self.variable(name)?;
        let bytes = bytes.first_chunk().ok_or(Errno::INVAL)?;
        Ok(u64::from_ne_bytes(*bytes))
    }

    /// Attaches a program to its tracepoint, until the descriptor is closed.
    pub fn attach(&self, name: &str) -> Result<OwnedFd, LoadRefusal> {
        let program = self.program(name).map_err(refusal_of(name))?;
        call::attach_tracepoint(program.as_fd()).map_err(refusal_of(name))
    }
}

fn create_maps(
    object: &BpfObject<'_>,
    options: &LoadOptions<'_>,
) -> Result<Vec<(String, BpfMap)>, LoadRefusal> {
    let mut maps = Vec::new();
    for (index, entry) in object.maps.iter().enumerate() {
        let mut shape = entry.shape;
        let sizes = options.entries.iter();
        if let Some((_, size)) = sizes.clone().find(|(name, _)| *name == entry.name) {
            shape.entries = *size;
        }
        let map = BpfMap::create(entry.name, shape).map_err(refusal_of(entry.name))?;
        if let Some(values) = &entry.variables {
            let mut values = values.clone();
            for (name, value) in options.constants {
                set_constant(object, index, &mut values, name, *value);
            }
            let set = map.update(&0_u32.to_ne_bytes(), &values);
            set.map_err(refusal_of(entry.name))?;
            if entry.is_constant {
                call::freeze_map(map.as_fd()).map_err(refusal_of(entry.name))?;
            }
        }
        maps.push((entry.name.to_owned(), map));
    }
    Ok(maps)
}

fn set_constant(object: &BpfObject<'_>, map: usize, values: &mut [u8], name: &str, value: u32) {
    if let Some((of, offset, _)) = object.variable(name)
        && of == map
        && let Some(slot) = values.get_mut(offset..).and_then(<[u8]>::first_chunk_mut)
    {
        *slot = value.to_ne_bytes();
    }
}

/// Puts the descriptors of the maps into the instructions.
fn refer(program: &mut LinkedProgram, maps: &[(String, BpfMap)]) -> Result<(), LoadRefusal> {
    for (at, reference) in &program.references {
        let (map, meaning, offset) = match reference {
            Reference::Map(map) => (*map, MAP_DESCRIPTOR, 0),
            Reference::Variable(map, offset) => (*map, MAP_VALUE, *offset),
        };
        let (_, map) = maps.get(map).ok_or(LoadRefusal::Damaged)?;
        let code = program.code.get_mut(*at..).ok_or(LoadRefusal::Damaged)?;
        let instruction: &mut [u8; 16] = code.first_chunk_mut().ok_or(LoadRefusal::Damaged)?;
        instruction[1] = instruction[1] & 0xf | meaning << 4;
        instruction[4..8].copy_from_slice(&map.number().to_le_bytes());
        instruction[12..16].copy_from_slice(&offset.to_le_bytes());
    }
    Ok(())
}

/// Loads it again for the verifier's words.
fn explain(program: &NewProgram<'_>, error: Errno) -> LoadRefusal {
    // A kernel that is locked down does not know the helpers that read memory, and says so of each.
    if error == Errno::PERM || is_locked_down() {
        return refusal(program.name, Errno::PERM);
    }
    let mut log = vec![0; LOG];
    let again = call::load_with_log(program, &mut log);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
    let log = String::from_utf8_lossy(&log[..end]);
    // The last lines but one say what is wrong; the last is a statistic.
    let mut lines: Vec<_> = log
        .lines()
        .rev()
        .take(if cfg!(test) { 60 } else { 3 })
        .collect();
    lines.reverse();
    let reason = match again {
        Err(_) if !lines.is_empty() => lines.join("; "),
        _ => error.to_string(),
    };
    LoadRefusal::Refused {
        program: program.name.to_owned(),
        reason,
    }
}

fn refusal_of(name: &str) -> impl Fn(Errno) -> LoadRefusal {
    move |error| refusal(name, error)
}

fn refusal(name: &str, error: Errno) -> LoadRefusal {
    match error {
        Errno::PERM if is_locked_down() => LoadRefusal::LockedDown,
        Errno::PERM | Errno::ACCESS => LoadRefusal::NotPermitted,
        error => LoadRefusal::Refused {
            program: name.to_owned(),
            reason: error.to_string(),
        },
    }
}

fn is_locked_down() -> bool {
    let state = std::fs::read_to_string("/sys/kernel/security/lockdown");
    state.is_ok_and(|state| state.contains("[confidentiality]"))
}
