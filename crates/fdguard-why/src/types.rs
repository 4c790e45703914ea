//! Types by address: what they are called, and what their objects are.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::dict;
use crate::layout::{TYPE_BASE, TYPE_BASIC_SIZE, TYPE_DICT, TYPE_DICT_OFFSET};
use crate::memory::Reader;

/// The longest line of bases.
const MOST_BASES: usize = 64;
const HEAP_TYPE: u64 = 1 << 9;
const TYPE_SUBCLASS: u64 = 1 << 31;

/// What an object is, as far as it has a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dict,
    List,
    Tuple,
    Set,
    Deque,
    Module,
    Function,
    Method,
    Builtin,
    Cell,
    Frame,
    Generator,
    Traceback,
    Type,
    Weak,
    Greenlet,
    Other,
}

/// How an object owns a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A C `int` at +16, and a bit that says whether it closes it.
    File,
    /// A C `int` at this offset.
    Number(u64),
    Sqlite,
    /// A cursor, which up to 3.10 does not tell the collector of its connection.
    Cursor,
    /// A pointer to a `DIR` somewhere in it.
    Directory,
    /// An attribute with this name.
    Attribute(&'static str),
}

/// A type.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) address: u64,
    /// As it is shown.
    pub(crate) name: String,
    /// The module of a class; empty if it has none.
    pub(crate) module: String,
    pub(crate) kind: Kind,
    pub(crate) owner: Option<Owner>,
    pub(crate) flags: u64,
    pub(crate) dict_offset: i64,
    pub(crate) size: u64,
    /// Itself and its bases.
    pub(crate) line: Vec<u64>,
}

impl Type {
    pub(crate) const fn is_class(&self) -> bool {
        self.flags & HEAP_TYPE != 0
    }
}

/// The types that were met.
#[derive(Debug, Default)]
pub(crate) struct Types {
    known: RefCell<FxHashMap<u64, Option<Rc<Type>>>>,
}

impl Types {
    /// The type at an address; `None` if there is none.
    pub(crate) fn get(&self, reader: &Reader<'_>, address: u64) -> Option<Rc<Type>> {
        if let Some(known) = self.known.borrow().get(&address) {
            return known.clone();
        }
        let found = read(reader, address).map(Rc::new);
        self.known.borrow_mut().insert(address, found.clone());
        found
    }
}

fn read(reader: &Reader<'_>, address: u64) -> Option<Type> {
    // The type of a type is a type whose flags say so.
    let of = reader.kind(address)?;
    let flags_at = u64::from(reader.at.frames.type_flags);
    if reader.field(of, flags_at)? & TYPE_SUBCLASS == 0 {
        return None;
    }
    let flags = reader.field(address, flags_at)?;
    let full = reader.c_string(reader.pointer(address, reader.at.frames.type_name.into())?)?;
    let mut line = vec![address];
    let mut names = vec![full.clone()];
    let mut base = reader.field(address, TYPE_BASE)?;
    while base != 0 && line.len() < MOST_BASES {
        line.push(base);
        let name = reader.pointer(base, reader.at.frames.type_name.into());
        names.extend(name.and_then(|name| reader.c_string(name)));
        base = reader.field(base, TYPE_BASE)?;
    }
    let module = module_of(reader, address, flags).unwrap_or_default();
    let (module, name) = match full.rsplit_once('.') {
        Some((module, name)) => (module.to_owned(), name.to_owned()),
        None => (module, full.clone()),
    };
    let kind = match flags & TYPE_SUBCLASS {
        0 => names.iter().find_map(|name| kind(name)),
        _ => Some(Kind::Type),
    };
    let is_connection =
        |name: &String| module == "multiprocessing.connection" && name == "Connection";
    let owner = match names.iter().find_map(|name| owner(name)) {
        None if is_connection(&name) => Some(Owner::Attribute("_handle")),
        owner => owner,
    };
    Some(Type {
        address,
        name: shown(&module, &name),
        module,
        kind: kind.unwrap_or(Kind::Other),
        owner,
        flags,
        dict_offset: reader.field(address, TYPE_DICT_OFFSET)?.cast_signed(),
        size: reader.field(address, TYPE_BASIC_SIZE)?,
        line,
    })
}

/// `__module__` of a class.
fn module_of(reader: &Reader<'_>, address: u64, flags: u64) -> Option<String> {
    if flags & HEAP_TYPE == 0 {
        return None;
    }
    let dict = reader.pointer(address, TYPE_DICT)?;
    let module = dict::get(reader, dict, "__module__")?;
    reader.text(module)
}

/// Classes of the program itself and of C are known by their name alone; others by the package.
fn shown(module: &str, name: &str) -> String {
    let package = module.split('.').next().unwrap_or_default();
    let is_plain = package.is_empty() || package.starts_with('_') || package == "builtins";
    match is_plain || ["collections", "select", "posix"].contains(&package) {
        true => name.to_owned(),
        false => format!("{package}.{name}"),
    }
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "dict" => Kind::Dict,
        "list" => Kind::List,
        "tuple" => Kind::Tuple,
        "set" | "frozenset" => Kind::Set,
        "collections.deque" => Kind::Deque,
        "module" => Kind::Module,
        "function" => Kind::Function,
        "method" => Kind::Method,
        "builtin_function_or_method" => Kind::Builtin,
        "cell" => Kind::Cell,
        "frame" => Kind::Frame,
        "generator" | "coroutine" | "async_generator" => Kind::Generator,
        "traceback" => Kind::Traceback,
        "weakref" | "weakref.ReferenceType" => Kind::Weak,
        "greenlet" | "greenlet.greenlet" | "_greenlet.greenlet" => Kind::Greenlet,
        _ => return None,
    })
}

fn owner(name: &str) -> Option<Owner> {
    Some(match name {
        "_io.FileIO" => Owner::File,
        "_socket.socket" | "select.epoll" => Owner::Number(16),
        "mmap.mmap" => Owner::Number(56),
        "sqlite3.Connection" => Owner::Sqlite,
        "sqlite3.Cursor" => Owner::Cursor,
        "posix.ScandirIterator" => Owner::Directory,
        _ => return None,
    })
}
