//! The heap of a JVM: what its walker has recorded, and the answer from it.
//!
//! The records are not trusted: a tag may be any number, and every loop is bounded.

mod answer;
mod chain;
mod names;
mod owner;
mod search;

use std::cell::RefCell;

use fdguard_wire::{JavaEdge, JavaNumber, JavaRoot};
use rustc_hash::FxHashMap;

use self::names::Names;

/// Kinds of references, as JVMTI numbers them.
const FIELD: u32 = 2;
const ELEMENT: u32 = 3;
const STATIC_FIELD: u32 = 8;

/// The records of a walk, as the walker left them.
#[derive(Debug, Default)]
pub struct JavaRecords {
    /// The class of each object by its tag, 0 if it was not reached.
    pub nodes: Vec<u32>,
    /// References.
    pub edges: Vec<JavaEdge>,
    /// What lives by itself.
    pub roots: Vec<JavaRoot>,
    /// Numbers in objects that own descriptors.
    pub numbers: Vec<JavaNumber>,
    /// Names.
    pub text: Vec<u8>,
    /// Tags up to this one are classes.
    pub classes: u64,
    /// Whether there was no room for everything.
    pub is_partial: bool,
}

/// The objects of a JVM and their references.
#[derive(Debug)]
pub struct JavaHeap {
    nodes: Vec<u32>,
    edges: Vec<JavaEdge>,
    /// The edges in the order of their holders, and where those of each begin.
    out_starts: Vec<u32>,
    out: Vec<u32>,
    /// The same in the order of what they hold.
    in_starts: Vec<u32>,
    holders: Vec<u32>,
    roots: FxHashMap<u32, Vec<JavaRoot>>,
    numbers: Vec<JavaNumber>,
    names: Names,
    classes: u32,
    is_reached: Vec<bool>,
    is_partial: bool,
    sizes: RefCell<FxHashMap<u32, u64>>,
}

impl JavaHeap {
    /// Reads the records.
    #[must_use]
    pub fn new(records: JavaRecords) -> Self {
        let JavaRecords {
            nodes, mut edges, ..
        } = records;
        edges.retain(|edge| {
            let is_node = |tag: u32| usize::try_from(tag).is_ok_and(|tag| tag < nodes.len());
            is_node(edge.from) && is_node(edge.to)
        });
        let mut names = Names::read(&records.text);
        names.settle(&edges);
        let (out_starts, out) = sorted(&edges, nodes.len(), |edge| edge.from);
        let (in_starts, holders) = sorted(&edges, nodes.len(), |edge| edge.to);
        let mut roots: FxHashMap<u32, Vec<JavaRoot>> = FxHashMap::default();
        for root in records.roots {
            if let Ok(to) = u32::try_from(root.to) {
                roots.entry(to).or_default().push(root);
            }
        }
        let mut heap = Self {
            nodes,
            edges,
            out_starts,
            out,
            in_starts,
            holders,
            roots,
            numbers: records.numbers,
            names,
            classes: u32::try_from(records.classes).unwrap_or(u32::MAX),
            is_reached: Vec::new(),
            is_partial: records.is_partial,
            sizes: RefCell::default(),
        };
        heap.is_reached = heap.reach();
        heap
    }

    /// How many objects were reached.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.nodes.iter().filter(|class| **class != 0).count()
    }

    /// Whether there was no room for everything.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn class_of(&self, object: u32) -> u32 {
        let class = usize::try_from(object)
            .ok()
            .and_then(|at| self.nodes.get(at));
        class.copied().unwrap_or(0)
    }

    /// `com/example/Main`.
    fn class_name(&self, object: u32) -> &str {
        self.names.class(self.class_of(object))
    }

    fn edges_from(&self, object: u32) -> impl Iterator<Item = JavaEdge> {
        part(&self.out_starts, &self.out, object)
            .iter()
            .filter_map(|at| self.edge(*at))
    }

    fn edges_to(&self, object: u32) -> impl Iterator<Item = JavaEdge> {
        part(&self.in_starts, &self.holders, object)
            .iter()
            .filter_map(|at| self.edge(*at))
    }

    fn edge(&self, at: u32) -> Option<JavaEdge> {
        self.edges.get(usize::try_from(at).ok()?).copied()
    }

    fn is_class(&self, object: u32) -> bool {
        object != 0 && object <= self.classes
    }

    /// Whether an edge keeps what it leads to alive: references of the collector and of cleaners
    /// do not.
    fn is_strong(&self, edge: JavaEdge) -> bool {
        edge.kind() != FIELD || !self.names.is_weak(self.class_of(edge.from), edge.index())
    }

    /// Whether something that lives by itself holds an object.
    fn is_reachable(&self, object: u32) -> bool {
        let at = usize::try_from(object).ok();
        at.and_then(|at| self.is_reached.get(at)) == Some(&true)
    }

    fn reach(&self) -> Vec<bool> {
        let mut is_reached = vec![false; self.nodes.len()];
        let mut next: Vec<u32> = self.roots.keys().copied().collect();
        let classes = self
            .classes
            .min(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        // A class lives as long as its loader, which is the program's business.
        next.extend((1..=classes).filter(|class| self.class_of(*class) != 0));
        while let Some(object) = next.pop() {
            let place = usize::try_from(object).ok();
            let Some(place) = place.and_then(|at| is_reached.get_mut(at)) else {
                continue;
            };
            if std::mem::replace(place, true) {
                continue;
            }
            let strong = self.edges_from(object).filter(|edge| self.is_strong(*edge));
            next.extend(strong.map(|edge| edge.to));
        }
        is_reached
    }
}

/// The numbers of the edges, sorted by a key, and where each key begins.
fn sorted(edges: &[JavaEdge], keys: usize, key: impl Fn(&JavaEdge) -> u32) -> (Vec<u32>, Vec<u32>) {
    let place = |edge: &JavaEdge| usize::try_from(key(edge)).unwrap_or(0);
    let mut starts = vec![0_u32; keys + 2];
    for edge in edges {
        if let Some(count) = starts.get_mut(place(edge) + 2) {
            *count += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut order = vec![0; edges.len()];
    for (number, edge) in (0..).zip(edges) {
        if let Some(start) = starts.get_mut(place(edge) + 1) {
            let at = usize::try_from(*start).ok();
            if let Some(slot) = at.and_then(|at| order.get_mut(at)) {
                *slot = number;
            }
            *start += 1;
        }
    }
    (starts, order)
}

/// What belongs to a key.
fn part<'a>(starts: &[u32], order: &'a [u32], key: u32) -> &'a [u32] {
    let at = usize::try_from(key).unwrap_or(usize::MAX - 1);
    let start = |at: usize| {
        starts
            .get(at)
            .and_then(|start| usize::try_from(*start).ok())
    };
    match (start(at), start(at + 1)) {
        (Some(from), Some(to)) => order.get(from..to).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
