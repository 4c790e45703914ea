//! Names of classes, fields, threads and methods, and which field an index means.

use std::cell::RefCell;
use std::rc::Rc;

use fdguard_wire::JavaEdge;
use rustc_hash::{FxHashMap, FxHashSet};

use super::STATIC_FIELD;

const STATIC: u8 = 1;
const REFERENCE: u8 = 2;
/// More superclasses than any class has.
const DEEPEST: usize = 128;

#[derive(Debug, Default)]
struct Class {
    above: u32,
    interfaces: Vec<u32>,
    /// `com/example/Main`; of an array the signature.
    name: String,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    flags: u8,
}

/// The fields of a class with those of its superclasses, in the order of their indexes.
#[derive(Debug, Default)]
struct AllFields {
    /// The index of the first.
    first: u32,
    /// The class that declares it, and its place there.
    fields: Vec<(u32, usize)>,
    /// Indexes of fields that hold nothing.
    weak: Vec<u32>,
}

/// A place in a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JavaMethod {
    /// `com/example/Main`.
    pub(super) class: String,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: Option<u32>,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Names {
    classes: FxHashMap<u32, Class>,
    threads: FxHashMap<u32, String>,
    methods: FxHashMap<(u64, u64), JavaMethod>,
    all_fields: RefCell<FxHashMap<u32, Rc<AllFields>>>,
    /// Whether the index of a static field counts only those of its own class (before JDK 22).
    is_static_local: bool,
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn short(&mut self) -> Option<usize> {
        self.array().map(u16::from_le_bytes).map(usize::from)
    }

    fn tag(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Option<String> {
        let length = self.short()?;
        let (name, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

impl Names {
    /// Reads what can be read.
    pub(super) fn read(text: &[u8]) -> Self {
        let mut names = Self::default();
        let mut bytes = Bytes(text);
        while names.read_one(&mut bytes).is_some() {}
        names
    }

    fn read_one(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        match bytes.byte()? {
            b'C' => {
                let (tag, above) = (bytes.tag()?, bytes.tag()?);
                let mut class = Class {
                    above,
                    ..Class::default()
                };
                for _ in 0..bytes.short()? {
                    class.interfaces.push(bytes.tag()?);
                }
                class.name = plain(&bytes.name()?);
                for _ in 0..bytes.short()? {
                    let flags = bytes.byte()?;
                    let name = bytes.name()?;
                    class.fields.push(Field { name, flags });
                }
                self.classes.insert(tag, class);
            }
            b'T' => {
                let tag = bytes.tag()?;
                self.threads.insert(tag, bytes.name()?);
            }
            b'M' => {
                let place = (bytes.word()?, bytes.word()?);
                let method = JavaMethod {
                    class: plain(&bytes.name()?),
                    name: bytes.name()?,
                    file: bytes.name()?,
                    line: bytes.tag().filter(|line| *line != 0),
                };
                self.methods.insert(place, method);
            }
            _ => return None,
        }
        Some(())
    }

    /// Finds out how this JVM counts static fields, from those that hold something.
    pub(super) fn settle(&mut self, edges: &[JavaEdge]) {
        let mut votes = [0_usize; 2];
        for edge in edges.iter().filter(|edge| edge.kind() == STATIC_FIELD) {
            for (vote, is_local) in votes.iter_mut().zip([false, true]) {
                let field = self.static_of(edge.from, edge.index(), is_local);
                *vote += usize::from(field.is_some());
            }
        }
        let [spec, local] = votes;
        self.is_static_local = local >= spec;
    }

    pub(super) fn class(&self, tag: u32) -> &str {
        self.classes.get(&tag).map_or("", |class| &class.name)
    }

    pub(super) fn thread(&self, tag: u32) -> Option<&str> {
        self.threads.get(&tag).map(String::as_str)
    }

    pub(super) fn method(&self, method: u64, location: u64) -> Option<&JavaMethod> {
        self.methods.get(&(method, location))
    }

    /// A class and its superclasses, the class first.
    pub(super) fn lineage(&self, tag: u32) -> Vec<u32> {
        let mut line = Vec::new();
        let mut at = tag;
        while line.len() < DEEPEST {
            let Some(class) = self.classes.get(&at) else {
                break;
            };
            line.push(at);
            at = class.above;
        }
        line
    }

    pub(super) fn is_a(&self, tag: u32, name: &str) -> bool {
        self.lineage(tag)
            .iter()
            .any(|class| self.class(*class) == name)
    }

    /// The static field of a class.
    pub(super) fn static_field(&self, class: u32, index: u32) -> Option<&str> {
        self.static_of(class, index, self.is_static_local)
    }

    fn static_of(&self, class: u32, index: u32, is_local: bool) -> Option<&str> {
        let is_held = |field: &&Field| field.flags & STATIC != 0 && field.flags & REFERENCE != 0;
        let (declaring, at) = match is_local {
            true => (class, usize::try_from(index).ok()?),
            false => self.place(class, index)?,
        };
        let field = self.classes.get(&declaring)?.fields.get(at);
        field.filter(is_held).map(|field| field.name.as_str())
    }

    /// The instance field of a class or its superclasses.
    pub(super) fn field(&self, class: u32, index: u32) -> Option<&str> {
        let (declaring, at) = self.place(class, index)?;
        let field = self.classes.get(&declaring)?.fields.get(at)?;
        Some(field.name.as_str()).filter(|_| field.flags & STATIC == 0)
    }

    /// Whether a field keeps nothing alive.
    pub(super) fn is_weak(&self, class: u32, index: u32) -> bool {
        self.all(class).weak.contains(&index)
    }

    fn place(&self, class: u32, index: u32) -> Option<(u32, usize)> {
        let all = self.all(class);
        let at = usize::try_from(index.checked_sub(all.first)?).ok()?;
        all.fields.get(at).copied()
    }

    fn all(&self, class: u32) -> Rc<AllFields> {
        if let Some(known) = self.all_fields.borrow().get(&class) {
            return Rc::clone(known);
        }
        let all = Rc::new(self.gather(class));
        self.all_fields.borrow_mut().insert(class, Rc::clone(&all));
        all
    }

    /// Fields of all interfaces come first, then those of the superclasses, then its own.
    fn gather(&self, class: u32) -> AllFields {
        let line = self.lineage(class);
        let mut interfaces: FxHashSet<u32> = FxHashSet::default();
        let mut next: Vec<u32> = Vec::new();
        for one in line.iter().filter_map(|tag| self.classes.get(tag)) {
            next.extend(&one.interfaces);
        }
        let mut before = 0;
        while let Some(tag) = next.pop() {
            if let Some(one) = self.classes.get(&tag).filter(|_| interfaces.insert(tag)) {
                before += one.fields.len();
                next.extend(&one.interfaces);
            }
        }
        let mut all = AllFields {
            first: u32::try_from(before).unwrap_or(u32::MAX),
            ..AllFields::default()
        };
        for tag in line.iter().rev() {
            let count = self.classes.get(tag).map_or(0, |one| one.fields.len());
            all.fields.extend((0..count).map(|at| (*tag, at)));
        }
        for (index, (declaring, at)) in (all.first..).zip(&all.fields) {
            if self.is_weak_field(class, *declaring, *at) {
                all.weak.push(index);
            }
        }
        all
    }

    fn is_weak_field(&self, class: u32, declaring: u32, at: usize) -> bool {
        let field = self
            .classes
            .get(&declaring)
            .and_then(|one| one.fields.get(at));
        let Some(field) = field else {
            return false;
        };
        match self.class(declaring) {
            // A soft reference holds what it refers to until memory is short.
            "java/lang/ref/Reference" if field.name == "referent" => {
                !self.is_a(class, "java/lang/ref/SoftReference")
            }
            "java/lang/ref/Reference" => field.name == "discovered",
            "jdk/internal/ref/Cleaner" | "sun/misc/Cleaner" => field.name == "thunk",
            "java/lang/ref/FinalReference" | "java/lang/Object" => false,
            // What a cleaner does at the end holds the descriptor's object, but is no reason.
            _ => {
                let is_list = matches!(field.name.as_str(), "list" | "prev" | "next");
                !is_list && self.is_a(class, "jdk/internal/ref/PhantomCleanable")
            }
        }
    }
}

/// `Lcom/example/Main;` as `com/example/Main`.
fn plain(signature: &str) -> String {
    let inner = signature
        .strip_prefix('L')
        .and_then(|name| name.strip_suffix(';'));
    inner.unwrap_or(signature).to_owned()
}
