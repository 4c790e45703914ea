//! The conclusions from a snapshot: totals, classes, targets, limits, patterns, lints.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::lint::{self, LintHit};
use crate::pattern;
use crate::wall::{self, Wall};
use crate::{Class, FdEntry, Snapshot, Text, collapse};

/// How many descriptors of one class there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The class.
    pub class: Class,
    /// How many.
    pub count: u64,
}

/// How many descriptors of one class refer to one (collapsed) target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetCount {
    /// The class.
    pub class: Class,
    /// The target with numbers and random names collapsed.
    pub target: Text,
    /// The first of them, uncollapsed.
    pub example: Text,
    /// Whether all of them refer to exactly that one.
    pub same: bool,
    /// How many.
    pub count: u64,
}

/// Everything concluded from one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Lowest open number.
    pub lowest: Option<u64>,
    /// Highest open number.
    pub highest: Option<u64>,
    /// Count as a share of the soft limit.
    pub percent_of_soft: Option<f64>,
    /// Whether a number of 1024 or more is or was in use.
    pub crossed_1024: Option<bool>,
    /// The limits.
    pub walls: Vec<Wall>,
    /// Classes, largest first; absent in the radar tier.
    pub classes: Option<Vec<ClassCount>>,
    /// Targets, largest first; absent in the radar tier.
    pub targets: Option<Vec<TargetCount>>,
    /// Patterns in the numbers, in words.
    pub patterns: Vec<String>,
    /// What looks wrong.
    pub lints: Vec<LintHit>,
}

impl Summary {
    /// Draws all conclusions.
    #[must_use]
    pub fn summarize(snapshot: &Snapshot) -> Self {
        Self {
            targets: snapshot.fds.as_deref().map(targets),
            ..Self::without_targets(snapshot)
        }
    }

    /// The same without the targets, which take about as long as all the rest.
    #[must_use]
    pub fn without_targets(snapshot: &Snapshot) -> Self {
        let fds = snapshot.fds.as_deref();
        let own = |entry: &&FdEntry| !entry.class.is_of_fdguard();
        let number = |entry: &FdEntry| u64::from(entry.fd);
        // Protection's placeholders have enlarged the table.
        let is_widened = fds.is_some_and(|fds| fds.iter().any(|entry| !own(&entry)));
        let table_size = snapshot.table_size.filter(|_| !is_widened);
        let highest = fds.and_then(|fds| fds.iter().rev().find(own).map(number));
        let lowest = fds.and_then(|fds| fds.iter().find(own).map(number));
        Self {
            lowest,
            highest,
            percent_of_soft: snapshot
                .count
                .zip(snapshot.limits.soft)
                .and_then(|(count, soft)| wall::percent(count, soft)),
            crossed_1024: wall::crossed_1024(highest, table_size),
            walls: wall::walls(snapshot, highest),
            classes: fds.map(classes),
            targets: None,
            patterns: pattern::patterns(snapshot),
            lints: lint::check(snapshot),
        }
    }
}

/// Counts classes, largest first, then by name.
#[must_use]
pub fn classes(fds: &[FdEntry]) -> Vec<ClassCount> {
    let mut counts: FxHashMap<&Class, u64> = FxHashMap::default();
    for entry in fds {
        *counts.entry(&entry.class).or_default() += 1;
    }
    let mut list: Vec<_> = counts
        .into_iter()
        .map(|(class, count)| ClassCount {
            class: class.clone(),
            count,
        })
        .collect();
    list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.class.cmp(&b.class)));
    list
}

/// What is known of a group of descriptors with the same collapsed target.
#[derive(Debug)]
struct Members<'a> {
    count: u64,
    example: &'a Text,
    same: bool,
}

impl Members<'_> {
    fn absorb(&mut self, other: &Self) {
        self.count += other.count;
        self.same &= other.same && self.example == other.example;
    }
}

/// The groups of one class, by collapsed target.
type Groups<'a> = FxHashMap<Vec<u8>, Members<'a>>;

/// Counts collapsed targets per class, largest first, then by name.
#[must_use]
pub fn targets(fds: &[FdEntry]) -> Vec<TargetCount> {
    TargetGroups::new(fds).into_list()
}

/// Descriptors by class and collapsed target.
#[derive(Debug)]
pub struct TargetGroups<'a>(FxHashMap<&'a Class, Groups<'a>>);

