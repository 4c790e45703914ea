//! The process tree: ancestors, descendants, and processes that share their databases.

use std::collections::{HashMap, HashSet};

use fdguard_core::Pid;
use fdguard_core::evidence::{Relation, Relative};
use fdguard_core::host::HostRow;

/// Relatives beyond this number are counted but not listed.
const MOST: usize = 256;
/// No chain of parents is this long; rows that changed between reads could form a cycle.
const DEEPEST: usize = 64;

/// The relatives of the named processes, parents before children, and how many were omitted.
pub(super) fn relatives(rows: &[HostRow], named: &[Pid], sharers: &[Pid]) -> (Vec<Relative>, u64) {
    let mut tree = Tree::of(rows, named);
    for pid in named {
        let mut ancestors = tree.ancestors(*pid);
        ancestors.reverse();
        for (depth, ancestor) in ancestors.iter().enumerate() {
            tree.add(*ancestor, Relation::Ancestor, depth);
        }
        tree.add_with_descendants(*pid, ancestors.len());
    }
    for pid in sharers {
        tree.add(*pid, Relation::Sharer, 0);
    }
    (tree.found, tree.more)
}

struct Tree<'a> {
    rows: HashMap<Pid, &'a HostRow>,
    children: HashMap<Pid, Vec<Pid>>,
    named: HashSet<Pid>,
    seen: HashSet<Pid>,
    found: Vec<Relative>,
    more: u64,
}

impl<'a> Tree<'a> {
    fn of(rows: &'a [HostRow], named: &[Pid]) -> Self {
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for row in rows {
            if let Some(ppid) = row.ppid {
                children.entry(ppid).or_default().push(row.pid);
            }
        }
        Self {
            rows: rows.iter().map(|row| (row.pid, row)).collect(),
            children,
            named: named.iter().copied().collect(),
            seen: HashSet::new(),
            found: Vec::new(),
            more: 0,
        }
    }

    fn ancestors(&self, pid: Pid) -> Vec<Pid> {
        let parent = |pid: &Pid| {
            let ppid = self.rows.get(pid)?.ppid?;
            (ppid > 0).then_some(ppid)
        };
        std::iter::successors(parent(&pid), parent)
            .take(DEEPEST)
            .collect()
    }

    fn add(&mut self, pid: Pid, relation: Relation, depth: usize) {
        let Some(row) = self.rows.get(&pid) else {
            return;
        };
        if !self.seen.insert(pid) {
            return;
        }
        if self.found.len() >= MOST {
            self.more += 1;
            return;
        }
        let relation = if self.named.contains(&pid) {
            Relation::Named
        } else {
            relation
        };
        self.found.push(Relative {
            pid,
            ppid: row.ppid,
            relation,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            comm: row.comm.clone(),
            count: row.count,
            soft: row.limits.soft,
            zombie: row.zombie,
        });
    }

    /// Walks the tree in order, without recursion: its depth is unbounded.
    fn add_with_descendants(&mut self, root: Pid, depth: usize) {
        let mut next = vec![(root, depth)];
        while let Some((pid, depth)) = next.pop() {
            self.add(pid, Relation::Descendant, depth);
            let children = self.children.remove(&pid).unwrap_or_default();
            next.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::evidence::Relation;
    use fdguard_core::host::HostRow;

    use super::relatives;

    fn row(pid: u32, ppid: u32) -> HostRow {
        HostRow {
            pid,
            ppid: Some(ppid),
            ..HostRow::default()
        }
    }

    #[test]
    fn r8_parents_come_first_then_the_named_one_and_its_descendants() {
        let rows = [
            row(1, 0),
            row(2, 1),
            row(3, 2),
            row(4, 3),
            row(5, 3),
            row(6, 4),
            row(9, 1),
        ];
        let (found, more) = relatives(&rows, &[3], &[9]);
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.pid, one.relation, one.depth))
            .collect();
        assert_eq!(
            shown,
            [
                (1, Relation::Ancestor, 0),
                (2, Relation::Ancestor, 1),
                (3, Relation::Named, 2),
                (4, Relation::Descendant, 3),
                (6, Relation::Descendant, 4),
                (5, Relation::Descendant, 3),
                (9, Relation::Sharer, 0),
            ]
        );
        assert_eq!(more, 0);
    }

    #[test]
    fn a_circle_and_a_crowd_come_to_an_end() {
        let rows = [row(7, 8), row(8, 7)];
        assert_eq!(relatives(&rows, &[7], &[]).0.len(), 2);
        let crowd: Vec<HostRow> = (2..1002)
            .map(|pid| row(pid, 1))
            .chain([row(1, 0)])
            .collect();
        let (found, more) = relatives(&crowd, &[1], &[]);
        assert_eq!((found.len(), more), (256, 745));
    }
}
