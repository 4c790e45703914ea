//! Which node every way from the roots to another one passes: what dies with it is no reason for
//! it.

use super::snapshot::{EdgeKind, NodeIndex, Snapshot};

const NONE: u32 = u32::MAX;

/// The edges that keep something alive, by what they hold, and which node passes for which.
#[derive(Debug, Default)]
pub(crate) struct Retainers {
    /// For each node the first of its edges in `edges`.
    starts: Vec<u32>,
    /// The holder and the position of the edge.
    edges: Vec<(NodeIndex, u32)>,
    /// When the walk through the tree of dominators enters and leaves each node; `NONE` for
    /// garbage.
    entered: Vec<u32>,
    left: Vec<u32>,
}

impl Retainers {
    /// Of all edges for which `is_holding` is true.
    pub(crate) fn new(snapshot: &Snapshot, is_holding: impl Fn(NodeIndex, usize) -> bool) -> Self {
        let mut kept = vec![
            false;
            snapshot
                .indices()
                .map(|node| snapshot.edges(node).len())
                .sum()
        ];
        let mut starts = vec![0_u32; snapshot.len() + 1];
        for node in snapshot.indices() {
            for at in snapshot.edge_range(node) {
                let Some(edge) = snapshot.edge(at) else {
                    continue;
                };
                if edge.kind != EdgeKind::Weak && is_holding(node, at) {
                    kept[at] = true;
                    starts[edge.to as usize + 1] += 1;
                }
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut edges = vec![(NONE, 0); starts.last().map_or(0, |last| *last as usize)];
        for node in snapshot.indices() {
            for at in snapshot.edge_range(node) {
                if let Some(edge) = snapshot.edge(at).filter(|_| kept[at]) {
                    let place = &mut next[edge.to as usize];
                    edges[*place as usize] = (node, u32::try_from(at).unwrap_or(NONE));
                    *place += 1;
                }
            }
        }
        let mut all = Self {
            starts,
            edges,
            entered: Vec::new(),
            left: Vec::new(),
        };
        let order = post_order(snapshot, &kept);
        let passed = all.dominators(snapshot.len(), &order);
        (all.entered, all.left) = intervals(&passed, &order);
        all
    }

    /// The holders of a node, each with the position of its edge.
    pub(crate) fn of(&self, node: NodeIndex) -> &[(NodeIndex, u32)] {
        let start = |at: usize| self.starts.get(at).map_or(0, |start| *start as usize);
        let at = node as usize;
        self.edges.get(start(at)..start(at + 1)).unwrap_or_default()
    }

    /// Whether a node can be reached from the roots.
    pub(crate) fn is_alive(&self, node: NodeIndex) -> bool {
        self.entered
            .get(node as usize)
            .is_some_and(|at| *at != NONE)
    }

    /// Whether every way to `node` passes `through`.
    pub(crate) fn is_behind(&self, node: NodeIndex, through: NodeIndex) -> bool {
        let span = |of: NodeIndex| {
            let entered = self.entered.get(of as usize).copied().unwrap_or(NONE);
            (entered, self.left.get(of as usize).copied().unwrap_or(0))
        };
        let ((at, _), (from, to)) = (span(node), span(through));
        at != NONE && from != NONE && from <= at && at < to
    }

    /// For each node the last one that all ways to it pass.
    fn dominators(&self, count: usize, order: &[NodeIndex]) -> Vec<u32> {
        let mut number = vec![NONE; count];
        for (at, node) in order.iter().enumerate() {
            number[*node as usize] = u32::try_from(at).unwrap_or(NONE);
        }
        let mut passed = vec![NONE; count];
        let Some(root) = order.last().copied() else {
            return passed;
        };
        passed[root as usize] = root;
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for node in order.iter().rev().skip(1) {
                let mut new = NONE;
                for (holder, _) in self.of(*node) {
                    if passed[*holder as usize] == NONE {
                        continue;
                    }
                    new = match new {
                        NONE => *holder,
                        new => meet(new, *holder, &passed, &number),
                    };
                }
                if new != NONE && passed[*node as usize] != new {
                    passed[*node as usize] = new;
                    is_changed = true;
                }
            }
        }
        passed
    }
}

/// The last node that all ways to both pass.
fn meet(mut one: u32, mut other: u32, passed: &[u32], number: &[u32]) -> u32 {
    while one != other {
        while number[one as usize] < number[other as usize] {
            one = passed[one as usize];
        }
        while number[other as usize] < number[one as usize] {
            other = passed[other as usize];
        }
    }
    one
}

/// All nodes that can be reached from the first one, each after those that it leads to.
fn post_order(snapshot: &Snapshot, kept: &[bool]) -> Vec<NodeIndex> {
    let mut order = Vec::with_capacity(snapshot.len());
    let mut is_seen = vec![false; snapshot.len()];
    if is_seen.is_empty() {
        return order;
    }
    is_seen[0] = true;
    let mut stack = vec![(0_u32, snapshot.edge_range(0))];
    while let Some((node, rest)) = stack.last_mut() {
        let Some(at) = rest.next() else {
            order.push(*node);
            stack.pop();
            continue;
        };
        let Some(edge) = snapshot.edge(at).filter(|_| kept[at]) else {
            continue;
        };
        if !is_seen[edge.to as usize] {
            is_seen[edge.to as usize] = true;
            stack.push((edge.to, snapshot.edge_range(edge.to)));
        }
    }
    order
}

/// When a walk through the tree of dominators enters and leaves each node.
fn intervals(passed: &[u32], order: &[NodeIndex]) -> (Vec<u32>, Vec<u32>) {
    let count = passed.len();
    let mut sizes = vec![1_u32; count];
    // A dominator comes later in this order than what is behind it.
    for node in order {
        let above = passed[*node as usize];
        if above != NONE && above != *node {
            sizes[above as usize] = sizes[above as usize].saturating_add(sizes[*node as usize]);
        }
    }
    let (mut entered, mut left) = (vec![NONE; count], vec![0; count]);
    let mut free = vec![0_u32; count];
    for node in order.iter().rev() {
        let at = *node as usize;
        let above = passed[at];
        let start = match above == *node || above == NONE {
            true => 0,
            false => free[above as usize],
        };
        if above != *node && above != NONE {
            free[above as usize] = start.saturating_add(sizes[at]);
        }
        entered[at] = start;
        left[at] = start.saturating_add(sizes[at]);
        free[at] = start.saturating_add(1);
    }
    (entered, left)
}
