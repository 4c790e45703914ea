//! The heap of a Node program, as its copy has written it: which object holds a descriptor.
//!
//! Before the snapshot the copy writes one line for each object that owns an open descriptor
//! (`O`), for each container and each object that has the number of one (`P`), and the numbers that
//! were closed when garbage was collected in the copy (`C`). Each object has a name as a property
//! of the only `FdguardMarks` in the snapshot.

mod answer;
mod chain;
mod dominator;
mod number;
mod search;
mod snapshot;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use self::dominator::Retainers;
use self::snapshot::{NodeIndex, NodeKind, Snapshot};

/// The class whose only instance names objects.
const MARKS: &str = "FdguardMarks";
/// What precedes the snapshot.
const SNAPSHOT: &[u8] = b"\nS\n";

/// The heap of a Node program.
#[derive(Debug)]
pub struct NodeHeap {
    snapshot: Snapshot,
    retainers: Retainers,
    /// Which objects own a descriptor, with their class.
    owners: BTreeMap<u32, Vec<(NodeIndex, String)>>,
    /// Entries of containers.
    sizes: FxHashMap<NodeIndex, u64>,
    /// What has numbers of descriptors.
    places: Vec<NumberPlace>,
    /// Numbers that only garbage had.
    collected: Vec<u32>,
    global: Option<NodeIndex>,
    /// For each context a closure that has it.
    closures: FxHashMap<NodeIndex, NodeIndex>,
}

/// An object that has numbers of open descriptors.
#[derive(Clone, Debug)]
struct NumberPlace {
    object: NodeIndex,
    /// How many numbers it has.
    count: usize,
    /// Those that are open, with the property; empty for elements.
    numbers: Vec<(u32, String)>,
}

/// What a line says of a marked object.
struct Mark {
    name: String,
    owner: Option<(u32, String)>,
    size: Option<u64>,
    count: usize,
    numbers: Vec<(u32, String)>,
}

impl NodeHeap {
    /// Reads what a copy has written; an error says what went wrong in the copy.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut windows = bytes.windows(SNAPSHOT.len());
        let Some(start) = windows.position(|part| part == SNAPSHOT) else {
            let text = String::from_utf8_lossy(bytes);
            let error = text.lines().find_map(|line| line.strip_prefix("E\t"));
            return Err(error
                .unwrap_or("the copy has written no snapshot")
                .to_owned());
        };
        let head = bytes.get(..start).unwrap_or_default();
        let rest = bytes.get(start + SNAPSHOT.len()..).unwrap_or_default();
        let snapshot = Snapshot::parse(rest).ok_or("the snapshot is not whole")?;
        let text = String::from_utf8_lossy(head);
        let marks: Vec<Mark> = text.lines().filter_map(Mark::parse).collect();
        let collected = text.lines().find_map(|line| line.strip_prefix("C\t"));
        let collected = collected.unwrap_or_default().split(' ');
        let collected = collected.filter_map(|fd| fd.parse().ok()).collect();
        Ok(Self::new(snapshot, &marks, collected))
    }

    fn new(snapshot: Snapshot, marks: &[Mark], collected: Vec<u32>) -> Self {
        let ours = own_nodes(&snapshot);
        let retainers =
            Retainers::new(&snapshot, |node, at| is_holding(&snapshot, &ours, node, at));
        let mut named: FxHashMap<&str, NodeIndex> = FxHashMap::default();
        for node in snapshot
            .indices()
            .filter(|node| snapshot.name(*node) == MARKS)
        {
            for edge in snapshot.edges(node) {
                named.insert(snapshot.edge_name(edge), edge.to);
            }
        }
        let mut owners: BTreeMap<u32, Vec<(NodeIndex, String)>> = BTreeMap::new();
        let mut sizes = FxHashMap::default();
        let mut places = Vec::new();
        for mark in marks {
            let Some(object) = named.get(mark.name.as_str()).copied() else {
                continue;
            };
            if let Some((fd, class)) = &mark.owner {
                owners.entry(*fd).or_default().push((object, class.clone()));
            }
            sizes.extend(mark.size.map(|size| (object, size)));
            if !mark.numbers.is_empty() {
                places.push(NumberPlace {
                    object,
                    count: mark.count,
                    numbers: mark.numbers.clone(),
                });
            }
        }
        let mut closures = FxHashMap::default();
        for node in snapshot.indices() {
            if snapshot.kind(node) == NodeKind::Closure
                && let Some(context) = snapshot.target(node, "context")
            {
                closures.entry(context).or_insert(node);
            }
        }
        let mut globals = snapshot.indices();
        let global = globals.find(|node| {
            snapshot.kind(*node) == NodeKind::Object
                && snapshot.name(*node).split(' ').next() == Some("global")
                && snapshot.target(*node, "process").is_some()
        });
        Self {
            snapshot,
            retainers,
            owners,
            sizes,
            places,
            collected,
            global,
            closures,
        }
    }

    /// How many objects there are.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.snapshot.len()
    }

    /// Whether variables of this context are a module's.
    fn is_module_context(&self, context: NodeIndex) -> bool {
        let previous = self.snapshot.target(context, "previous");
        previous.is_none_or(|previous| self.snapshot.name(previous) == "system / NativeContext")
    }

    /// The script of a context.
    fn context_file(&self, context: NodeIndex) -> String {
        let closure = self.closures.get(&context);
        closure.map_or_else(String::new, |closure| self.closure_file(*closure))
    }

    /// The script of a function.
    fn closure_file(&self, closure: NodeIndex) -> String {
        let script = self.snapshot.target(closure, "shared").and_then(|shared| {
            let script = self.snapshot.target(shared, "script");
            script.or_else(|| self.snapshot.target(shared, "script_or_debug_info"))
        });
        let name = script.map_or("", |script| self.snapshot.name(script));
        name.strip_prefix("file://").unwrap_or(name).to_owned()
    }

    /// The file of a CommonJS module.
    fn module_file(&self, module: NodeIndex) -> String {
        let name = self.snapshot.target(module, "filename");
        let name = name.or_else(|| self.snapshot.target(module, "id"));
        name.map_or_else(String::new, |name| self.snapshot.name(name).to_owned())
    }
}

