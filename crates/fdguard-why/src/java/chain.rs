//! A way in words: collections are folded to one holder, wrappers of the JDK to the outermost.

use fdguard_wire::JavaEdge;
use rustc_hash::FxHashSet;

use super::search::{JavaLife, JavaWay, is_jdk};
use super::{ELEMENT, FIELD, JavaHeap};
use crate::hop::Hop;

/// Classes that the JVM makes for lambdas.
const LAMBDA: &str = "$$Lambda";
/// Objects that are looked at to count the entries of a collection.
const MOST_COUNTED: usize = 1_000_000;
/// What the classes of the parts of a collection end with.
const PARTS: [&str; 8] = [
    "Node",
    "Entry",
    "TreeBin",
    "Segment",
    "Itr",
    "HashIterator",
    "Table",
    "Index",
];
/// Classes that are collections and have no superclass that says so.
const COLLECTIONS: [&str; 4] = [
    "java/util/concurrent/CopyOnWriteArrayList",
    "java/util/AbstractCollection",
    "java/util/AbstractMap",
    "java/util/Dictionary",
];

/// A holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JavaHop {
    pub(super) hop: Hop,
    /// Whether it is an object of the JDK, and no collection.
    is_wrapper: bool,
}

impl JavaHop {
    fn container(class: &str, entries: Option<u64>) -> Self {
        let hop = Hop::Container {
            class: display(class),
            entries,
            key: None,
        };
        Self {
            hop,
            is_wrapper: false,
        }
    }

    /// Without what differs from one descriptor to the next.
    pub(super) fn shape(&self) -> Self {
        Self {
            hop: self.hop.shape(),
            is_wrapper: self.is_wrapper,
        }
    }

    /// What two holders of one shape have in common.
    pub(super) fn common(self, other: &Self) -> Self {
        Self {
            hop: self.hop.common(&other.hop),
            is_wrapper: self.is_wrapper,
        }
    }
}

impl JavaHeap {
    /// The holders on a way, the one next to the owner first.
    pub(super) fn hops(&self, way: &JavaWay) -> Vec<JavaHop> {
        let mut hops: Vec<JavaHop> = Vec::new();
        for (at, edge) in way.path.iter().enumerate() {
            let next = way.path.get(at + 1).map(|edge| edge.from);
            self.add_hop(&mut hops, *edge, next);
        }
        // The thread is named as what lives.
        if matches!(way.life, JavaLife::ThreadLocal { .. }) {
            hops.pop();
        }
        hops
    }

    fn add_hop(&self, hops: &mut Vec<JavaHop>, edge: JavaEdge, next: Option<u32>) {
        let class = self.class_name(edge.from);
        if class.starts_with('[') {
            let is_inner = |next| self.is_collection(next) || self.is_part(next);
            if !next.is_some_and(is_inner) {
                let elements = self.edges_from(edge.from);
                let count = elements.filter(|edge| edge.kind() == ELEMENT).count();
                hops.push(JavaHop::container(class, u64::try_from(count).ok()));
            }
            return;
        }
        if self.is_part(edge.from) {
            return;
        }
        if self.is_collection(edge.from) {
            let is_around = edge.kind() == FIELD && self.is_collection(edge.to) && is_jdk(class);
            let inner = hops.pop_if(|last| is_around && matches!(last.hop, Hop::Container { .. }));
            let entries = match inner.map(|inner| inner.hop) {
                Some(Hop::Container { entries, .. }) => entries,
                _ => Some(self.size(edge.from)),
            };
            hops.push(JavaHop::container(class, entries));
            return;
        }
        let field = self.names.field(self.class_of(edge.from), edge.index());
        let field = field.filter(|_| edge.kind() == FIELD && !class.contains(LAMBDA));
        let hop = Hop::Object {
            class: display(class),
            attribute: field.map(str::to_owned),
        };
        let is_wrapper = is_jdk(class);
        // One class may hold itself: a chain of filters.
        let is_same = hops.last().is_some_and(|last| last.hop == hop);
        if !is_same {
            hops.push(JavaHop { hop, is_wrapper });
        }
    }

    /// Whether an object is a part of a collection.
    fn is_part(&self, object: u32) -> bool {
        let class = self.class_name(object);
        let is_nested = class.starts_with("java/util/") && class.contains('$');
        class.starts_with("java/lang/ThreadLocal$")
            || (is_nested && PARTS.iter().any(|part| class.ends_with(part)))
    }

    fn is_collection(&self, object: u32) -> bool {
        let class = self.class_of(object);
        self.class_name(object)
            .starts_with("java/util/Collections$")
            || COLLECTIONS.iter().any(|name| self.names.is_a(class, name))
    }

