//! Converts a view of the host to the lines of the list: filtered, sorted, flat or as a tree. Runs
//! once per look or key, never while drawing.

use std::cmp::Ordering;
use std::collections::HashMap;

use fdguard_core::Pid;
use fdguard_core::growth::Growth;
use fdguard_core::host::{HostRow, HostView};

use super::order::Sort;
use crate::report::host::larger_first;

/// Maximum columns of guides: greater depth is not drawn, so that a name still fits.
const DEEPEST: usize = 16;

/// One line of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    /// The index of its row in the view.
    pub(super) row: usize,
    /// The lines that connect it to its parent: `│ └ `; empty in the flat list.
    pub(super) guides: String,
    /// What it and all its descendants hold together; only in the tree.
    pub(super) family: Option<Family>,
}

/// A process and all its descendants together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Family {
    /// Descriptors of all readable members.
    pub(super) count: u64,
    /// How many could not, which makes the count a lower bound.
    pub(super) unknown: u64,
    /// How many processes there are, itself included.
    pub(super) members: u64,
}

/// Order and filter of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrangement<'a> {
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) tree: bool,
    pub(super) filter: &'a str,
}

/// The lines of the list.
pub(super) fn arrange(view: &HostView, growth: &Growth, how: Arrangement<'_>) -> Vec<Entry> {
    let filter = how.filter.to_lowercase();
    let matches: Vec<bool> = view.rows.iter().map(|row| shows(row, &filter)).collect();
    let own: Vec<Option<f64>> = view
        .rows
        .iter()
        .map(|row| how.sort.rank(row, growth))
        .collect();
    if how.tree {
        return Forest::new(view, how, own, matches).entries();
    }
    let mut rows: Vec<usize> = (0..view.rows.len()).filter(|at| matches[*at]).collect();
    rows.sort_by(|a, b| compare(view, &own, how.reversed, *a, *b));
    let entry = |row| Entry {
        row,
        ..Entry::default()
    };
    rows.into_iter().map(entry).collect()
}

/// Whether a row matches the filter: a part of the command or of its unit, container or pod, or
/// the start of the pid.
fn shows(row: &HostRow, filter: &str) -> bool {
    filter.is_empty()
        || row.pid.to_string().starts_with(filter)
        || row.comm.to_lossy().to_lowercase().contains(filter)
        || row
            .workload
            .as_ref()
            .and_then(|one| one.label())
            .is_some_and(|label| label.to_lowercase().contains(filter))
}

/// Unknown values stay last in both directions: a reversed list must not begin with a screen of
/// question marks.
fn compare(view: &HostView, ranks: &[Option<f64>], reversed: bool, a: usize, b: usize) -> Ordering {
    let by_rank = match (ranks[a], ranks[b]) {
        (Some(x), Some(y)) if reversed => x.total_cmp(&y),
        (x, y) => larger_first(x, y),
    };
    by_rank
        .then_with(|| view.rows[b].count.cmp(&view.rows[a].count))
        .then_with(|| view.rows[a].pid.cmp(&view.rows[b].pid))
}

/// Parents and children, with the sums of every family.
struct Forest<'a> {
    view: &'a HostView,
    how: Arrangement<'a>,
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
    family: Vec<Family>,
    rank: Vec<Option<f64>>,
    kept: Vec<bool>,
}

impl<'a> Forest<'a> {
    fn new(
        view: &'a HostView,
        how: Arrangement<'a>,
        own: Vec<Option<f64>>,
        matches: Vec<bool>,
    ) -> Self {
        let mut forest = Self {
            view,
            how,
            roots: Vec::new(),
            children: vec![Vec::new(); view.rows.len()],
            family: view.rows.iter().map(Family::of).collect(),
            rank: own,
            kept: matches,
        };
        let order = forest.link();
        forest.gather(&order);
        forest
    }

    /// Links children to parents and returns every row, parents first.
    fn link(&mut self) -> Vec<usize> {
        let rows = &self.view.rows;
        let at: HashMap<Pid, usize> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| (row.pid, i))
            .collect();
        for (child, row) in rows.iter().enumerate() {
            match row.ppid.and_then(|ppid| at.get(&ppid)) {
                Some(parent) if *parent != child => self.children[*parent].push(child),
                _ => self.roots.push(child),
            }
        }
        let mut walk = Walk {
            order: Vec::with_capacity(rows.len()),
            seen: vec![false; rows.len()],
        };
        for root in &self.roots {
            walk.from(*root, &self.children);
        }
        // Rows are not read in one instant, so a reused pid can make two processes each other's
        // parent. A process that no root leads to becomes a root, or it would never be shown.
        for row in 0..rows.len() {
            if !walk.seen[row] {
                for children in &mut self.children {
                    children.retain(|child| *child != row);
                }
                self.roots.push(row);
                walk.from(row, &self.children);
            }
        }
        walk.order
    }

    /// Sums from the leaves up, then applies the filter downwards: a match keeps its ancestors, for
    /// the path, and its descendants, for the sum.
    fn gather(&mut self, order: &[usize]) {
        let mut asked = self.kept.clone();
        for &parent in order {
            for &child in &self.children[parent] {
                asked[child] |= asked[parent];
            }
        }
        self.kept = asked;
        for &parent in order.iter().rev() {
            for at in 0..self.children[parent].len() {
                let child = self.children[parent][at];
                let part = self.family[child];
                self.family[parent].add(part);
                self.rank[parent] = self.how.sort.join(self.rank[parent], self.rank[child]);
                self.kept[parent] |= self.kept[child];
            }
        }
        let (view, reversed) = (self.view, self.how.reversed);
        for list in self.children.iter_mut().chain([&mut self.roots]) {
            list.retain(|row| self.kept[*row]);
            list.sort_by(|a, b| compare(view, &self.rank, reversed, *a, *b));
        }
    }

    /// Depth first, without recursion: a chain of processes could overflow the stack.
    fn entries(self) -> Vec<Entry> {
        let mut entries = Vec::new();
        // Pending rows, the next one last: row, its guides, the prefix of its children.
        let mut stack: Vec<(usize, String, String)> = Vec::new();
        for &root in self.roots.iter().rev() {
            stack.push((root, String::new(), String::new()));
        }
        while let Some((row, guides, stem)) = stack.pop() {
            for (nth, &child) in self.children[row].iter().rev().enumerate() {
                let (knee, line) = match nth {
                    _ if stem.chars().count() >= DEEPEST => ("", ""),
                    0 => ("└ ", "  "),
                    _ => ("├ ", "│ "),
                };
                stack.push((child, format!("{stem}{knee}"), format!("{stem}{line}")));
            }
            entries.push(Entry {
                row,
                guides,
                family: Some(self.family[row]),
            });
        }
        entries
    }
}