impl Mark {
    /// `O`, name, number, class; or `P`, name, entries, how many numbers, and the open ones.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let kind = parts.next()?;
        let mut mark = Self {
            name: parts.next()?.to_owned(),
            owner: None,
            size: None,
            count: 0,
            numbers: Vec::new(),
        };
        match kind {
            "O" => mark.owner = Some((parts.next()?.parse().ok()?, parts.next()?.to_owned())),
            "P" => {
                mark.size = parts.next()?.parse().ok();
                mark.count = parts.next()?.parse().ok()?;
                for number in parts {
                    let (fd, key) = number.split_once('=')?;
                    mark.numbers.push((fd.parse().ok()?, key.to_owned()));
                }
            }
            _ => return None,
        }
        Some(mark)
    }
}

/// What the copy itself has made: the marks and their table.
fn own_nodes(snapshot: &Snapshot) -> FxHashSet<NodeIndex> {
    let mut ours = FxHashSet::default();
    for node in snapshot.indices() {
        if snapshot.name(node) == MARKS && snapshot.kind(node) == NodeKind::Object {
            ours.insert(node);
            ours.extend(snapshot.target(node, "properties"));
        }
    }
    ours
}

/// Whether an edge keeps its target alive, and is not said twice.
fn is_holding(
    snapshot: &Snapshot,
    ours: &FxHashSet<NodeIndex>,
    node: NodeIndex,
    at: usize,
) -> bool {
    let Some(edge) = snapshot.edge(at) else {
        return false;
    };
    let (class, name) = (snapshot.name(node), snapshot.edge_name(edge));
    if ours.contains(&node) || class == "Node / CleanupQueue" {
        return false;
    }
    match snapshot.kind(node) {
        // The object has the same edges with their names. In a table of weak keys a value lives as
        // long as its key, which has an edge to it.
        NodeKind::Array => {
            class != "(object elements)"
                && class != "(object properties)"
                && !name.contains("pair in WeakMap")
        }
        // Every object leads to its class, and the class to all that its functions know.
        NodeKind::Object => name != "__proto__" && name != "map",
        _ => true,
    }
}
