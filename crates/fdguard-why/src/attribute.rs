//! Attributes of an object: its dict, its table of values, its slots.

use crate::dict;
use crate::memory::Reader;
use crate::types::Type;

const MANAGED_DICT: u64 = 1 << 4;
const INLINE_VALUES: u64 = 1 << 2;
/// The size of an entry of a type's members.
const MEMBER: u64 = 40;
/// `Py_T_OBJECT_EX`, which `__slots__` makes.
const SLOT: i32 = 16;
/// The most members of a type.
const MOST_MEMBERS: u64 = 256;

/// Where an object keeps its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attributes {
    Dict(u64),
    /// A table of values without a dict.
    Values(u64),
}

/// Where an object of this type keeps its attributes now.
pub(crate) fn attributes(reader: &Reader<'_>, object: u64, of: &Type) -> Option<Attributes> {
    let minor = reader.at.minor();
    if minor >= 11 && of.flags & MANAGED_DICT != 0 {
        let dict = reader.word(object.checked_sub(24)?)?;
        return match minor {
            11 if dict == 0 => {
                let values = reader.word(object.checked_sub(32)?)?;
                (values != 0).then_some(Attributes::Values(values))
            }
            12 if dict & 1 != 0 => Some(Attributes::Values(dict + 1)),
            13 if dict == 0 && of.flags & INLINE_VALUES != 0 => {
                Some(Attributes::Values(object.checked_add(of.size)?))
            }
            _ => (dict != 0).then_some(Attributes::Dict(dict)),
        };
    }
    let offset = u64::try_from(of.dict_offset).ok().filter(|at| *at != 0)?;
    let dict = reader.pointer(object, offset)?;
    Some(Attributes::Dict(dict))
}

/// The name under which an object itself has a value.
pub(crate) fn name_of(reader: &Reader<'_>, object: u64, of: &Type, value: u64) -> Option<String> {
    let key = match attributes(reader, object, of) {
        Some(Attributes::Dict(dict)) => dict::key_of(reader, dict, value),
        Some(Attributes::Values(values)) => {
            let keys = reader.pointer(of.address, reader.at.type_keys);
            keys.and_then(|keys| dict::key_of_value(reader, keys, values, value))
        }
        None => None,
    };
    let key = key.and_then(|key| reader.text(key));
    key.or_else(|| slot_of(reader, object, of, value))
}

/// The value that an object has under a name.
pub(crate) fn get(reader: &Reader<'_>, object: u64, of: &Type, name: &str) -> Option<u64> {
    match attributes(reader, object, of)? {
        Attributes::Dict(dict) => dict::get(reader, dict, name),
        Attributes::Values(values) => {
            let keys = reader.pointer(of.address, reader.at.type_keys)?;
            dict::value_of(reader, keys, values, name)
        }
    }
}

/// The name of a slot.
fn slot_of(reader: &Reader<'_>, object: u64, of: &Type, value: u64) -> Option<String> {
    let mut slots = slots(reader, object, of).into_iter();
    let name = slots.find(|(_, held)| *held == value);
    name.and_then(|(name, _)| reader.c_string(name))
}

/// The slots of an object that hold something: where the name of each is, and what it holds.
fn slots(reader: &Reader<'_>, object: u64, of: &Type) -> Vec<(u64, u64)> {
    let mut slots = Vec::new();
    if !of.is_class() {
        return slots;
    }
    let flags = u64::from(reader.at.frames.type_flags);
    let is_class = |one: &&u64| {
        let flags = reader.field(**one, flags);
        flags.is_some_and(|flags| flags & (1 << 9) != 0)
    };
    for class in of.line.iter().filter(is_class) {
        let count = reader.field(*class, 16).unwrap_or(0);
        if count > MOST_MEMBERS {
            continue;
        }
        for member in 0..count {
            let slot = || {
                let at = class.checked_add(reader.at.type_size + member * MEMBER)?;
                let offset = reader.field(at, 16).filter(|offset| *offset < of.size)?;
                let is_slot = reader.int(at, 8)? == SLOT;
                let value = reader.pointer(object, offset).filter(|_| is_slot)?;
                Some((reader.pointer(at, 0)?, value))
            };
            slots.extend(slot());
        }
    }
    slots
}

/// The attributes of an object, by name.
pub(crate) fn names(reader: &Reader<'_>, object: u64, of: &Type) -> Vec<(String, u64)> {
    let pairs = match attributes(reader, object, of) {
        Some(Attributes::Dict(dict)) => dict::pairs(reader, dict),
        Some(Attributes::Values(values)) => {
            let keys = reader.pointer(of.address, reader.at.type_keys);
            keys.map_or_else(Vec::new, |keys| dict::value_pairs(reader, keys, values))
        }
        None => Vec::new(),
    };
    let named = pairs.into_iter();
    let mut named: Vec<(String, u64)> = named
        .filter_map(|(key, value)| Some((reader.text(key)?, value)))
        .collect();
    let slots = slots(reader, object, of).into_iter();
    named.extend(slots.filter_map(|(name, value)| Some((reader.c_string(name)?, value))));
    named
}