/// Visits everything below a row, each row once, parents before children.
struct Walk {
    order: Vec<usize>,
    seen: Vec<bool>,
}

impl Walk {
    fn from(&mut self, root: usize, children: &[Vec<usize>]) {
        let mut next = self.order.len();
        self.seen[root] = true;
        self.order.push(root);
        while let Some(parent) = self.order.get(next).copied() {
            for &child in &children[parent] {
                if !std::mem::replace(&mut self.seen[child], true) {
                    self.order.push(child);
                }
            }
            next += 1;
        }
    }
}

impl Family {
    fn of(row: &HostRow) -> Self {
        Self {
            count: row.count.unwrap_or(0),
            unknown: u64::from(row.count.is_none() && !row.zombie),
            members: 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.unknown += other.unknown;
        self.members += other.members;
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::growth::Growth;
    use fdguard_core::host::{HostRow, HostView};

    use super::{Arrangement, Entry, Family, arrange};
    use crate::tui::top::fixture;
    use crate::tui::top::order::Sort;

    const TREE: Arrangement<'_> = Arrangement {
        sort: Sort::Pid,
        reversed: false,
        tree: true,
        filter: "",
    };

    fn listed(view: &HostView, how: Arrangement<'_>) -> Vec<(u32, Entry)> {
        let entries = arrange(view, &Growth::new(), how);
        let named = entries.into_iter().map(|e| (view.rows[e.row].pid, e));
        named.collect()
    }

    fn family(pairs: &[(u32, u32)]) -> HostView {
        let rows = pairs.iter().map(|(pid, ppid)| HostRow {
            pid: *pid,
            ppid: Some(*ppid),
            count: Some(10),
            ..HostRow::default()
        });
        HostView {
            rows: rows.collect(),
            ..HostView::default()
        }
    }

    #[test]
    fn parents_stand_above_their_children_with_the_sum_of_all() {
        let listed = listed(&fixture::view(), TREE);
        let host = listed.iter().position(|(pid, _)| *pid == 4000).unwrap();
        let expected = Family {
            count: 210 + 998 + 85,
            unknown: 0,
            members: 4,
        };
        assert_eq!(listed[host].1.family, Some(expected));
        assert_eq!(listed[host + 1].1.guides, "  ├ ");
    }

    #[test]
    fn a_sum_with_an_unknown_part_says_so() {
        let listed = listed(&fixture::view(), TREE);
        let (pid, init) = &listed[0];
        assert_eq!((*pid, init.family.unwrap().unknown), (1, 1));
    }

    #[test]
    fn a_filter_in_the_tree_keeps_the_path_and_the_descendants() {
        let how = Arrangement {
            filter: "AGENT",
            ..TREE
        };
        let pids: Vec<u32> = listed(&fixture::view(), how).iter().map(|e| e.0).collect();
        assert_eq!(pids, [1, 4000, 555, 4242, 4243]);
    }

    #[test]
    fn processes_that_claim_each_other_as_parents_are_still_shown_once() {
        let listed = listed(&family(&[(1, 0), (5, 6), (6, 5), (7, 7), (8, 6)]), TREE);
        let mut pids: Vec<u32> = listed.iter().map(|e| e.0).collect();
        pids.sort_unstable();
        assert_eq!(pids, [1, 5, 6, 7, 8]);
    }

    #[test]
    fn a_very_long_chain_of_parents_does_not_exhaust_the_stack() {
        let chain: Vec<(u32, u32)> = (1..3000).map(|pid| (pid, pid - 1)).collect();
        let listed = listed(&family(&chain), TREE);
        assert_eq!(listed.len(), 2999);
        assert_eq!(listed[0].1.family.unwrap().count, 29_990);
    }

    #[test]
    fn unknown_comes_last_in_both_directions() {
        for reversed in [false, true] {
            let how = Arrangement {
                sort: Sort::Count,
                reversed,
                tree: false,
                filter: "",
            };
            let listed = listed(&fixture::view(), how);
            assert_eq!(
                listed[8..].iter().map(|e| e.0).collect::<Vec<_>>(),
                [555, 777]
            );
        }
    }

    #[test]
    fn a_filter_is_part_of_the_command_or_the_start_of_the_number() {
        let by = |filter| {
            let how = Arrangement {
                tree: false,
                filter,
                ..TREE
            };
            let listed = listed(&fixture::view(), how);
            listed.iter().map(|e| e.0).collect::<Vec<_>>()
        };
        assert_eq!(by("Codex"), [4242]);
        assert_eq!(by("42"), [4242, 4243]);
        assert!(by("nothing of the kind").is_empty());
    }
}
