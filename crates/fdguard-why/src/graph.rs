//! The objects of a heap and who holds whom, and what the collector would take.

use fdguard_wire::{LISTS, NUMBER, ORIGIN_SHIFT, UNTRACKED, WalkNode};
use rustc_hash::FxHashMap;

/// The index of an object.
pub type Index = u32;

/// An object that was walked, or a leaf that one of those holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) address: u64,
    /// The address of its type; 0 for a leaf whose type was not read.
    pub(crate) kind: u64,
    /// References to it; 0 for a leaf.
    count: u64,
    /// Which list has it; [`UNTRACKED`] or above for none.
    origin: u64,
}

/// A heap.
#[derive(Debug, Default)]
pub struct Graph {
    pub(crate) objects: Vec<Object>,
    index: FxHashMap<u64, Index>,
    /// How many of the objects were walked: the rest are leaves.
    pub(crate) walked: usize,
    /// Where the references of each walked object end.
    ends: Vec<usize>,
    targets: Vec<Index>,
    /// Where the holders of each object begin.
    starts: Vec<usize>,
    holders: Vec<Index>,
    /// Which number is held by which object.
    pub(crate) numbers: Vec<(u32, Index)>,
}

/// A leaf.
const LEAF: u64 = UNTRACKED + 1;
/// Counts from here on mean an object that lives for ever.
const IMMORTAL: u64 = 1 << 30;

impl Graph {
    /// From what the walker left. What does not fit is left out.
    #[must_use]
    pub fn new(nodes: &[WalkNode], edges: &[u64]) -> Self {
        let mut graph = Self::default();
        for node in nodes {
            let next = Index::try_from(graph.objects.len()).unwrap_or(Index::MAX);
            if next == Index::MAX {
                break;
            }
            graph.index.entry(node.address).or_insert(next);
            graph.objects.push(Object {
                address: node.address,
                kind: node.kind,
                count: node.count & 0xffff_ffff,
                origin: (node.end >> ORIGIN_SHIFT).min(UNTRACKED),
            });
        }
        graph.walked = graph.objects.len();
        graph.add_edges(nodes, edges);
        graph.turn();
        graph
    }

    fn add_edges(&mut self, nodes: &[WalkNode], edges: &[u64]) {
        let mut begin = 0;
        for (holder, node) in (0..).zip(nodes.iter().take(self.walked)) {
            let end = node.end & !(u64::MAX << ORIGIN_SHIFT);
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            let end = end.clamp(begin, edges.len());
            for edge in edges.get(begin..end).unwrap_or_default() {
                if edge & NUMBER != 0 {
                    let number = u32::try_from(edge & !NUMBER).unwrap_or(u32::MAX);
                    self.numbers.push((number, holder));
                } else if let Some(target) = self.object_at(*edge) {
                    self.targets.push(target);
                }
            }
            self.ends.push(self.targets.len());
            begin = end;
        }
    }

    /// The object at an address; a leaf is added if there is none.
    fn object_at(&mut self, address: u64) -> Option<Index> {
        if let Some(known) = self.index.get(&address) {
            return Some(*known);
        }
        let next = Index::try_from(self.objects.len()).ok()?;
        self.index.insert(address, next);
        self.objects.push(Object {
            address,
            kind: 0,
            count: 0,
            origin: LEAF,
        });
        Some(next)
    }

    /// Adds objects that a frame holds and no object does.
    pub(crate) fn add_leaves(&mut self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            self.object_at(address);
        }
        self.starts
            .resize(self.objects.len() + 1, self.holders.len());
    }

    /// Who holds whom, from the other end.
    fn turn(&mut self) {
        let mut starts = vec![0; self.objects.len() + 1];
        for target in &self.targets {
            if let Some(count) = starts.get_mut(*target as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        self.holders = vec![0; self.targets.len()];
        for holder in 0..self.walked {
            for target in range(&self.ends, holder).filter_map(|at| self.targets.get(at)) {
                let place = next.get_mut(*target as usize);
                if let Some(place) = place {
                    if let Some(entry) = self.holders.get_mut(*place) {
                        *entry = Index::try_from(holder).unwrap_or(Index::MAX);
                    }
                    *place += 1;
                }
            }
        }
        self.starts = starts;
    }

    pub(crate) fn index_of(&self, address: u64) -> Option<Index> {
        self.index.get(&address).copied()
    }

    pub(crate) fn address(&self, object: Index) -> u64 {
        self.objects
            .get(object as usize)
            .map_or(0, |one| one.address)
    }

    pub(crate) fn is_walked(&self, object: Index) -> bool {
        (object as usize) < self.walked
    }

    /// The objects that hold one, each as often as it does.
    pub(crate) fn holders(&self, object: Index) -> &[Index] {
        let at = object as usize;
        let (start, end) = (self.starts.get(at), self.starts.get(at + 1));
        let range = start.zip(end).map(|(start, end)| *start..*end);
        range
            .and_then(|range| self.holders.get(range))
            .unwrap_or_default()
    }

    /// The objects that one holds.
    pub(crate) fn targets(&self, object: Index) -> &[Index] {
        if !self.is_walked(object) {
            return &[];
        }
        self.targets
            .get(range(&self.ends, object as usize))
            .unwrap_or_default()
    }

    /// How many references to an object no walked object has; `None` if that is not known.
    pub(crate) fn unexplained(&self, object: Index) -> Option<u64> {
        let one = self.objects.get(object as usize)?;
        if one.origin == LEAF || one.count >= IMMORTAL {
            return None;
        }
        Some(one.count.saturating_sub(self.holders(object).len() as u64))
    }

    /// Which objects a full collection would take, by the collector's own subtraction. Leaves are
    /// not among them.
    #[must_use]
    pub fn unreachable(&self) -> Vec<bool> {
        let is_collected = |object: &Object| object.origin < (LISTS - 1) as u64;
        let mut outside: Vec<u64> = self.objects.iter().map(|one| one.count).collect();
        for holder in 0..self.walked {
            if self
                .objects
                .get(holder)
                .is_none_or(|one| !is_collected(one))
            {
                continue;
            }
            for target in range(&self.ends, holder).filter_map(|at| self.targets.get(at)) {
                if let Some(count) = outside.get_mut(*target as usize) {
                    *count = count.saturating_sub(1);
                }
            }
        }
        let mut is_garbage: Vec<bool> = self.objects.iter().map(is_collected).collect();
        let mut spread: Vec<usize> = Vec::new();
        for (at, object) in self.objects.iter().enumerate() {
            let is_held = outside.get(at).is_some_and(|count| *count > 0);
            if is_collected(object) && (is_held || object.count >= IMMORTAL) {
                spread.push(at);
            }
        }
        while let Some(at) = spread.pop() {
            let Some(mark) = is_garbage.get_mut(at).filter(|mark| **mark) else {
                continue;
            };
            *mark = false;
            let targets = range(&self.ends, at).filter_map(|at| self.targets.get(at));
            spread.extend(targets.map(|target| *target as usize));
        }
        is_garbage
    }

    /// How many objects were walked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.walked
    }

    /// Whether nothing was walked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.walked == 0
    }
}

/// Where the references of an object are.
fn range(ends: &[usize], at: usize) -> std::ops::Range<usize> {
    let start = at.checked_sub(1).and_then(|before| ends.get(before));
    let end = ends.get(at).copied().unwrap_or(0);
    start.copied().unwrap_or(0).min(end)..end
}