impl<'a> TargetGroups<'a> {
    /// The groups of these descriptors.
    #[must_use]
    pub fn new(fds: &'a [FdEntry]) -> Self {
        let mut classes: FxHashMap<&Class, Groups<'_>> = FxHashMap::default();
        let mut target = Vec::new();
        for entry in fds {
            let one = Members {
                count: 1,
                example: &entry.target,
                same: true,
            };
            target.clear();
            collapse::append_target(entry, &mut target);
            let groups = classes.entry(&entry.class).or_default();
            match groups.get_mut(&target) {
                Some(members) => members.absorb(&one),
                None => drop(groups.insert(target.clone(), one)),
            }
        }
        Self(classes)
    }

    /// Adds the groups of descriptors that come after these.
    pub fn absorb(&mut self, later: Self) {
        for (class, groups) in later.0 {
            let known = self.0.entry(class).or_default();
            for (target, members) in groups {
                match known.get_mut(&target) {
                    Some(before) => before.absorb(&members),
                    None => drop(known.insert(target, members)),
                }
            }
        }
    }

    /// All of them, largest first, then by name.
    #[must_use]
    pub fn into_list(mut self) -> Vec<TargetCount> {
        self.0.values_mut().for_each(merge_words);
        let groups = self.0.into_iter().flat_map(|(class, groups)| {
            let count = move |(target, members): (Vec<u8>, Members<'_>)| TargetCount {
                class: class.clone(),
                target: Text::from(target),
                example: members.example.clone(),
                same: members.same,
                count: members.count,
            };
            groups.into_iter().map(count)
        });
        let mut list: Vec<_> = groups.collect();
        list.sort_by(|a, b| {
            b.count
                .cmp(&a.count)
                .then_with(|| a.class.cmp(&b.class))
                .then_with(|| a.target.cmp(&b.target))
        });
        list
    }
}

/// A random name of letters alone looks like a word. If its siblings were collapsed, it is one of
/// them.
fn merge_words(groups: &mut Groups<'_>) {
    let words: Vec<_> = groups
        .keys()
        .filter_map(|target| {
            let starred = collapse::with_words(target)?;
            let is_known = groups.contains_key(&starred);
            is_known.then(|| (target.clone(), starred))
        })
        .collect();
    for (word, siblings) in words {
        if let (Some(one), Some(all)) = (groups.remove(&word), groups.get_mut(&siblings)) {
            all.absorb(&one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetGroups, targets};
    use crate::Class;
    use crate::testing::file;

    #[test]
    fn random_names_of_letters_alone_join_their_siblings() {
        let paths = [
            "/tmp/agent-a1b2c3d4/x",
            "/tmp/agent-_bumltqx/x",
            "/tmp/agent-xhsmmhwu/x",
            "/tmp/agent-sessions/y",
        ];
        let fds: Vec<_> = paths
            .iter()
            .zip(3..)
            .map(|(path, fd)| file(fd, Class::Regular, path))
            .collect();
        let found = targets(&fds);
        let shown: Vec<_> = found
            .iter()
            .map(|row| (row.target.as_str().unwrap(), row.count, row.same))
            .collect();
        assert_eq!(
            shown,
            [
                ("/tmp/agent-*/x", 3, false),
                ("/tmp/agent-sessions/y", 1, true)
            ]
        );
    }

    #[test]
    fn many_descriptors_of_one_file_are_the_same() {
        let fds = [
            file(3, Class::SqliteDb, "/tmp/agent-41/db"),
            file(4, Class::SqliteDb, "/tmp/agent-41/db"),
        ];
        let found = targets(&fds);
        assert!(found[0].same);
        assert_eq!(found[0].target.as_str(), Some("/tmp/agent-*/db"));
        assert_eq!(found[0].example.as_str(), Some("/tmp/agent-41/db"));
    }

    #[test]
    fn the_groups_of_two_parts_are_those_of_the_whole() {
        let paths = [
            "/tmp/agent-1/db",
            "/var/log/a",
            "/tmp/agent-2/db",
            "/var/log/a",
        ];
        let fds: Vec<_> = paths
            .iter()
            .cycle()
            .take(11)
            .zip(3..)
            .map(|(path, fd)| file(fd, Class::Regular, path))
            .collect();
        for at in 0..=fds.len() {
            let (first, second) = fds.split_at(at);
            let mut groups = TargetGroups::new(first);
            groups.absorb(TargetGroups::new(second));
            assert_eq!(groups.into_list(), targets(&fds), "{at}");
        }
    }
}