    /// How many entries a collection has that hold an object.
    fn size(&self, collection: u32) -> u64 {
        if let Some(known) = self.sizes.borrow().get(&collection) {
            return *known;
        }
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut next = vec![collection];
        let (mut nodes, mut elements) = (0, 0);
        while let Some(object) = next.pop() {
            if !seen.insert(object) || seen.len() > MOST_COUNTED {
                continue;
            }
            let is_array = self.class_name(object).starts_with('[');
            let mut is_entry = false;
            for edge in self.edges_from(object) {
                // What an EnumMap has of its keys is all of them.
                let field = self.names.field(self.class_of(object), edge.index());
                if edge.kind() == FIELD && field == Some("keyUniverse") {
                    continue;
                }
                let is_array_too = self.class_name(edge.to).starts_with('[');
                let is_inner = self.is_part(edge.to) || (is_array_too && !is_array);
                match (edge.kind(), is_inner) {
                    (FIELD | ELEMENT, true) => next.push(edge.to),
                    (ELEMENT, false) => elements += 1,
                    (FIELD, false) => is_entry = true,
                    _ => {}
                }
            }
            nodes += u64::from(is_entry && object != collection && self.is_part(object));
        }
        let size = if nodes > 0 { nodes } else { elements };
        self.sizes.borrow_mut().insert(collection, size);
        size
    }
}

impl JavaLife {
    /// In words.
    pub(super) fn text(&self) -> String {
        let of_thread = |thread: &Option<String>| {
            let thread = thread.as_ref();
            thread.map_or_else(String::new, |name| format!(" of thread \"{name}\""))
        };
        match self {
            Self::Static { class, field } => match field {
                Some(field) => format!("{}.{field}", full(class)),
                None => format!("a static field of {}", full(class)),
            },
            Self::ThreadLocal { thread } => format!("a thread local{}", of_thread(thread)),
            Self::Slot {
                slot,
                method,
                thread,
            } => {
                let method = method.as_ref().map_or_else(String::new, |method| {
                    let line = method
                        .line
                        .map_or_else(String::new, |line| format!(":{line}"));
                    let (class, name) = (full(&method.class), &method.name);
                    format!(" of {class}.{name}() {}{line}", method.file)
                });
                let thread = thread.as_ref();
                let thread =
                    thread.map_or_else(String::new, |name| format!(" in thread \"{name}\""));
                format!("slot {slot}{method}{thread}")
            }
            Self::Thread { name } => match name {
                Some(name) => format!("thread \"{name}\""),
                None => "a thread".to_owned(),
            },
            Self::Native => "a JNI global reference".to_owned(),
            Self::NativeFrame { thread } => format!("a JNI local reference{}", of_thread(thread)),
            Self::Machine(what) => (*what).to_owned(),
        }
    }

    /// Without what differs from one thread to the next.
    pub(super) fn shape(&self) -> Self {
        match self.clone() {
            Self::ThreadLocal { .. } => Self::ThreadLocal { thread: None },
            Self::Slot { slot, method, .. } => Self::Slot {
                slot,
                method: method.map(|method| super::names::JavaMethod {
                    line: None,
                    ..method
                }),
                thread: None,
            },
            Self::Thread { .. } => Self::Thread { name: None },
            Self::NativeFrame { .. } => Self::NativeFrame { thread: None },
            other => other,
        }
    }
}

/// A chain in words.
pub(super) fn text(count: usize, owner: &str, hops: &[JavaHop], life: &JavaLife) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = hops.iter().peekable();
    // What the JDK wraps around a descriptor is shown as the outermost of it.
    let mut wrapper = owner.to_owned();
    while let Some(one) = rest.next_if(|one| one.is_wrapper) {
        if let Hop::Object { class, .. } = &one.hop {
            wrapper.clone_from(class);
        }
    }
    words.push(wrapper);
    while let Some(one) = rest.next() {
        let is_inner = one.is_wrapper && rest.peek().is_some_and(|next| next.is_wrapper);
        if !is_inner {
            words.push(one.hop.text());
        }
    }
    let count = match count {
        1 => String::new(),
        count => format!("{count} "),
    };
    format!("held by {count}{} ← {}", words.join(" ← "), life.text())
}

/// `com.example.Main`, as it is in a stack trace.
fn full(class: &str) -> String {
    class.replace('/', ".")
}

/// A class of the JDK without its package, others with it; a lambda by its class.
fn display(class: &str) -> String {
    if let Some(element) = class.strip_prefix('[') {
        let inner = element
            .strip_prefix('L')
            .and_then(|name| name.strip_suffix(';'));
        return format!("{}[]", display(inner.unwrap_or(element)));
    }
    if let Some((of, _)) = class.split_once(LAMBDA) {
        return format!("lambda of {}", display(of));
    }
    match class.rsplit_once('/') {
        Some((_, name)) if is_jdk(class) => name.replace('$', "."),
        _ => full(class),
    }
}

pub(super) fn display_class(class: &str) -> String {
    match class {
        "" => "object".to_owned(),
        class => display(class),
    }
}
